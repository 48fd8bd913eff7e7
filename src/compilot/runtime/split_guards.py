"""The two guards of an entry that answers calls in parts: of the calls that it takes, and of what its engine is given.

In: one of them and the entry's `SplitCalls`. Out: the other. An engine that was built for one size takes parts of up to
that size, which are padded; one for all sizes takes parts as it takes whole calls. Refused: a plan whose guard lets
through what cannot be cut, or was not proven. Not covered: the cutting itself (splitting.py).
"""

from __future__ import annotations

import msgspec

from compilot.errors import PlanError
from compilot.records import DimRange, Guard, PaddedInput, Padding, SplitCalls, TensorGuard
from compilot.runtime.padded_guards import built_for, refuse_positions


def taken_in_parts(guard: Guard, split: SplitCalls) -> Guard:
    """The guard of the calls, from that of the padded ones: up to the proven number of rows."""
    return _with_most_rows(guard, split, split.batch.size)


def engine_guard(guard: Guard, padding: Padding | None, split: SplitCalls | None) -> Guard:
    """The guard that the engine was built for, from that of the calls. PlanError: they do not belong together."""
    if split is not None:
        _refuse_other(guard, padding, split)
        guard = guard if padding is None else _with_most_rows(guard, split, split.rows)
    return guard if padding is None else built_for(guard, padding)


def can_be_cut(guard: Guard, paths: set[str]) -> bool:
    """Whether rows of these inputs lie one after the other, so that a part lies as the engine expects it."""
    own = [want for want in guard.tensors if want.path in paths]
    return all(want.order is None or want.order[:1] == (0,) for want in own)


def _with_most_rows(guard: Guard, split: SplitCalls, most: int) -> Guard:
    paths = {one.path for one in split.batch.inputs}

    def replaced(want: TensorGuard) -> TensorGuard:
        if want.path not in paths:
            return want
        low = want.shape[0].min if isinstance(want.shape[0], DimRange) else want.shape[0]
        shape = (DimRange(min=min(low, most), max=most), *want.shape[1:])
        return msgspec.structs.replace(want, shape=shape, stride=None)

    return msgspec.structs.replace(guard, tensors=tuple(map(replaced, guard.tensors)))


def _refuse_other(guard: Guard, padding: Padding | None, split: SplitCalls) -> None:
    """PlanError where the guard lets through what cannot be cut."""
    inputs = {one.path for one in split.batch.inputs}
    known = {want.path: want for want in guard.tensors}
    sizes = [known[path].shape[0] if path in known and known[path].shape else None for path in inputs]
    proven = all(isinstance(size, DimRange) and size.min >= 1 and size.max <= split.batch.size for size in sizes)
    if padding is None:  # a rest may have one row, and nothing fills it up
        proven = proven and all(isinstance(size, DimRange) and size.min == 1 for size in sizes)
    alike = bool(sizes) and all(size == sizes[0] for size in sizes) and all(one.dim == 0 for one in split.batch.inputs)
    outputs = [one.path for one in split.batch.outputs]
    joined = len(set(outputs)) == len(outputs) and not any(one.plus for one in split.batch.outputs)
    if not (proven and alike and joined and 1 <= split.rows < split.min and can_be_cut(guard, inputs)):
        raise PlanError("the plan cuts calls into parts, and its guard takes others; run 'compilot tune' again.")
    if padding is not None and not _fills_parts(padding, split.batch.inputs, split.rows):
        raise PlanError("the plan cuts calls into other parts than it pads; run 'compilot tune' again.")
    if guard.grad_enabled or guard.training:
        raise PlanError("the plan cuts calls with gradients or in train mode, which changes them; tune again.")
    refuse_positions(guard, Padding(dims=(split.batch,)))


def _fills_parts(padding: Padding, inputs: tuple[PaddedInput, ...], rows: int) -> bool:
    """Whether a part of any size up to `rows` is brought to `rows`."""
    wanted = {(one.path, one.dim) for one in inputs}
    return any(
        dim.min == 1 and dim.size == rows and {(one.path, one.dim) for one in dim.inputs} == wanted
        for dim in padding.dims
    )
