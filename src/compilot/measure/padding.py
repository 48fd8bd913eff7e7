"""Is padding harmless? Proven in float64, or refused with the output and the size at which it leaks.

In: a workload with declared dynamic dimensions. Out: a `PaddingProof`: which sizes may be padded, with what, and how
the outputs are cut back; and why the others may not.
The batch is padded by repeating its last row. Proof: each row alone gives what it gives among others, in any order and
more than once, and not a bit of its answer changes with the values of other rows. With that, calls may be answered in
parts as well (splitting.py). Any other size is padded at its end with fixed values. Proof, at batch 1 and 2: what is in
the padded positions (two different kinds of finite numbers; masks hold their padding) changes not a bit of the answer,
and the answer is that of the call as it was. Which masks that holds for is looked for, from all of them to only ones
(`MaskRule`), and for several masks in all combinations.
Integers that may be positions must mean the same in the padded call: the last one, -1, and one that does not exist.
Which outputs follow which size is learned by running three sizes. Refused as well: models that change their inputs or
buffers, that draw random numbers, or whose outputs cannot be cut back or share memory with an input. Not covered: float
masks that are added to scores; the engine that runs the padded call, which is asked the same by padding_engine.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import torch

from compilot._torch.hooks import hooks_on
from compilot._tree import Call, call_leaves
from compilot.inputs.values import can_vary, is_integer
from compilot.measure.padded_answers import Asked, Leak, layouts, learn_outputs, lively
from compilot.measure.padded_calls import (
    RULES,
    among_others,
    combined,
    filled,
    masked_by,
    row_count,
    unmasked,
    with_rows,
)
from compilot.measure.padding_advice import with_advice
from compilot.measure.reference import too_large_for_double
from compilot.measure.splitting import holds_in_parts
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
from compilot.workload.outputs import Flat
from compilot.workload.padding import Sized, SizeGroup
from compilot.workload.workload import Workload

FIRST_SIZES = 5  # above the smallest: enough for a kernel of 3 at both ends, and cheap
ROWS = 3


def prove_padding(workload: Workload) -> PaddingProof:
    """Which of the declared sizes may be padded."""
    sized = workload.sized
    if not sized.groups:
        return PaddingProof()
    if workload.grad:
        return _none_of(sized, "calls with gradients are not padded")
    if hooks_on(workload.model):
        return _none_of(sized, "the model has hooks, which would see padded calls; remove them to have calls padded")
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
        last = min(group.size, group.max - 1)
        if (last, group.max) != (group.min, to):
            yield _Pair(last, group.max)

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
            call = self._at({group: pair.size}, seed=3)
            self._padded_alike(call, _with_size(dim, pair.to), pair)
            self._indexed(call, _with_size(dim, pair.to), pair)
        if group.min == 1:
            self._other_orders(group, outputs, base, rows)
        parts = holds_in_parts(self._asked, dim, self._layouts, lambda rows: self._at({group: rows}, seed=8))
        return msgspec.structs.replace(dim, in_parts=parts)

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
                self._indexed(call, _with_size(dim, pair.to), pair)
        found = self._rules(dim, group)
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

    def _indexed(self, call: Call, dim: PaddedDim, pair: _Pair) -> None:
        """Integers that may be positions: the last one, the same from the end, and the first that does not exist."""
        for path in (leaf.path for leaf in call_leaves(call) if can_vary(leaf.value) and is_integer(leaf.value)):
            if path in self._sized.masks:
                continue
            for number in (pair.size - 1, -1, pair.size):
                changed = filled(call, path, number)
                own = _or_none(lambda: self._asked.answer(changed))  # noqa: B023
                padded = _or_none(lambda: self._asked.padded(changed, Padding(dims=(dim,))))  # noqa: B023
                if own is not None and padded is not None:
                    self._asked.alike(padded, own, pair, f"{path} holds {number}")
                elif own is not None or padded is not None:
                    who = "call as it is" if own is None else "padded call"
                    why = f"with {number} in {path}, only the {who} raises at size {pair.size}, padded to {pair.to}"
                    raise Leak(why, "", pair.size, pair.to)

    def _rules(self, dim: PaddedDim, group: SizeGroup) -> dict[str, MaskRule]:
        """The widest rule for each mask that also holds for all of them together, else only ones."""
        own = self._masks(group)
        others = [one for other in self._sized.groups if not other.is_rows and other is not group
                  for one in self._masks(other)]  # fmt: skip
        if len({one.path for one in own}) < len(own):  # a mask that has this size twice
            found = {one.path: MaskRule.ONES for one in own}
        else:
            found = {one.path: self._rule(one, dim, group) for one in own}
        if len(own) + len(others) < 2:
            return found
        if len(own) + len(others) == 2 and self._holds_for(dim, group, own, others, found):
            return found
        ones = {one.path: MaskRule.ONES for one in own}
        if others and not self._holds_for(dim, group, own, others, ones):
            raise Leak(f"whether it may be padded depends on {others[0].path}, which has another size")
        return ones

    def _holds_for(
        self,
        dim: PaddedDim,
        group: SizeGroup,
        own: Sequence[PaddedInput],
        others: Sequence[PaddedInput],
        rules: Mapping[str, MaskRule],
    ) -> bool:
        """Whether padding holds for these masks in all their combinations; the others' may be anything."""
        masks = [(one.path, one.dim, rules.get(one.path, MaskRule.ANY)) for one in (*own, *others)]
        try:
            for pair in self._mask_pairs(group):
                for sizes in self._batches(group):
                    for call in combined(self._at({**sizes, group: pair.size}, seed=5), masks):
                        self._poisoned(call, _with_size(dim, pair.to), pair)
        except Leak:
            return False
        return True

    def _mask_pairs(self, group: SizeGroup) -> list[_Pair]:
        """Where masks are tried: near the smallest, at the example's size and at the largest."""
        first = min(group.min + FIRST_SIZES, group.max - 1)
        found = [_Pair(first, min(group.max, 2 * first)), _Pair(min(group.size, group.max - 1), group.max)]
        return [pair for pair in dict.fromkeys([*found, _Pair(group.max - 1, group.max)]) if 2 <= pair.size < pair.to]

    def _rule(self, mask: PaddedInput, dim: PaddedDim, group: SizeGroup) -> MaskRule:
        """The widest rule for one mask, the others as they are in the example."""
        held = MaskRule.ONES
        pairs = self._mask_pairs(group)
        for rule in self._known_rules(mask.path) if pairs else ():
            try:
                for pair in pairs:
                    for sizes in self._batches(group):
                        base = self._at({**sizes, group: pair.size}, seed=5)
                        for call in masked_by(base, mask.path, mask.dim, rule):
                            self._poisoned(call, _with_size(dim, pair.to), pair)
            except Leak:
                return held
            held = rule
        return held

    def _known_rules(self, path: str) -> tuple[MaskRule, ...]:
        """Integers are looked at in each call, since they may be others than 0 and 1: that is what a rule does."""
        mask = next(leaf.value for leaf in call_leaves(self._sized.call) if leaf.path == path)
        return RULES[1:] if mask.dtype == torch.bool else RULES[1:-1]

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


def _or_none(ask: Callable[[], Flat]) -> Flat | None:
    """The answer; None: it raises."""
    try:
        return ask()
    except Leak:
        return None


def _with_size(dim: PaddedDim, size: int) -> PaddedDim:
    return msgspec.structs.replace(dim, size=size)
