"""Is padding harmless? Proven in float64, or refused with the output and the size at which it leaks.

In: a workload with declared dynamic dimensions. Out: a `PaddingProof`: which sizes may be padded, with what, and how
the outputs are cut back; and why the others may not.
The batch is padded by repeating its last row. Proof: each row alone gives what it gives among others, in any order and
more than once, and not a bit of its answer changes with the values of other rows. Any other size is padded at its end
with fixed values. Proof, at batch 1 and 2: what is in the padded positions (two different kinds of finite numbers;
masks hold their padding) changes not a bit of the answer, and the answer is that of the call as it was. Which masks
that holds for is looked for, from all of them to only ones (`MaskRule`). Which outputs follow which size is learned by
running three sizes. Refused as well: models that change their inputs or buffers, that draw random numbers, or whose
outputs cannot be cut back. Not covered: float masks that are added to scores; the engine that runs the padded call,
which is asked the same by padding_engine.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from compilot._tree import Call
from compilot.measure.padded_answers import Asked, Leak, layouts, learn_outputs, lively
from compilot.measure.padded_calls import among_others, masked_by, row_count, unmasked, with_rows
from compilot.measure.padding_advice import with_advice
from compilot.measure.reference import too_large_for_double
from compilot.records import (
    MaskRule,
    OutputLayout,
    PaddedDim,
    PaddedInput,
    PaddedOutput,
    Padding,
    PaddingLeak,
    PaddingProof,
)
from compilot.workload.padding import Sized, SizeGroup
from compilot.workload.workload import Workload

FIRST_SIZES = 5  # above the smallest: enough for a kernel of 3 at both ends, and cheap
ROWS = 3
_RULES = (MaskRule.ONES, MaskRule.FIRST, MaskRule.SOME, MaskRule.ANY)  # each allows more than the one before


def prove_padding(workload: Workload) -> PaddingProof:
    """Which of the declared sizes may be padded."""
    sized = workload.sized
    if not sized.groups:
        return PaddingProof()
    if workload.grad:
        return _none_of(sized, "calls with gradients are not padded")
    if size := too_large_for_double(workload.model):
        return _none_of(sized, f"the model ({size / 1e9:.1f} GB) is too large to be proven in float64 on this machine")
    try:
        unit = workload.unit(workload.model).in_double()
    except Exception as error:
        why = f"the model cannot be copied in double precision ({type(error).__name__}), so nothing can be proven"
        return _none_of(sized, why)
    proof = with_advice(_Prover(sized, Asked(unit)).proof(), workload)
    if workload.model.training and proof.padding is not None:
        return _none_of(sized, "the model is in train mode, in which calls are not padded; call .eval() on it")
    return proof


def _none_of(sized: Sized, why: str) -> PaddingProof:
    return PaddingProof(refused=tuple(_leak(group, Leak(why)) for group in sized.groups))


def _leak(group: SizeGroup, leak: Leak) -> PaddingLeak:
    return PaddingLeak(
        inputs=tuple(map(str, group.places)),
        why=leak.why,
        output=leak.output,
        size=leak.size,
        padded_to=leak.padded_to,
    )


class _Pair(NamedTuple):
    """A size and what it is padded to."""

    size: int
    to: int


class _Prover:
    """One proof: the groups one after the other, then together."""

    def __init__(self, sized: Sized, asked: Asked) -> None:
        self._sized, self._fixed = lively(sized, asked)
        self._asked = asked
        self._example = {group: group.size for group in sized.groups}
        self._layouts: tuple[OutputLayout, ...] = ()

    def proof(self) -> PaddingProof:
        proven: dict[SizeGroup, PaddedDim] = {}
        refused: list[PaddingLeak] = []
        for group in self._sized.groups:
            try:
                proven[group] = self._rows(group) if group.is_rows else self._length(group)
                self._asked.refuse_changes(self._at({}))
            except Leak as leak:
                refused.append(_leak(group, leak))
        if proven:
            try:
                self._together(proven)
            except Leak as leak:
                return PaddingProof(refused=(*refused, *(_leak(group, leak) for group in proven)))
        padding = Padding(dims=tuple(proven.values()), layouts=self._layouts) if proven else None
        return PaddingProof(padding=padding, refused=tuple(refused))

    # ---- what is common ----------------------------------------------------------------------------------------------

    def _outputs(self, group: SizeGroup) -> tuple[PaddedOutput, ...]:
        """Dimensions of outputs that follow the size; also: the model repeats itself."""
        low = min(max(group.min, 2), group.max)  # a model may do something else at 1
        sizes = dict.fromkeys((low, min(low + 1, group.max), min(low + 3, group.max)))
        outputs = learn_outputs({size: self._asked.whole(self._at({group: size})).output for size in sizes})
        self._layouts = layouts(self._asked.whole(self._at({g: min(max(g.size, 2), g.max) for g in self._example})))
        return outputs

    def _at(self, sizes: Mapping[SizeGroup, int], seed: int = 0) -> Call:
        return self._sized.at(self._example | dict(sizes), seed)

    def _pairs(self, group: SizeGroup) -> Iterator[_Pair]:
        """From the smallest up; the largest once, since a model may do something else there."""
        to = min(group.max, group.min + 2 * FIRST_SIZES)
        for size in (group.min, group.min + 1, group.min + FIRST_SIZES):
            if size < to:
                yield _Pair(size, to)
        if group.size < group.max and (group.size, group.max) != (group.min, to):
            yield _Pair(group.size, group.max)

    # ---- batch -------------------------------------------------------------------------------------------------------

    def _rows(self, group: SizeGroup) -> PaddedDim:
        outputs = self._outputs(group)
        if odd := next((one for one in outputs if one.plus), None):
            raise Leak(f"the size of {odd.path} is not a multiple of the batch", odd.path)
        inputs = tuple(PaddedInput(path=place.path, dim=0) for place in group.places)
        dim = PaddedDim(min=group.min, size=group.max, inputs=inputs, outputs=outputs)
        rows = min(ROWS, group.max)
        base, foreign = self._at({group: rows}, seed=1), self._at({group: rows}, seed=2)
        for number in range(rows if group.min == 1 else 0):
            self._row_among_others(group, outputs, base, foreign, number)
        for pair in self._pairs(group):
            self._padded_alike(self._at({group: pair.size}, seed=3), _with_size(dim, pair.to), pair)
        if group.min == 1:
            self._other_orders(group, outputs, base, rows)
        return dim

    def _row_among_others(
        self, group: SizeGroup, outputs: Sequence[PaddedOutput], base: Call, foreign: Call, number: int
    ) -> None:
        """One row: the same alone, among these and among those."""
        pair = _Pair(1, row_count(base, group))
        mixed = among_others(base, foreign, group, number, self._sized.masks)
        found = [self._asked.answer(call) for call in (base, mixed)]
        these, those = (self._asked.rows_of(one, outputs, number, pair.to) for one in found)
        self._asked.same_bits(these, those, pair, "other rows of the batch hold other values")
        alone = self._asked.answer(with_rows(base, group, [number]))
        self._asked.alike(these, alone, pair, "the row is not alone in its batch")

    def _other_orders(self, group: SizeGroup, outputs: Sequence[PaddedOutput], base: Call, rows: int) -> None:
        whole = self._asked.answer(base)
        for order in ([*range(1, rows), 0], [0, *range(rows), rows - 1]):
            if len(order) <= group.max:
                found = self._asked.answer(with_rows(base, group, order))
                for place, number in enumerate(order):
                    one = self._asked.rows_of(found, outputs, place, len(order))
                    other = self._asked.rows_of(whole, outputs, number, rows)
                    self._asked.alike(one, other, _Pair(rows, len(order)), "rows are in another order or twice there")

    # ---- any other size ----------------------------------------------------------------------------------------------

    def _length(self, group: SizeGroup) -> PaddedDim:
        outputs = self._outputs(group)
        inputs = tuple(
            PaddedInput(path=place.path, dim=place.dim, value=self._sized.values[place.path]) for place in group.places
        )
        dim = PaddedDim(min=group.min, size=group.max, inputs=inputs, outputs=outputs)
        for sizes in self._batches(group):
            for pair in self._pairs(group):
                call = unmasked(self._at({**sizes, group: pair.size}, seed=4), self._masks(group))
                self._poisoned(call, _with_size(dim, pair.to), pair)
        found = {place.path: self._rule(place.path, place.dim, dim, group) for place in self._masks(group)}
        ruled = tuple(msgspec.structs.replace(one, mask=found.get(one.path, MaskRule.ANY)) for one in inputs)
        return msgspec.structs.replace(dim, inputs=ruled)

    def _batches(self, group: SizeGroup) -> list[dict[SizeGroup, int]]:
        """Batches of one and two: some models do without the mask at one."""
        others = [one for one in self._sized.groups if one.is_rows and one is not group]
        if not others:
            return [{}]
        return [{one: max(one.min, min(n, one.max)) for one in others} for n in (1, 2)]

    def _masks(self, group: SizeGroup) -> list[PaddedInput]:
        """Masks that have this size: their padding is never poisoned."""
        return [PaddedInput(path=p.path, dim=p.dim) for p in group.places if p.path in self._sized.masks]

    def _poisoned(self, call: Call, dim: PaddedDim, pair: _Pair) -> None:
        """The padded call, whatever its padding holds, gives what the call itself gives."""
        spared = self._sized.masks | self._fixed
        usual = self._asked.padded(call, Padding(dims=(dim,)))
        for poison in (0, 1):
            found = self._asked.padded(call, Padding(dims=(dim,)), poison=poison, spared=spared)
            self._asked.same_bits(usual, found, pair, "the padded positions hold other values")
        self._asked.alike(usual, self._asked.answer(call), pair, "the call is padded")

    def _padded_alike(self, call: Call, dim: PaddedDim, pair: _Pair) -> None:
        found = self._asked.padded(call, Padding(dims=(dim,)))
        self._asked.alike(found, self._asked.answer(call), pair, "the batch is padded")

    def _rule(self, path: str, along: int, dim: PaddedDim, group: SizeGroup) -> MaskRule:
        """The widest rule for one mask, the others as they are in the example."""
        held = MaskRule.ONES
        size = min(group.min + FIRST_SIZES, group.max - 1)
        if size < 2:
            return held if group.max > group.min else MaskRule.ANY
        for rule in _RULES[1:]:
            try:
                for sizes in self._batches(group):
                    base = self._at({**sizes, group: size}, seed=5)
                    for call in masked_by(base, path, along, rule):
                        pair = _Pair(size, min(group.max, 2 * size))
                        self._poisoned(call, _with_size(dim, pair.to), pair)
            except Leak:
                return held
            held = rule
        return held

    # ---- all of them -------------------------------------------------------------------------------------------------

    def _together(self, proven: Mapping[SizeGroup, PaddedDim]) -> None:
        """All sizes padded at once; an output dimension that follows two of them cannot be cut back."""
        follows = [(one.path, one.dim) for dim in proven.values() for one in dim.outputs]
        if twice := next((place for place in follows if follows.count(place) > 1), None):
            raise Leak(f"dimension {twice[1]} of {twice[0]} follows two sizes, so it cannot be cut back", twice[0])
        sizes = {group: min(group.min + 1, group.max) for group in proven}
        call = self._at(sizes, seed=6)
        for group in proven:
            call = unmasked(call, self._masks(group))
        to = {group: min(group.max, size + FIRST_SIZES) for group, size in sizes.items()}
        padding = Padding(dims=tuple(_with_size(dim, to[group]) for group, dim in proven.items()))
        pair = _Pair(min(sizes.values()), max(to.values()))
        self._asked.alike(
            self._asked.padded(call, padding), self._asked.answer(call), pair, "all sizes are padded together"
        )


def _with_size(dim: PaddedDim, size: int) -> PaddedDim:
    return msgspec.structs.replace(dim, size=size)
