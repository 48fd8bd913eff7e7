"""What an engine can do with a model: its knobs, and a few points worth trying first.

In: what an engine declares for a diagnosis. Out: candidates, the seeds and those with one knob turned. Covered: what a
knob needs of the model and of other knobs, checked here for every engine. Not covered: the order of trials and knobs
of the whole process (candidates/), whether settings make sense (the engine's `validate`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from compilot._allocator import can_keep_memory
from compilot.errors import InputError
from compilot.modules.selectors import MANY_COPIES
from compilot.records import Candidate, Diagnosis, MemoryFormat, OptionValue, Precision, Settings, Shapes

Value = OptionValue | None  # None: not set
WORTH_ANOTHER_LIBRARY = 1.1  # times as fast in a product of usual size
LOWER = tuple(precision for precision in Precision if precision is not Precision.AS_IS)


class Acts(enum.StrEnum):
    """Where a knob acts: a field of Settings, one of its options, or a field of ProcessSettings."""

    MODE = "mode"
    OPTION = "options"
    SHAPES = "shapes"
    MEMORY_FORMAT = "memory_format"
    PRECISION = "precision"
    PROCESS = "process"


class Risk(enum.StrEnum):
    """What turning a knob may cost besides its trial."""

    NONE = "none"
    NUMERICS = "numerics"  # answers may be further from eager's
    SLOW_BUILD = "slow-build"
    MAY_FAIL = "may-fail"


class Need(enum.StrEnum):
    """What a model or a machine must have for a knob to make sense."""

    COMPILER = "compiler"
    IMAGES = "images"  # inputs of four dimensions, and convolutions
    INFERENCE = "inference"  # weights that stay: no training
    RANDOM_NUMBERS = "random-numbers"
    UNDECLARED_SIZES = "undeclared-sizes"  # no dimension is declared dynamic
    DECLARED_SIZES = "declared-sizes"  # one is
    DENORMALS = "denormals"
    KEEPS_MEMORY = "keeps-memory"  # a C library that can keep freed memory
    SEVERAL_THREADS = "several-threads"
    ONE_GRAPH = "one-graph"  # torch.compile takes the model as one, as far as anybody looked
    LONG_VECTORS = "long-vectors"  # of 512 bits: AVX-512
    FASTER_PRODUCTS = "faster-products"  # oneDNN's matrix products are faster here than those of torch's math library
    REPEATED_BLOCKS = "repeated-blocks"  # a block that the model has several times, in no other such block


_MET: dict[Need, Callable[[Diagnosis], bool]] = {
    Need.COMPILER: lambda diagnosis: diagnosis.compiler_problem is None,
    Need.IMAGES: lambda diagnosis: diagnosis.has_4d_input and diagnosis.has_conv,
    Need.INFERENCE: lambda diagnosis: not diagnosis.training,
    Need.RANDOM_NUMBERS: lambda diagnosis: diagnosis.stochastic,
    Need.UNDECLARED_SIZES: lambda diagnosis: not diagnosis.dynamic,
    Need.DECLARED_SIZES: lambda diagnosis: diagnosis.dynamic,
    Need.DENORMALS: lambda diagnosis: diagnosis.denormals,
    Need.KEEPS_MEMORY: lambda diagnosis: can_keep_memory(),
    Need.ONE_GRAPH: lambda diagnosis: not diagnosis.graph_breaks,
    Need.SEVERAL_THREADS: lambda diagnosis: diagnosis.threads > 1,
    Need.REPEATED_BLOCKS: lambda diagnosis: any(b.count >= MANY_COPIES and not b.level for b in diagnosis.repeated),
    Need.FASTER_PRODUCTS: lambda diagnosis: (
        not diagnosis.cuda and (diagnosis.onednn_gain or 0.0) >= WORTH_ANOTHER_LIBRARY
    ),
    Need.LONG_VECTORS: lambda diagnosis: "avx512f" in diagnosis.cpu_isa,
}


class Variation(NamedTuple):
    """A value of a knob that is worth a trial of its own once the rest of a candidate is known to be good."""

    value: Value
    label: str  # added to the candidate's
    rationale: str


class Knob(NamedTuple):
    """One thing that can be set."""

    name: str  # of the option or of the process's field; otherwise what points call it
    acts: Acts
    values: tuple[Value, ...]  # that this model and machine can use; first what holds where it is not set
    why: str  # what it may gain, in one sentence
    risk: Risk = Risk.NONE
    needs: tuple[Need, ...] = ()
    only_with: Mapping[str, Value] = {}  # other knobs and their values, without which it does nothing
    variations: tuple[Variation, ...] | None = None  # to try on the best candidate; None: every value; (): none
    without: Value | None = None  # the value that leaves out a pass of the engine's, for repairs; None: it is no pass


class Seed(NamedTuple):
    """A point of the space that the engine would try, and why. Knobs that it does not name are left alone."""

    label: str  # added to the engine's name; "": the name alone
    rationale: str
    point: Mapping[str, Value] = {}


class Space(NamedTuple):
    """Everything that an engine can do with a model; nothing: it cannot run it."""

    knobs: tuple[Knob, ...] = ()
    seeds: tuple[Seed, ...] = ()  # in the order in which the engine would try them
    lacks: Mapping[Precision, str] = {}  # lower precisions that it has no seed in, and why


def fitting(knobs: Iterable[Knob], diagnosis: Diagnosis) -> tuple[Knob, ...]:
    """The knobs whose needs are met."""
    return tuple(knob for knob in knobs if all(_MET[need](diagnosis) for need in knob.needs))


def seeded(engine: str, space: Space, diagnosis: Diagnosis) -> list[Candidate]:
    """The seeds as candidates, without those that set a knob which does not fit; sizes vary where they are declared."""
    fit = {knob.name for knob in fitting(space.knobs, diagnosis)}
    start = Settings(engine=engine, shapes=Shapes.DYNAMIC if diagnosis.dynamic else Shapes.STATIC)
    return [_candidate(start, seed, space) for seed in _checked(engine, space) if fit.issuperset(seed.point)]


def _checked(engine: str, space: Space) -> tuple[Seed, ...]:
    values = {knob.name: knob.values for knob in space.knobs}
    for seed in space.seeds:
        for name, value in seed.point.items():
            if value not in values.get(name, ()):
                raise InputError(
                    f"engine '{engine}' has a seed '{seed.label}' with {name} = {value!r}: no knob has it."
                )
    return space.seeds


def _candidate(start: Settings, seed: Seed, space: Space) -> Candidate:
    candidate = Candidate(settings=start, label=f"{start.engine} {seed.label}".strip(), rationale=seed.rationale)
    by_name = {knob.name: knob for knob in space.knobs}
    for name, value in seed.point.items():
        candidate = turned(candidate, by_name[name], value)
    return candidate


def turned(candidate: Candidate, knob: Knob, value: Value) -> Candidate:
    """The candidate with a knob set."""
    if knob.acts is Acts.PROCESS:
        return msgspec.structs.replace(candidate, process=_with(candidate.process, knob.name, value))
    options = {**candidate.settings.options, knob.name: value}
    changed = options if knob.acts is Acts.OPTION else value
    return msgspec.structs.replace(candidate, settings=_with(candidate.settings, knob.acts, changed))


def _with(record: Any, field: str, value: Any) -> Any:
    """The record with another field; text becomes the enum's member, and what is none is refused."""
    return msgspec.convert({**msgspec.structs.asdict(record), field: value}, type(record))


def setting(candidate: Candidate, knob: Knob) -> Any:
    """Where a knob stands in a candidate."""
    if knob.acts is Acts.PROCESS:
        return getattr(candidate.process, knob.name)
    if knob.acts is Acts.OPTION:
        return candidate.settings.options.get(knob.name, knob.values[0])
    return getattr(candidate.settings, knob.acts)


class Turn(NamedTuple):
    """A candidate with one knob turned."""

    knob: str
    value: Value
    candidate: Candidate


def varied(candidate: Candidate, knobs: Sequence[Knob]) -> list[Candidate]:
    """The candidate with one knob turned at a time, as the knobs say what is worth it."""
    return [turn.candidate for turn in turns(candidate, knobs)]


def turns(candidate: Candidate, knobs: Sequence[Knob]) -> list[Turn]:
    """The same, each with what was turned."""
    stands = {knob.name: setting(candidate, knob) for knob in knobs}
    return [
        Turn(
            knob.name,
            variation.value,
            msgspec.structs.replace(
                turned(candidate, knob, variation.value),
                label=f"{candidate.label}, {variation.label}",
                rationale=variation.rationale,
            ),
        )
        for knob in knobs
        if all(stands.get(name) == value for name, value in knob.only_with.items())
        for variation in _variations(knob)
        if variation.value != setting(candidate, knob)
    ]


def _variations(knob: Knob) -> tuple[Variation, ...]:
    if knob.variations is not None:
        return knob.variations
    labels = [f"{knob.name} = {value}" for value in knob.values]
    whys = [f"the best so far with {label}: {knob.why}" for label in labels]
    return tuple(map(Variation, knob.values, labels, whys))


def options_of(knobs: Iterable[Knob]) -> dict[str, tuple[Value, ...] | type]:
    """The options among the knobs, and the values or the type that each takes."""
    options = [knob for knob in knobs if knob.acts is Acts.OPTION]
    return {knob.name: bool if isinstance(knob.values[0], bool) else knob.values for knob in options}


# ---- knobs that several engines have --------------------------------------------------------------------------------

CHANNELS_LAST = Knob(
    "memory_format",
    Acts.MEMORY_FORMAT,
    (MemoryFormat.PRESERVE, MemoryFormat.CHANNELS_LAST),
    "convolutions often run faster on channels-last memory",
    needs=(Need.IMAGES,),
    variations=(
        Variation(MemoryFormat.CHANNELS_LAST, "channels_last", "the best so far, convolutions on channels-last memory"),
    ),
)


def precision_knob(lacks: Mapping[Precision, str]) -> Knob:
    """The precisions but those that are lacking; none but the model's own is tried unless the user allows it."""
    values = tuple(precision for precision in Precision if precision not in lacks)
    why = "less memory traffic, more arithmetic per instruction"
    return Knob("precision", Acts.PRECISION, values, why, risk=Risk.NUMERICS, variations=())
