"""The two guards of a padded entry: of the calls that it takes, and of the one size that its engine was built for.

In: one of them and the entry's `Padding`. Out: the other. Refused: a guard that lets through what the padding cannot
serve. Also the padding to smaller sizes than the proven ones. Not covered: the padding itself (padding.py).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from compilot.errors import PlanError
from compilot.inputs.layouts import strides_of
from compilot.records import DimRange, Guard, PaddedDim, PaddedInput, Padding, SizeOf, TensorGuard


def ending_at(padding: Padding, sizes: Sequence[int]) -> Padding:
    """The padding to these sizes, one for each of its dimensions. What is larger than proven is a mistake of ours."""
    assert all(dim.min <= size <= dim.size for dim, size in zip(padding.dims, sizes, strict=True))
    dims = [msgspec.structs.replace(dim, size=size) for dim, size in zip(padding.dims, sizes, strict=True)]
    return msgspec.structs.replace(padding, dims=tuple(dims))


def taken_by(built: Guard, padding: Padding) -> Guard:
    """The guard of the calls that are padded for an engine which was built for this one. PlanError: there is none."""
    refuse_positions(built, padding)
    ranges = {(one.path, one.dim): DimRange(min=dim.min, max=dim.size) for dim in padding.dims for one in dim.inputs}

    def widened(want: TensorGuard) -> TensorGuard:
        shape = tuple(ranges.get((want.path, dim), size) for dim, size in enumerate(want.shape))
        return want if shape == want.shape else msgspec.structs.replace(want, shape=shape, stride=None)

    return msgspec.structs.replace(built, tensors=tuple(map(widened, built.tensors)))


def built_for(guard: Guard, padding: Padding) -> Guard:
    """The guard that the engine was built for, from that of the calls. PlanError: the two do not belong together."""
    refuse_positions(guard, padding)
    known = {want.path: want for want in guard.tensors}
    sizes: dict[tuple[str, int], int] = {}
    for dim in padding.dims:
        for one in dim.inputs:
            _refuse_other(known.get(one.path), one, dim)
            sizes[one.path, one.dim] = dim.size
    if guard.grad_enabled or guard.training:
        raise PlanError("the plan pads calls with gradients or in train mode, which changes them; tune again.")

    def fixed(want: TensorGuard) -> TensorGuard:
        shape = tuple(sizes.get((want.path, dim), size) for dim, size in enumerate(want.shape))
        static = [size for size in shape if isinstance(size, int)]
        stride = strides_of(static, want.order) if len(static) == len(shape) and want.stride is None else want.stride
        return want if shape == want.shape else msgspec.structs.replace(want, shape=shape, stride=stride)

    return msgspec.structs.replace(guard, tensors=tuple(map(fixed, guard.tensors)))


def refuse_positions(guard: Guard, padding: Padding) -> None:
    """PlanError where indices are positions along a padded size: -1 would be the end of the padding."""
    padded = {(one.path, one.dim) for dim in padding.dims for one in dim.inputs}
    for want in guard.tensors:
        if want.index is None:
            continue
        ends = [want.index.low, want.index.high, *(end for part in want.index.columns for end in (part.low, part.high))]
        if any(isinstance(end, SizeOf) and (end.path, end.dim) in padded for end in ends):
            why = f"the indices in {want.path} are positions along a size that the plan pads"
            raise PlanError(f"{why}, so others would be meant; run 'compilot tune' again.")


def _refuse_other(want: TensorGuard | None, one: PaddedInput, dim: PaddedDim) -> None:
    """PlanError where the guard lets through what the padding cannot serve."""
    size = want.shape[one.dim] if want is not None and 0 <= one.dim < len(want.shape) else None
    if dim.min < 1 or not isinstance(size, DimRange) or size.min < dim.min or size.max > dim.size:
        what = f"{one.path} dimension {one.dim} to {dim.size}"
        raise PlanError(f"the plan pads {what}, and its guard takes other sizes there; run 'compilot tune' again.")
