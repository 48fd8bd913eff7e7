"""Repeated blocks, and what compiling one of them instead of all would save.

In: a model and how its captured operators spread over submodules. Out: groups of submodules that are alike, and a
`Saving` for regional compile. Alike: same class, same parameter names, shapes and dtypes. Blocks without a captured
operator do not count: they never ran, or a graph break made them share the code of another one already. Not covered:
blocks that differ only in a plain attribute, which dynamo would compile one by one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

from torch import nn

from compilot.diagnose.report_records import Saving

MIN_COPIES = 2
WORTH_S = 0.5  # a smaller saving is not worth another compile boundary


class Repeats(NamedTuple):
    """Submodules that are alike: one compile could serve all."""

    class_name: str
    paths: tuple[str, ...]
    operator_share: float  # of all captured operators


def repeated_blocks(model: nn.Module, operators: Counter[str]) -> list[Repeats]:
    """Groups of like submodules by the share of operators in them, largest first; outermost ones only."""
    groups: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for path, module in model.named_modules():
        is_block = path and any(True for _ in module.children())  # a single layer is none
        if is_block and any(_within(part, path) for part in operators):
            groups[_likeness(module)].append(path)
    total = max(1, operators.total())
    found = [_group(model, tuple(paths), operators, total) for paths in groups.values() if len(paths) >= MIN_COPIES]
    return sorted(_outermost(found), key=lambda group: -group.operator_share)


def regional_saving(model: nn.Module, operators: Counter[str], compiled_s: float) -> Saving | None:
    """Compiling one block of the largest group and using it for all of them."""
    group = next(iter(repeated_blocks(model, operators)), None)
    if group is None:
        return None
    copies = len(group.paths)
    saves_s = compiled_s * group.operator_share * (1 - 1 / copies)
    if saves_s < WORTH_S:
        return None
    share = f"{group.operator_share * 100:.0f} %"
    what = f"{copies} blocks {group.class_name} ({group.paths[0]} ...) hold {share} of the operators"
    return Saving(what="regional compile", saves_s=saves_s, because=f"estimate: {what}; compiled once, one serves all")


def _likeness(module: nn.Module) -> tuple[object, ...]:
    return (type(module), tuple((name, tuple(p.shape), p.dtype) for name, p in module.named_parameters()))


def _group(model: nn.Module, paths: tuple[str, ...], operators: Counter[str], total: int) -> Repeats:
    inside = sum(n for path, n in operators.items() if any(_within(path, block) for block in paths))
    return Repeats(type(model.get_submodule(paths[0])).__name__, paths, inside / total)


def _within(path: str, block: str) -> bool:
    return path == block or path.startswith(block + ".")


def _outermost(groups: list[Repeats]) -> list[Repeats]:
    """A part of a repeated block repeats as often as the block: only the block counts."""

    def is_part(group: Repeats) -> bool:
        others = [block for other in groups if other is not group for block in other.paths]
        return all(any(_within(path, block) and path != block for block in others) for path in group.paths)

    return [group for group in groups if not is_part(group)]
