"""Inductor, tuning plane: which torch.compile configurations are worth trying.

In: a diagnosis. Out: candidates, best first. The build itself is the first call of the loaded callable (load.py):
torch.compile compiles on use, and the shipped arm must be the measured one. Covered: modes, true freezing, layouts,
the C++ wrapper. Infeasible: models that compute `%` of floats (AOTInductor runs those: its graph can be rewritten).
Not covered: regions (a later stage).
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata

import torch

from compilot._torch.remainders import remainder_of_floats
from compilot._tree import map_call
from compilot.engines.arithmetic import cast_offer
from compilot.engines.needs import other_precision
from compilot.engines.protocol import Availability, BuildRequest, Infeasible, Lower
from compilot.records import (
    ArtifactFile,
    Candidate,
    Diagnosis,
    MemoryFormat,
    OptionValue,
    Precision,
    Settings,
    Shapes,
)

MODES = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", "lite")
# Options whose whole effect shows in the generated code: two candidates that differ only in these and have the same
# code are the same program. Everything else may act below the code (compiler flags, threads), so it is in the digest.
_SHOWN_IN_CODE = frozenset(
    {"max_autotune", "max_autotune_gemm", "coordinate_descent_tuning", "triton.cudagraphs", "epilogue_fusion"}
)


def available() -> Availability:
    """Part of torch; whether its C++ compiler works is found out by trying (diagnosis.compiler_problem)."""
    return Availability(ok=True, version=metadata.version("torch"))


def offer(diagnosis: Diagnosis) -> Sequence[Candidate]:
    """Configurations worth their compile time, likely winners first. The first is plain torch.compile."""
    shapes = Shapes.DYNAMIC if diagnosis.dynamic else Shapes.STATIC
    images = diagnosis.has_4d_input and diagnosis.has_conv
    offers = [_candidate("", "what `torch.compile(model)` gives, the yardstick", shapes)]
    if diagnosis.stochastic:  # all others draw random numbers of their own
        return [*offers, *_random(shapes, diagnosis.training)]
    if not diagnosis.training:
        offers += _frozen(shapes, images)
    offers += _modes(shapes)
    offers.append(
        _candidate("cpp_wrapper", "C++ instead of Python glue: less overhead per call", shapes, cpp_wrapper=True)
    )
    if not diagnosis.dynamic:
        why = "one program for all sizes: no recompile when a size changes, often at no cost"
        place = 1 if diagnosis.size_recompiles else len(offers)  # static code would serve the first size alone
        offers.insert(place, _candidate("dynamic", why, Shapes.DYNAMIC))
    return offers


def offer_precision(diagnosis: Diagnosis, precision: Precision) -> Lower:
    """The model cast to half precision, its weights constants; images in channels-last."""
    images = diagnosis.has_4d_input and diagnosis.has_conv
    return cast_offer("inductor", diagnosis, precision, frozen=True, channels_last=images)


def _frozen(shapes: Shapes, images: bool) -> list[Candidate]:
    """Weights folded in as constants, alone and with what it enables."""
    found = [
        _candidate(
            "freezing + max_autotune",
            "constant weights let the C++ GEMM templates compete with the library",
            shapes,
            freezing=True,
            max_autotune=True,
        ),
        _candidate("freezing", "weights become constants: folded, prepacked, fused", shapes, freezing=True),
    ]
    if images:
        why = "prepacked convolutions without layout changes in between"
        cl = MemoryFormat.CHANNELS_LAST
        found.append(_candidate("freezing + channels_last", why, shapes, memory_format=cl, freezing=True))
    return found


def _random(shapes: Shapes, training: bool) -> list[Candidate]:
    """For models that draw random numbers: eager's own, by eager's own operators, in the same order."""
    why = "draws the random numbers that eager draws, so that its answers are eager's"
    found = [_candidate("fallback_random", why, shapes, fallback_random=True)]
    if not training:
        found += [_candidate("freezing + fallback_random", why, shapes, fallback_random=True, freezing=True)]
    return found


def _modes(shapes: Shapes) -> list[Candidate]:
    """torch's own named modes."""
    why = {
        "max-autotune-no-cudagraphs": "torch's own search over kernels",
        "reduce-overhead": "CUDA graphs; without a GPU it should be the same program as the default",
    }
    return [_candidate(mode, reason, shapes, mode=mode) for mode, reason in why.items()]


def _candidate(
    label: str,
    rationale: str,
    shapes: Shapes,
    *,
    mode: str | None = None,
    memory_format: MemoryFormat = MemoryFormat.PRESERVE,
    **options: OptionValue,
) -> Candidate:
    settings = Settings(engine="inductor", mode=mode, options=options, shapes=shapes, memory_format=memory_format)
    return Candidate(settings=settings, label=f"inductor {label}".strip(), rationale=rationale)


def validate(settings: Settings) -> str | None:
    """Known mode and precision; torch.compile itself refuses options that it does not know."""
    if settings.mode not in MODES:
        return f"unknown mode '{settings.mode}'; torch.compile knows {', '.join(m for m in MODES if m)}"
    return other_precision(settings, (Precision.BF16, Precision.FP16))


def build(request: BuildRequest) -> Sequence[ArtifactFile]:
    """Nothing ahead of the first call: torch.compile builds on use, into the workspace's cache directory."""
    if not request.model.training:  # one more call would move the averages of a batch norm
        _refuse_remainders(request)
    return ()


def _refuse_remainders(request: BuildRequest) -> None:
    call = map_call(request.call, lambda _, leaf: leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf)
    with torch.no_grad(), torch.random.fork_rng():
        where = remainder_of_floats(lambda: request.model(*call.args, **call.kwargs))
    if where:
        raise Infeasible(f"Inductor loses the digits of '%' of floats where the quotient is large: at {where}")


def below_the_code(candidate: Candidate) -> str:
    """The settings that can change the program without changing its generated code."""
    options = {k: v for k, v in candidate.settings.options.items() if k not in _SHOWN_IN_CODE}
    return repr((sorted(options.items()), candidate.settings.memory_format.value, candidate.process))
