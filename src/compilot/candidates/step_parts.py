"""Candidates for a training step, by the parts of a step. In: parts. Out: candidates with a label and a reason; what a
candidate is without one of its parts. Pure; no torch.

One word per part, the same in labels, reasons and reports. Not covered: which ones are asked for (training.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from compilot.engines.compiler_options import ONEDNN_PRODUCTS
from compilot.records import (
    Candidate,
    CompiledWay,
    MemoryFormat,
    OptimizerWay,
    Precision,
    ProcessSettings,
    Region,
    Settings,
    StepParts,
)

COMPILED_NAMES = {
    CompiledWay.MODEL: "compiled model",
    CompiledWay.REGIONS: "compiled blocks",
    CompiledWay.WITH_LOSS: "compiled model and loss",
    CompiledWay.ONE_GRAPH: "one graph for forward and backward",
}
OPTIMIZER_NAMES = {
    OptimizerWay.LOOP: "for-loop optimizer",
    OptimizerWay.FOREACH: "foreach optimizer",
    OptimizerWay.FUSED: "fused optimizer",
    OptimizerWay.COMPILED: "compiled optimizer",
    OptimizerWay.KERNEL: "compiled optimizer kernel",
}
CPP_WRAPPER = "cpp_wrapper"
OPTION_NAMES = {CPP_WRAPPER: CPP_WRAPPER, ONEDNN_PRODUCTS: "oneDNN products"}
COMPILES_OPTIMIZER = (OptimizerWay.COMPILED, OptimizerWay.KERNEL)


class Part(NamedTuple):
    """One thing that is set in a candidate."""

    name: str
    without: Candidate  # the same without it
    going: tuple[str, ...] = ()  # the compiler's options that go with it: nothing is left that is compiled

    @property
    def together(self) -> str:
        """Everything that the other candidate is without: "compiled model + oneDNN products"."""
        return " + ".join([self.name, *self.going])


def step_candidate(
    rationale: str,
    step: StepParts,
    *,
    engine: str,
    regions: tuple[str, ...] = (),
    options: dict[str, Any] | None = None,
    memory_format: MemoryFormat = MemoryFormat.PRESERVE,
    process: ProcessSettings = ProcessSettings(),  # noqa: B008  # frozen
) -> Candidate:
    """A candidate of these parts; engine: who compiles, where something is compiled."""
    settings = Settings(memory_format=memory_format)
    if compiles(step):
        settings = Settings(engine=engine, options=dict(options or {}), memory_format=memory_format)
    places = regions if step.compiled is CompiledWay.REGIONS else ()
    placed = tuple(Region(selector=one, settings=settings) for one in places)
    made = Candidate(settings=settings, label="", rationale=rationale, regions=placed, process=process, step=step)
    return msgspec.structs.replace(made, label=label_of(made))


def compiles(step: StepParts) -> bool:
    """Whether any part of the step is compiled."""
    return step.compiled is not CompiledWay.NOTHING or step.optimizer in COMPILES_OPTIMIZER


def label_of(candidate: Candidate) -> str:
    """ "compiled model + fused optimizer + channels_last"."""
    return " + ".join(words_of(candidate)) or "eager"


def words_of(candidate: Candidate) -> list[str]:
    """One word or two for each part that is set."""
    return [part.name for part in parts_of(candidate)]


def parts_of(candidate: Candidate) -> Iterator[Part]:
    """Everything that is set in a candidate, and the candidate without it; what makes most of a difference first."""
    step, settings, process = candidate.step, candidate.settings, candidate.process

    def changed(**what: Any) -> Candidate:
        return _relabelled(candidate, msgspec.structs.replace(step, **what))

    if step.compiled in COMPILED_NAMES:
        plain = changed(compiled=CompiledWay.NOTHING, compiled_autograd=False, memory_budget=None)
        plain = msgspec.structs.replace(plain, regions=())
        yield Part(COMPILED_NAMES[step.compiled], plain, _going(candidate, plain))
    if step.compiled_autograd:
        yield Part("compiled autograd", changed(compiled_autograd=False))
    if step.optimizer in OPTIMIZER_NAMES:
        plain = changed(optimizer=OptimizerWay.AS_IS)
        yield Part(OPTIMIZER_NAMES[step.optimizer], plain, _going(candidate, plain))
    for option, name in OPTION_NAMES.items():
        if settings.options.get(option):
            yield Part(name, _without_option(candidate, option))
    if settings.memory_format is MemoryFormat.CHANNELS_LAST:
        yield Part("channels_last", _with_settings(candidate, memory_format=MemoryFormat.PRESERVE))
    if step.memory_budget is not None:
        yield Part(f"{step.memory_budget:.0%} of the activations kept", changed(memory_budget=None))
    if step.checkpoint:
        yield Part("checkpointed blocks", changed(checkpoint=""))
    if step.autocast is not Precision.AS_IS:
        yield Part(f"{step.autocast} autocast", changed(autocast=Precision.AS_IS))
    if process.threads is not None:
        name = f"{process.threads} thread{'s' if process.threads > 1 else ''}"
        yield Part(name, msgspec.structs.replace(candidate, process=_process(process, threads=None)))
    if process.keep_memory:
        yield Part("memory kept", msgspec.structs.replace(candidate, process=_process(process, keep_memory=None)))


def _going(candidate: Candidate, without: Candidate) -> tuple[str, ...]:
    own, left = candidate.settings.options, without.settings.options
    return tuple(name for option, name in OPTION_NAMES.items() if own.get(option) and not left.get(option))


def _process(process: ProcessSettings, **what: Any) -> ProcessSettings:
    return msgspec.structs.replace(process, **what)


def _relabelled(candidate: Candidate, step: StepParts) -> Candidate:
    """With other parts; nothing is left of the compiler's settings where nothing is compiled any more."""
    settings = candidate.settings if compiles(step) else Settings(memory_format=candidate.settings.memory_format)
    return msgspec.structs.replace(candidate, step=step, settings=settings)


def _without_option(candidate: Candidate, left_out: str) -> Candidate:
    options = {name: value for name, value in candidate.settings.options.items() if name != left_out}
    return _with_settings(candidate, options=options)


def _with_settings(candidate: Candidate, **what: Any) -> Candidate:
    settings = msgspec.structs.replace(candidate.settings, **what)
    regions = tuple(msgspec.structs.replace(region, settings=settings) for region in candidate.regions)
    return msgspec.structs.replace(candidate, settings=settings, regions=regions)
