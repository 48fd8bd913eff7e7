"""Calls that a proof of padding asks with: other rows, other orders, other masks.

In: a call and what is to be changed. Out: another call, with memory of its own where it differs.
Not covered: the padding itself (runtime/padding.py) and what is put into it (padded_answers.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import torch

from compilot._tree import Call, call_leaves
from compilot.inputs.values import map_tensors
from compilot.records import MaskRule, PaddedInput
from compilot.workload.padding import SizeGroup

RULES = (MaskRule.ONES, MaskRule.FIRST, MaskRule.SOME, MaskRule.ANY)  # each allows more than the one before


def row_count(call: Call, group: SizeGroup) -> int:
    """Rows of the batch."""
    paths = {place.path for place in group.places}
    return next(int(leaf.value.shape[0]) for leaf in call_leaves(call) if leaf.path in paths)


def with_rows(call: Call, group: SizeGroup, rows: Sequence[int]) -> Call:
    """The call with these rows of its batch."""
    paths = {place.path for place in group.places}
    index = torch.tensor(rows)
    return map_tensors(call, lambda path, t: t.index_select(0, index.to(t.device)) if path in paths else t)


def among_others(call: Call, foreign: Call, group: SizeGroup, kept: int, masks: Collection[str]) -> Call:
    """The call with one of its own rows among foreign ones, whose masks hide a part of them."""
    paths = {place.path for place in group.places}
    others = {leaf.path: leaf.value for leaf in call_leaves(foreign)}

    def mix(path: str, tensor: torch.Tensor) -> torch.Tensor:
        if path not in paths:
            return tensor
        new: torch.Tensor = others[path].clone()
        if path in masks and new.dim() > 1:
            new[..., (new.shape[-1] + 1) // 2 :] = 0
        new[kept] = tensor[kept]
        return new

    return map_tensors(call, mix)


def unmasked(call: Call, masks: Sequence[PaddedInput]) -> Call:
    """The call with masks that mask nothing."""
    paths = {one.path for one in masks}
    return map_tensors(call, lambda path, tensor: torch.ones_like(tensor) if path in paths else tensor)


def filled(call: Call, where: str, number: int) -> Call:
    """The call with this number everywhere in one input."""
    return map_tensors(call, lambda path, tensor: torch.full_like(tensor, number) if path == where else tensor)


def combined(call: Call, masks: Sequence[tuple[str, int, MaskRule]]) -> Iterator[Call]:
    """Calls with all combinations of masks that these rules allow; masks: path, dimension and rule of each."""
    if not masks:
        yield call
        return
    (path, dim, rule), *rest = masks
    for one in allowed_by(call, path, dim, rule):
        yield from combined(one, rest)


def allowed_by(call: Call, where: str, dim: int, rule: MaskRule) -> Iterator[Call]:
    """Calls with masks that this rule allows, from all ones on."""
    yield unmasked(call, [PaddedInput(path=where, dim=dim)])
    for each in RULES[1 : RULES.index(rule) + 1]:
        yield from masked_by(call, where, dim, each)


def masked_by(call: Call, where: str, dim: int, rule: MaskRule) -> Iterator[Call]:
    """Calls with masks that this rule allows and the rule before it does not."""

    def one(fill: slice) -> Call:
        def mask(path: str, tensor: torch.Tensor) -> torch.Tensor:
            if path != where:
                return tensor
            new = torch.ones_like(tensor)
            first = new.narrow(0, 0, 1) if dim else new
            first.movedim(dim, 0)[fill] = 0
            return new

        return map_tensors(call, mask)

    if rule is MaskRule.FIRST:
        yield one(slice(1, None))
        yield one(slice(1, None, 2))
    elif rule is MaskRule.SOME:
        yield one(slice(0, -1))
        yield one(slice(0, 1))
    else:
        yield one(slice(None))
