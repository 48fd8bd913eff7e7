"""What compiling less would save. In: the stages of one cold compile, the model and its operators. Out: `Saving`s.

Estimates, and said to be. A kept cache directory spares everything after graph capture. Regional compile compiles one
of several like blocks for all of them; blocks without a captured operator do not count: they never ran, or a graph
break made them share the code of another one already. Not covered: blocks that differ only in a plain attribute, which
dynamo would compile one by one.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from torch import nn

from compilot.diagnose.model.repeated_blocks import is_within
from compilot.diagnose.report_records import Saving, StageTime
from compilot.diagnose.timing.spans import Stage
from compilot.modules.likeness import MIN_COPIES, like_blocks

# A warm cache directory spares these; capturing the graph, its guards and loading the code remain.
CACHED = (Stage.AUTOGRAD, Stage.FUSION, Stage.CODEGEN, Stage.CPP, Stage.AUTOTUNE)
_LOADING_S = 0.3  # what looking up and loading cached code costs: 0.2-0.6 s for small models
_WORTH_S = 0.5  # a smaller saving is not worth another compile boundary


class LikeRegions(NamedTuple):
    """Submodules that are alike and were all compiled: one compile could serve all."""

    class_name: str
    paths: tuple[str, ...]
    operator_share: float  # of all captured operators


def savings(model: nn.Module, stages: tuple[StageTime, ...], operators: Counter[str]) -> tuple[Saving, ...]:
    """Every way to compile less that saves something."""
    compiled_s = sum(stage.wall_s for stage in stages if stage.name in {*CACHED, Stage.CAPTURE})
    found = (cache_saving(stages), regional_saving(model, operators, compiled_s))
    return tuple(saving for saving in found if saving is not None)


def cache_saving(stages: tuple[StageTime, ...]) -> Saving | None:
    """What a kept cache directory would spare the next process."""
    spared = sum(stage.wall_s for stage in stages if stage.name in CACHED and not stage.submodule) - _LOADING_S
    if spared <= 0:
        return None
    why = "a kept cache directory spares everything after graph capture; capture, guards and loading remain"
    return Saving(what="kept cache", saves_s=spared, because=f"estimate: {why}")


def regional_saving(model: nn.Module, operators: Counter[str], compiled_s: float) -> Saving | None:
    """Compiling one block of the largest group and using it for all of them."""
    group = next(iter(like_regions(model, operators)), None)
    if group is None:
        return None
    copies = len(group.paths)
    saves_s = compiled_s * group.operator_share * (1 - 1 / copies)
    if saves_s < _WORTH_S:
        return None
    share = f"{group.operator_share * 100:.0f} %"
    what = f"{copies} blocks {group.class_name} ({group.paths[0]} ...) hold {share} of the operators"
    return Saving(what="regional compile", saves_s=saves_s, because=f"estimate: {what}; compiled once, one serves all")


def like_regions(model: nn.Module, operators: Counter[str]) -> list[LikeRegions]:
    """Groups of like blocks by the share of operators in them, largest first; outermost ones only."""
    ran = [
        tuple(block for block in paths if any(is_within(part, block) for part in operators))
        for paths in like_blocks(model)
    ]
    found = [_region(model, paths, operators) for paths in _outermost([p for p in ran if len(p) >= MIN_COPIES])]
    return sorted(found, key=lambda group: -group.operator_share)


def _region(model: nn.Module, paths: tuple[str, ...], operators: Counter[str]) -> LikeRegions:
    inside = sum(n for path, n in operators.items() if any(is_within(path, block) for block in paths))
    return LikeRegions(type(model.get_submodule(paths[0])).__name__, paths, inside / max(1, operators.total()))


def _outermost(groups: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """A part of a repeated block repeats as often as the block: only the block counts."""

    def is_part(group: tuple[str, ...]) -> bool:
        others = [block for other in groups if other is not group for block in other]
        return all(any(is_within(path, block) and path != block for block in others) for path in group)

    return [group for group in groups if not is_part(group)]
