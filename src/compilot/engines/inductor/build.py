"""Inductor, tuning plane: which torch.compile configurations are worth trying.

In: a diagnosis. Out: a space, likely winners first. The build itself is the first call of the loaded callable
(load.py): torch.compile compiles on use, and the shipped arm must be the measured one. Covered: modes, true freezing,
layouts, the C++ wrapper, options of the code (compiler_knobs.py), checks inside of a call. Infeasible: models that
compute `%` of floats (AOTInductor runs those: its graph can be rewritten). Not covered: regions (boundary/).
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata

import msgspec
import torch

from compilot._torch.remainders import remainder_of_floats
from compilot._tree import map_call
from compilot.engines import compiler_knobs
from compilot.engines.arithmetic import cast_problems, cast_seeds
from compilot.engines.compiler_knobs import FREEZING, MAX_AUTOTUNE
from compilot.engines.compiler_options import SIZES
from compilot.engines.needs import other_precision, unknown_options
from compilot.engines.protocol import Availability, BuildRequest, Infeasible
from compilot.engines.space import (
    CHANNELS_LAST,
    Acts,
    Knob,
    Need,
    Risk,
    Seed,
    Space,
    Variation,
    options_of,
    precision_knob,
)
from compilot.records import ArtifactFile, Candidate, Diagnosis, MemoryFormat, Precision, Settings, Shapes

MODES = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", "lite")
KNOBS = (
    *compiler_knobs.SHARED,
    CHANNELS_LAST,
    Knob(
        "cpp_wrapper",
        Acts.OPTION,
        (False, True),
        "less overhead per call",
        risk=Risk.SLOW_BUILD,
        variations=(Variation(True, "cpp_wrapper", "the best so far, called from C++ instead of Python"),),
    ),
    Knob(
        "asserts",
        Acts.OPTION,
        (True, False),
        "no checks of sizes and alignment inside of a call: the guard has looked at the inputs",
        variations=(Variation(False, "no asserts", "the best so far without checks inside of the call"),),
    ),
    Knob(
        "light_guards",
        Acts.OPTION,
        (False, True),
        "torch checks the inputs of a call only; the model itself is watched by compilot, as for engines of files",
        risk=Risk.MAY_FAIL,
        needs=(Need.INFERENCE, Need.ONE_GRAPH),
        variations=(Variation(True, "light guards", "the best so far, torch's checks of the model left out per call"),),
    ),
    Knob(
        "nested_blocks",
        Acts.OPTION,
        (False, True),
        "a repeated block is compiled once inside of one program: a shorter start, and less code",
        risk=Risk.MAY_FAIL,
        needs=(Need.REPEATED_BLOCKS, Need.INFERENCE, Need.ONE_GRAPH, Need.UNDECLARED_SIZES),
        variations=(),
    ),
    Knob(
        "shapes",
        Acts.SHAPES,
        (Shapes.STATIC, Shapes.DYNAMIC),
        "no recompile when a size changes",
        needs=(Need.UNDECLARED_SIZES,),
        variations=(),
    ),
    Knob(
        SIZES,
        Acts.OPTION,
        ("marked", "automatic", "all"),
        "the declared dimensions are marked as dynamic, found by torch itself, or all dimensions are dynamic",
        needs=(Need.DECLARED_SIZES,),
        variations=(),
    ),
    Knob(
        "fallback_random",
        Acts.OPTION,
        (False, True),
        "the random numbers that eager draws, by eager's own operators and in the same order",
        needs=(Need.RANDOM_NUMBERS,),
        variations=(),
    ),
)
MODE = Knob(
    "mode",
    Acts.MODE,
    (None, "max-autotune-no-cudagraphs", "reduce-overhead"),
    "torch's own names for several options at once",
    risk=Risk.SLOW_BUILD,
    variations=(),
)
# What it has beyond its no-cudagraphs form are CUDA graphs: on a CPU both are the same program.
CUDA_MODE = MODE._replace(values=(*MODE.values, "max-autotune"))
_LAST = {"memory_format": MemoryFormat.CHANNELS_LAST}
PLAIN = Seed("", "what `torch.compile(model)` gives, the yardstick")
DYNAMIC = Seed(
    "dynamic",
    "one program for all sizes: no recompile when a size changes, often at no cost",
    {"shapes": Shapes.DYNAMIC},
)
NO_CUDAGRAPHS = Seed(
    "max-autotune-no-cudagraphs", "torch's own search over kernels", {"mode": "max-autotune-no-cudagraphs"}
)
CUDAGRAPHS = Seed("max-autotune", "torch's own search over kernels, and CUDA graphs", {"mode": "max-autotune"})
SEEDS = (
    PLAIN,
    Seed("freezing + max_autotune", MAX_AUTOTUNE.why, {"freezing": True, "max_autotune": True}),
    Seed("freezing", FREEZING.why, {"freezing": True}),
    Seed(
        "freezing + channels_last",
        "prepacked convolutions without layout changes in between",
        {"freezing": True, **_LAST},
    ),
    NO_CUDAGRAPHS,
    Seed(
        "reduce-overhead",
        "CUDA graphs; without a GPU it should be the same program as the default",
        {"mode": "reduce-overhead"},
    ),
    Seed(
        "nested blocks",
        "the repeated block is compiled once inside of one program: a start nearly as short as that of regions",
        {"nested_blocks": True},
    ),
    Seed("cpp_wrapper", "C++ instead of Python glue: less overhead per call", {"cpp_wrapper": True}),
)
_WHY_RANDOM = "draws the random numbers that eager draws, so that its answers are eager's"
RANDOM = (  # all others draw random numbers of their own
    PLAIN,
    Seed("fallback_random", _WHY_RANDOM, {"fallback_random": True}),
    Seed("freezing + fallback_random", _WHY_RANDOM, {"freezing": True, "fallback_random": True}),
)
GRAPH_MODES = ("reduce-overhead", "max-autotune")  # on a GPU they record what the code does: it is not in the code
# See compiler_knobs.SHOWN_IN_CODE; the rest is in the digest of a program.
_SHOWN_IN_CODE = compiler_knobs.SHOWN_IN_CODE | {
    "max_autotune_gemm",
    "coordinate_descent_tuning",
    "triton.cudagraphs",
    "nested_blocks",
}


def available() -> Availability:
    """Part of torch; whether its C++ compiler works is found out by trying (diagnosis.compiler_problem)."""
    return Availability(ok=True, version=metadata.version("torch"))


def space(diagnosis: Diagnosis) -> Space:
    """Configurations worth their compile time, likely winners first. The first is plain torch.compile."""
    lacks = cast_problems("inductor", diagnosis)
    images = diagnosis.has_4d_input and diagnosis.has_conv
    seeds = RANDOM if diagnosis.stochastic else _seeds(diagnosis)
    cast = cast_seeds(lacks, {"freezing": True, **(_LAST if images else {})})
    mode = CUDA_MODE if diagnosis.cuda else MODE
    return Space((*KNOBS, mode, precision_knob(lacks)), (*seeds, *cast), lacks)


def _seeds(diagnosis: Diagnosis) -> tuple[Seed, ...]:
    """One program for all sizes comes early where sizes varied: static code would serve the first one alone."""
    seeds: tuple[Seed, ...] = SEEDS[1:]
    if diagnosis.cuda:
        after = seeds.index(NO_CUDAGRAPHS) + 1
        seeds = (*seeds[:after], CUDAGRAPHS, *seeds[after:])
    return (PLAIN, DYNAMIC, *seeds) if diagnosis.size_recompiles else (PLAIN, *seeds, DYNAMIC)


def validate(settings: Settings) -> str | None:
    """Known mode and precision, known values of the knobs; torch.compile itself refuses options that it has not."""
    if settings.mode not in MODES:
        return f"unknown mode '{settings.mode}'; torch.compile knows {', '.join(m for m in MODES if m)}"
    known = options_of(KNOBS)
    ours = msgspec.structs.replace(settings, options={k: v for k, v in settings.options.items() if k in known})
    problem = other_precision(settings, (Precision.BF16, Precision.FP16))
    return problem or unknown_options(settings.engine, ours, known)


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
    below = (sorted(options.items()), candidate.settings.memory_format.value, candidate.process)
    graphs = candidate.settings.mode in GRAPH_MODES and torch.cuda.is_available()
    return repr((*below, "CUDA graphs") if graphs else below)
