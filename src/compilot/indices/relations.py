"""Choices by a comparison: `where(x < 0, x + n, x)`, `x.masked_fill(x == -100, 0)`, `x[x == -100] = 0`.

In: the step that chooses, all steps before it. Out: the set of its numbers, each side narrowed by what the comparison
says of it. Covered: a tensor compared with one number; a side that is the compared tensor itself, or is made from it by
adding, subtracting or clamping. Not covered: comparisons of two tensors; then both sides count as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from compilot._torch.optrace import Known, Ref, Step
from compilot.indices.rules import Of, result
from compilot.indices.sets import EVERY, Numbers, joined, within, without

CHOICES = frozenset({"where", "masked_fill", "index_put"})
_LOW, _HIGH = EVERY[0]
_MADE_BY = frozenset({"add", "sub", "clamp", "clamp_min", "clamp_max", "remainder", "_to_copy", "neg", "mul"})
Narrow = Callable[[Numbers], Numbers]


def chosen(step: Step, steps: Sequence[Step], of: Of) -> Numbers | None:
    """The set of a choice; None: this step is none."""
    if step.name == "where" and "self" in step.args:
        mask, yes, no = step.args["condition"], step.args["self"], step.args["other"]
    elif step.name == "masked_fill":
        mask, yes, no = step.args["mask"], step.args["value"], step.args["self"]
    elif step.name == "index_put" and not step.args["accumulate"] and len(step.args["indices"]) == 1:
        mask, yes, no = step.args["indices"][0], step.args["values"], step.args["self"]
    else:
        return None
    return joined(*(_narrowed(side, mask, truth, steps, of) for side, truth in ((yes, True), (no, False))))


def _narrowed(side: Any, mask: Any, truth: bool, steps: Sequence[Step], of: Of) -> Numbers:
    """What a side may hold at the places where the mask is true, or where it is not."""
    compared, narrow = _comparison(mask, truth, steps)
    if compared is None or not isinstance(side, Ref):
        return of(side)
    if _origin(side, steps) == compared:
        return narrow(of(side))
    maker = _maker(side, steps)
    if maker is None or maker.name not in _MADE_BY or compared not in maker.args.values():
        return of(side)
    return result(maker, lambda one: narrow(of(one)) if one == compared else of(one))


def _maker(ref: Ref, steps: Sequence[Step]) -> Step | None:
    """The step that made this tensor; None: it is a part or another view of what a step made."""
    step = steps[ref.value] if ref.value >= 0 else None
    return step if step is not None and (step.view, step.shape) == (ref.view, ref.shape) else None


def _origin(ref: Ref, steps: Sequence[Step]) -> Ref:
    """The tensor that this one is a copy of, place by place."""
    while (maker := _maker(ref, steps)) is not None and maker.name == "clone" and isinstance(maker.args["self"], Ref):
        ref = maker.args["self"]
    return ref


def _comparison(mask: Any, truth: bool, steps: Sequence[Step]) -> tuple[Ref | None, Narrow]:
    """The tensor that a mask compares with a number, and what is left of it where the mask has this value."""
    nothing = (None, lambda given: given)
    if not isinstance(mask, Ref) or mask.value < 0:
        return nothing
    step = steps[mask.value]
    if step.name in ("logical_not", "bitwise_not"):
        return _comparison(step.args["self"], not truth, steps)
    compared, number = step.args.get("self"), _number(step.args.get("other"))
    if step.name not in _NARROW or number is None or not isinstance(compared, Ref) or _maker(mask, steps) is None:
        return nothing
    return _origin(compared, steps), _NARROW[step.name if truth else _OPPOSITE[step.name]](number)


def _number(value: Any) -> int | None:
    if isinstance(value, Known) and value.range is not None and value.range.low == value.range.high:
        return value.range.low
    return value if isinstance(value, int) else None


_OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}
_NARROW: dict[str, Callable[[int], Narrow]] = {
    "eq": lambda number: within(number, number),
    "ne": lambda number: lambda given: without(number, given),
    "lt": lambda number: within(_LOW, number - 1),
    "le": lambda number: within(_LOW, number),
    "gt": lambda number: within(number + 1, _HIGH),
    "ge": lambda number: within(number, _HIGH),
}
