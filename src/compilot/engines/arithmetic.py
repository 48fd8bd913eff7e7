"""Lower precisions: which of them this machine computes in, and what a model cast to one looks like from outside.

In: a diagnosis, a precision. Out: why it cannot pay here, or None; torch's dtype for it. Covered: CPUs by their vector
extensions, GPUs. Not covered: whether it is accurate enough (measure/) or faster (the race).
A CPU without the arithmetic emulates it: on AVX2 alone a bf16 matrix product takes several times as long as float32.
"""

from __future__ import annotations

from compilot.engines.protocol import Lower
from compilot.records import Candidate, Diagnosis, MemoryFormat, OptionValue, Precision, Settings, Shapes

# Vector extensions that compute in a precision, as /proc/cpuinfo spells them.
EXTENSIONS = {
    Precision.BF16: ("avx512_bf16", "amx_bf16", "bf16", "svebf16"),
    Precision.FP16: ("avx512_fp16", "amx_fp16", "asimdhp"),
}
_NAMES = {
    Precision.BF16: "bf16 arithmetic (AVX512_BF16, AMX or ARM BF16)",
    Precision.FP16: "fp16 arithmetic (AVX512_FP16, AMX_FP16 or ARM FP16)",
}
VNNI = ("avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm")  # 8-bit dot products without saturation


def no_arithmetic(diagnosis: Diagnosis, precision: Precision) -> str:
    """Why half precision cannot pay here, "" where it can."""
    if diagnosis.cuda or any(name in diagnosis.cpu_isa for name in EXTENSIONS[precision]):
        return ""
    return f"this CPU has no {_NAMES[precision]} and would only emulate it"


def has_dot_product(diagnosis: Diagnosis) -> bool:
    """Whether the CPU multiplies bytes without saturating; without it weights keep 7 bits."""
    return any(name in diagnosis.cpu_isa for name in VNNI)


def cast_offer(
    engine: str, diagnosis: Diagnosis, precision: Precision, *, frozen: bool = False, channels_last: bool = False
) -> Lower:
    """A copy of the model with its weights cast to bf16 or fp16, for engines that run the model itself."""
    if precision not in EXTENSIONS:
        return Lower(why=f"{engine} has no {precision} of its own")
    if diagnosis.training:
        return Lower(why="lower precision is for inference; call model.eval()")
    if why := no_arithmetic(diagnosis, precision):
        return Lower(why=why)
    options: dict[str, OptionValue] = {"freezing": True} if frozen else {}
    settings = Settings(
        engine=engine,
        precision=precision,
        options=options,
        shapes=Shapes.DYNAMIC if diagnosis.dynamic else Shapes.STATIC,
        memory_format=MemoryFormat.CHANNELS_LAST if channels_last else MemoryFormat.PRESERVE,
    )
    label = " + ".join([f"{engine} {precision}", *options, *(["channels_last"] if channels_last else [])])
    why = f"weights and activations in {precision}: half the memory traffic, twice the arithmetic per instruction"
    return Lower((Candidate(settings=settings, label=label, rationale=why),))
