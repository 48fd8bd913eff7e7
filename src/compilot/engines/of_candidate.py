"""Engines of a candidate: one, or one for each region and one for the rest.

In: a candidate. Out: the names of its engines, and what the rest of compilot must know of them together: it needs a
compiler if one of them does, it stands alone if all of them do. Not covered: what a region is (modules/regions.py).
"""

from __future__ import annotations

import msgspec

from compilot.engines import registry
from compilot.engines.traits import TORCH, BuildCost, EngineTraits, InstructionSets
from compilot.records import Candidate, CompiledWay, OptimizerWay, Settings, StepParts

_STRICTEST = (InstructionSets.EXACT, InstructionSets.AS_COMPILED, InstructionSets.AT_RUN_TIME)


def settings_of(candidate: Candidate) -> tuple[Settings, ...]:
    """Of the rest of the model first, then of each region."""
    return candidate.settings, *(region.settings for region in candidate.regions)


def engines_of(candidate: Candidate) -> tuple[str, ...]:
    """Every engine that the candidate runs with, once each; that of the regions before that of the rest."""
    rest, *regions = settings_of(candidate)
    return tuple(dict.fromkeys([*(settings.engine for settings in (*regions, rest)), *_of_step(candidate.step)]))


def _of_step(step: StepParts) -> tuple[str, ...]:
    """The engine of what a training step compiles besides the model."""
    loss = step.compiled not in (CompiledWay.NOTHING, CompiledWay.REGIONS)
    optimizer = step.optimizer in (OptimizerWay.COMPILED, OptimizerWay.KERNEL)
    return ("inductor",) if loss or optimizer or step.compiled_autograd else ()


def is_eager_only(candidate: Candidate) -> bool:
    """Whether everything runs the model's own operators, in whatever layout."""
    return engines_of(candidate) == ("eager",)


def traits_of(candidate: Candidate) -> EngineTraits:
    """What the candidate's engines are like together."""
    every = [registry.traits(name) for name in engines_of(candidate)]
    if len(every) == 1:
        return every[0]
    return msgspec.structs.replace(
        EngineTraits(),
        build_cost=BuildCost(max(one.build_cost for one in every)),
        compiler_at_build=any(one.compiler_at_build for one in every),
        compiler_at_start=any(one.compiler_at_start for one in every),
        cache_folder=next((one.cache_folder for one in every if one.cache_folder), ""),
        through_dynamo=any(one.through_dynamo for one in every),
        standalone=all(one.standalone for one in every),
        keeps_checks=all(one.keeps_checks for one in every),
        instruction_sets=next(kind for kind in _STRICTEST if any(one.instruction_sets is kind for one in every)),
        package=TORCH if all(one.package == TORCH for one in every) else "",
        warm_share=max(one.warm_share for one in every),
    )


def compiled_settings(candidate: Candidate) -> Settings | None:
    """The first settings that go through torch.compile, whose starts are noted; None: none do."""
    every = settings_of(candidate)
    return next((one for one in every if registry.traits(one.engine).through_dynamo), None)


def needs_compiler(candidate: Candidate) -> bool:
    """Does it compile at every start?"""
    return traits_of(candidate).compiler_at_start
