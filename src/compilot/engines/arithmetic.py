"""Lower precisions: which of them this machine computes in, and what a model cast to one looks like from outside.

In: a diagnosis, a precision. Out: why it cannot pay here, or seeds in it. Covered: CPUs by their vector
extensions, GPUs. Not covered: whether it is accurate enough (measure/) or faster (the race).
A CPU without the arithmetic emulates it: on AVX2 alone a bf16 matrix product takes several times as long as float32.
"""

from __future__ import annotations

from collections.abc import Mapping

from compilot.engines.space import Seed, Value
from compilot.records import Diagnosis, MemoryFormat, Precision

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


def cast_problems(engine: str, diagnosis: Diagnosis) -> dict[Precision, str]:
    """Why engines that run the model itself cannot run a copy of it cast to a precision; those not in it they can."""
    training = "lower precision is for inference, not for train mode" if diagnosis.training else ""
    half = {precision: training or no_arithmetic(diagnosis, precision) for precision in EXTENSIONS}
    int8 = Precision.INT8_DYNAMIC
    return {int8: f"{engine} has no {int8} of its own"} | {precision: why for precision, why in half.items() if why}


def cast_seeds(lacks: Mapping[Precision, str], point: Mapping[str, Value]) -> tuple[Seed, ...]:
    """A copy of the model with its weights cast to bf16 or fp16, and more knobs set beside it."""
    more = [str(value) if isinstance(value, MemoryFormat) else name for name, value in point.items()]
    why = "weights and activations in {}: half the memory traffic, twice the arithmetic per instruction"
    return tuple(
        Seed(" + ".join([precision, *more]), why.format(precision), {"precision": precision, **point})
        for precision in EXTENSIONS
        if precision not in lacks
    )
