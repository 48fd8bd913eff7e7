"""The same proof on the engine itself: does the callable that will serve padded calls give what eager gives?

In: the workload, a callable that takes calls of the built sizes only, the `Padding` that ends at these sizes. Out: a
`PaddingLeak`, or None. For sizes below the built ones, with each kind of mask that may be padded: what is in the
padding changes not a bit of the answer, and the answer is eager's for the call as it was, by the rules of the gate
(closeness.py). An engine may leak where the model does not: 8-bit scales that are found over the whole tensor, kernels
that read beyond what is masked.
Not covered: calls of the built sizes themselves, which the gate judges.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

import torch

from compilot._tree import Call, call_leaves
from compilot.measure.closeness import compare
from compilot.measure.padded_answers import Asked, Leak, lively
from compilot.measure.padded_calls import allowed_by, unmasked
from compilot.measure.reference import coarsest_dtype, too_large_for_double
from compilot.records import PaddedDim, Padding, PaddingLeak
from compilot.runtime.padding import allows
from compilot.workload.outputs import Flat
from compilot.workload.padding import Sized, SizeGroup
from compilot.workload.unit import Unit
from compilot.workload.workload import Workload


class Pair(NamedTuple):
    """A size, and the one that the engine was built for."""

    size: int
    to: int


def check_engine(
    fn: Callable[..., Any], workload: Workload, padding: Padding, tolerance: float | None = None
) -> PaddingLeak | None:
    """Where padded calls of fn are not what eager gives; tolerance: as in closeness.py."""
    judge = AnswerJudge(workload, tolerance)
    sized, fixed = lively(workload.sized, judge.eager)
    dims = {_group(sized, dim): dim for dim in padding.dims}
    engine, spared = Asked(workload.unit(fn)), sized.masks | fixed
    for group, sizes in _tried(dims):
        pair = Pair(sizes[group], dims[group].size)
        try:
            for call in _with_masks(sized.at(_example(sized, dims) | sizes, seed=7), padding, sized.masks):
                _ask(engine, judge, call, padding, pair, spared)
        except Leak as leak:
            names = tuple(map(str, group.places))
            return PaddingLeak(inputs=names, why=leak.why, output=leak.output, size=pair.size, padded_to=pair.to)
    return None


def _example(sized: Sized, dims: Mapping[SizeGroup, PaddedDim]) -> dict[SizeGroup, int]:
    return {group: min(group.size, dims[group].size) if group in dims else group.size for group in sized.groups}


def _group(sized: Sized, dim: PaddedDim) -> SizeGroup:
    places = {(one.path, one.dim) for one in dim.inputs}
    return next(group for group in sized.groups if {(p.path, p.dim) for p in group.places} == places)


def _tried(dims: Mapping[SizeGroup, PaddedDim]) -> Iterator[tuple[SizeGroup, dict[SizeGroup, int]]]:
    """Each size at its smallest, in the middle and one below the built one, the others built; then all at once."""
    built = {group: dim.size for group, dim in dims.items()}
    for group, dim in dims.items():
        for size in sorted({dim.min, (dim.min + dim.size) // 2, dim.size - 1}):
            if dim.min <= size < dim.size:
                yield group, built | {group: size}
    smaller = {group: (dim.min + dim.size) // 2 for group, dim in dims.items()}
    if len(dims) > 1 and smaller != built:
        yield next(group for group in dims if smaller[group] != built[group]), smaller


def _with_masks(call: Call, padding: Padding, masks: Collection[str]) -> Iterator[Call]:
    """The call as it is and with other masks, of those that are padded."""
    ruled = [one for dim in padding.dims for one in dim.inputs if one.path in masks and one.value is not None]
    plain = unmasked(call, ruled)
    for one in (call, *(made for mask in ruled for made in allowed_by(plain, mask.path, mask.dim, mask.mask))):
        given = {leaf.path: leaf.value for leaf in call_leaves(one)}
        if all(allows(mask.mask, given[mask.path], mask.dim) for mask in ruled):
            yield one


def _ask(engine: Asked, judge: AnswerJudge, call: Call, padding: Padding, sizes: Pair, spared: Collection[str]) -> None:
    usual = engine.padded(call, padding)
    for poison in (0, 1):
        found = engine.padded(call, padding, poison=poison, spared=spared)
        engine.same_bits(usual, found, sizes, "the padding holds other values")
    judge.refuse_other(usual, call, sizes)


class AnswerJudge:
    """Eager's own answers, and how far others may be from them."""

    def __init__(self, workload: Workload, tolerance: float | None) -> None:
        unit = workload.unit(workload.model)
        self.eager = Asked(unit)
        self._exact = None if too_large_for_double(workload.model) else _in_double(unit)
        self._coarsest: torch.dtype = coarsest_dtype(workload.model)
        self._tolerance = tolerance

    def refuse_other(self, found: Flat, call: Call, sizes: Pair, where: str = "") -> None:
        """Leak where an answer is not eager's to this call; where: the size in words, in place of the padding's."""
        where = where or f"at size {sizes.size}, padded to {sizes.to}"
        eager = self.eager.answer(call)
        exact = self._exact.answer(call).tensors if self._exact is not None else {}
        self.eager.refuse_other_structure(eager, found, sizes)
        for path, tensor in eager.tensors.items():
            close = compare(
                found.tensors[path],
                tensor,
                exact.get(path),
                case="padded",
                output=path,
                typical=0.0,
                coarsest=self._coarsest,
                tolerance=self._tolerance,
            )
            if not close.check.passed or close.non_finite:
                why = f"{path} of the engine is not eager's {where}: "
                raise Leak(why + (close.check.why or close.non_finite), path)


def _in_double(unit: Unit) -> Asked | None:
    try:
        return Asked(unit.in_double())
    except Exception:  # the gate says so in a note of its own
        return None
