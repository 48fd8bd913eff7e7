"""Which numbers of a tensor belong together? Those of one column of an input, and what is made of them.

In: the steps of a trace, and for some inputs a dimension, whose positions are the input's columns. Out: the classes of
each value's numbers, so that each class has a set of its own (solving.py). A label per place of the memory tells the
class; views read the same labels through their strides. Covered: operators that work place by place, also with known
tensors that differ from column to column; those that move numbers about; writes to a part of a tensor. Not covered:
every other operator, more than `MOST` classes: then all numbers of the result are one class. Views and writes must be
the same in every call of these sizes (`Trace.leaks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from compilot._ranges import Range, names
from compilot._torch.optrace import INPUT, JOIN, Known, Ref, Step
from compilot.indices.rules import parts_of

MOST = 4096  # classes of one value: a set for each is looked at dozens of times
_DENSE = 2**20  # keys up to here are counted instead of sorted: a tenth of the time
LARGEST = 2**22  # places of one value: seconds of sorting
_CELLWISE = names(
    "clone _to_copy copy add sub rsub mul neg abs div floor_divide remainder fmod clamp clamp_min clamp_max maximum "
    "minimum bitwise_and bitwise_or bitwise_xor __and__ __or__ __xor__ sign where masked_fill"
)
_MOVED = names("cat stack flip roll repeat index index_select constant_pad_nd")


class Columns(NamedTuple):
    """The positions along a dimension of an input."""

    dim: int
    groups: tuple[int, ...]  # of each position: those of one group share one set

    @classmethod
    def each(cls, dim: int, size: int) -> Columns:
        """Every position by itself."""
        return cls(dim, tuple(range(size)))


class Source(NamedTuple):
    """Where the numbers of a class were before they were moved."""

    value: Any  # Ref, Known or a number
    label: int


class Places:
    """The classes of the values that steps make."""

    def __init__(self, steps: Sequence[Step], needed: Iterable[int], columns: Mapping[str, Columns]) -> None:
        self._steps = steps
        self._labels: dict[int, torch.Tensor] = {}  # by value, flat; those of a single class are left out
        self._counts: dict[int, int] = {}
        self._met: dict[tuple[int, Any], list[Any]] = {}
        self._touched: dict[Ref, tuple[int, ...]] = {}
        self.sources: dict[int, list[Source]] = {}  # by value: where each class comes from, if it was only moved
        self.split = False  # some operator may treat one column unlike another
        for number in sorted(needed) if columns else ():
            self._place(number, steps[number], columns)

    def count(self, number: int) -> int:
        """How many classes a value has."""
        return self._counts.get(number, 1)

    def touched(self, ref: Ref) -> tuple[int, ...]:
        """The classes that a tensor shows."""
        if ref not in self._touched:
            self._touched[ref] = self._shown(ref)
            self.split |= len(self._touched[ref]) < self.count(ref.value)
        return self._touched[ref]

    def met(self, number: int, label: int, value: Ref | Known) -> Any:
        """What of a tensor is used for a class of a value: classes of a Ref, the range of a Known."""
        if number not in self._labels:
            return self.touched(value) if isinstance(value, Ref) else value.range
        if (number, value) not in self._met:
            self._met[number, value] = self._pairs(number, value)
        return self._met[number, value][label]

    def marks(self) -> dict[tuple[int, int], list[Any]]:
        """By value and class, what sets it apart: that it was moved, who shows only some classes, known numbers."""
        moved = ((number, label) for number, rows in self.sources.items() for label in range(len(rows)))
        found: dict[tuple[int, int], list[Any]] = {place: ["moved"] for place in moved}
        for mark, (ref, shown) in enumerate(self._touched.items()):
            for label in shown if len(shown) < self.count(ref.value) else ():
                found.setdefault((ref.value, label), []).append(mark)
        for mark, ((number, value), met) in enumerate(self._met.items()):
            for label, span in enumerate(met if isinstance(value, Known) else ()):
                found.setdefault((number, label), []).append((mark, span))
        return found

    # ---- what each value is made of ---------------------------------------------------------------------------------

    def _place(self, number: int, step: Step, columns: Mapping[str, Columns]) -> None:
        for part in parts_of(step.args):
            if isinstance(part, Ref) and part.value >= 0 and step.name != JOIN:
                self.touched(part)
        if step.name == INPUT and step.args["path"] in columns:
            self._input(number, step, columns[step.args["path"]])
        if not 0 < step.room <= LARGEST:
            return
        if step.name == JOIN:
            self._joined(number, step)
        elif any(isinstance(part, Ref) and part.value in self._labels for part in parts_of(step.args)):
            if step.name in _MOVED:
                self._moved(number, step)
            elif step.name in _CELLWISE or _fills_by_mask(step):
                self._cellwise(number, step)

    def _input(self, number: int, step: Step, columns: Columns) -> None:
        shape = [-1 if dim == columns.dim else 1 for dim in range(len(step.shape))]
        self._keep(number, step, torch.tensor(columns.groups).reshape(shape), max(columns.groups) + 1)

    def _cellwise(self, number: int, step: Step) -> None:
        """One class for each combination of classes, and of known numbers, that meet at a place."""
        parts = [step.args["src"]] if step.name == "copy" else parts_of(step.args)
        keys, found = torch.zeros(step.shape, dtype=torch.int64), torch.zeros(1)
        try:
            for part in parts:
                labels, count = self._codes(part)
                if count > 1:
                    found, keys = _numbered(keys * count + labels, len(found) * count)
                if len(found) > MOST or keys.shape != step.shape:
                    return
        except RuntimeError:  # sizes that do not fit each other place by place
            return
        self.split |= any(isinstance(part, Known) and part.values is not None for part in parts)
        self._keep(number, step, keys, len(found))

    def _codes(self, part: Ref | Known) -> tuple[torch.Tensor, int]:
        if isinstance(part, Ref):
            labels = self._view(part)
            return (labels, self.count(part.value)) if labels is not None else (torch.zeros((), dtype=torch.int64), 1)
        if part.values is None:
            return torch.zeros((), dtype=torch.int64), 1
        found, codes = torch.unique(part.values.tensor, return_inverse=True)
        return codes, len(found)

    def _moved(self, number: int, step: Step) -> None:
        """The operator itself moves the labels."""
        sources: list[Source] = []

        def labels(value: Any) -> torch.Tensor:
            first, shown = len(sources), self._view(value) if isinstance(value, Ref) else None
            count = self.count(value.value) if isinstance(value, Ref) else 1
            if shown is None and count > 1:
                raise _Unmoved
            sources.extend(Source(value, label) for label in range(count))
            return torch.full(value.shape, first) if shown is None else shown + first

        try:
            args = {name: _replayed(name, value, labels) for name, value in step.args.items()}
            if step.name == "constant_pad_nd":
                sources.append(Source(step.args["value"] or 0, 0))
                args["value"] = len(sources) - 1
            assert step.run is not None
            answer = step.run(**args)
        except (RuntimeError, IndexError, _Unmoved):
            return
        self._moved_to(number, step, answer, sources)

    def _joined(self, number: int, step: Step) -> None:
        """A part of the memory was overwritten, the rest is as before."""
        old, new = step.args["old"], step.args["new"]
        writer = self._steps[new.value]
        before = self._labels.get(old.value) if isinstance(old, Ref) else None
        after = self._labels.get(new.value)
        if (before is None and after is None) or (isinstance(old, Ref) and old.value < 0):
            return
        labels = torch.zeros(step.room, dtype=torch.int64) if before is None else before.clone()
        if len(labels) != step.room or (after is not None and len(after) != step.room):
            return
        written = labels.as_strided(writer.shape, writer.view[1:], writer.view[0])
        count = 1 if before is None else self.count(old.value)
        region = 0 if after is None else after.as_strided(writer.shape, writer.view[1:], writer.view[0])
        written.copy_(torch.as_tensor(region) + count)
        sources = [Source(old, n) for n in range(count)] + [Source(new, n) for n in range(self.count(new.value))]
        self._moved_to(number, step, labels, sources, whole=True)

    def _moved_to(
        self, number: int, step: Step, labels: torch.Tensor, sources: list[Source], *, whole: bool = False
    ) -> None:
        found, labels = _numbered(labels, len(sources))
        if len(found) > MOST or not (whole or labels.shape == step.shape):
            return
        self.split |= len(found) < len(sources)
        self.sources[number] = [sources[old] for old in found.tolist()]
        if whole:
            self._labels[number], self._counts[number] = labels, len(found)
        else:
            self._keep(number, step, labels, len(found))

    # ---- labels and memory -------------------------------------------------------------------------------------------

    def _keep(self, number: int, step: Step, labels: torch.Tensor, count: int) -> None:
        memory = torch.zeros(step.room, dtype=torch.int64)
        memory.as_strided(step.shape, step.view[1:], step.view[0]).copy_(labels)
        self._labels[number], self._counts[number] = memory, count

    def _view(self, ref: Ref) -> torch.Tensor | None:
        """The labels of a tensor's places; None: its value is a single class, or the places cannot be told."""
        memory = self._labels.get(ref.value)
        if memory is None or not ref.view:
            return None
        if ref.dtype.itemsize != self._steps[ref.value].dtype.itemsize:
            return None
        try:
            return memory.as_strided(ref.shape, ref.view[1:], ref.view[0])
        except RuntimeError:  # memory that was made larger since
            return None

    def _shown(self, ref: Ref) -> tuple[int, ...]:
        shown = self._view(ref)
        return (
            tuple(range(self.count(ref.value)))
            if shown is None
            else tuple(_numbered(shown, self.count(ref.value))[0].tolist())
        )

    def _pairs(self, number: int, value: Ref | Known) -> list[Any]:
        """What of a tensor is at the places of each class, the tensor as large as the result."""
        step, count = self._steps[number], self.count(number)
        own = self._labels[number].as_strided(step.shape, step.view[1:], step.view[0])
        everything = self.touched(value) if isinstance(value, Ref) else value.range
        if isinstance(value, Ref) and self._view(value) is None:
            return [everything] * count
        codes, most = self._codes(value)
        try:
            pairs = _numbered(own * most + codes.expand(step.shape), count * most)[0]
        except RuntimeError:  # not as large as the result
            return [everything] * count
        met: list[list[int]] = [[] for _ in range(count)]
        for pair in pairs.tolist():
            met[pair // most].append(pair % most)
        if isinstance(value, Ref):
            return [tuple(codes) for codes in met]
        if value.values is None:
            return [value.range] * count
        numbers = torch.unique(value.values.tensor).tolist()
        return [Range(numbers[codes[0]], numbers[codes[-1]]) if codes else value.range for codes in met]


def _numbered(keys: torch.Tensor, bound: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The keys that there are, in order, and the number of each place's key among them; bound: above all keys."""
    if bound > max(keys.numel(), _DENSE):
        found, numbers = torch.unique(keys, return_inverse=True)
        return found, numbers
    there = torch.zeros(bound, dtype=torch.bool)
    there[keys.reshape(-1)] = True
    return there.nonzero()[:, 0], (there.cumsum(0) - 1)[keys]


class _Unmoved(Exception):
    """This operator moves numbers in a way that depends on an input."""


def _replayed(name: str, value: Any, labels: Any) -> Any:
    """An argument of an operator that is to move labels instead of numbers."""
    if name in ("self", "tensors"):
        return [labels(part) for part in value] if isinstance(value, list) else labels(value)
    if isinstance(value, list):
        return [_replayed(name, part, labels) for part in value]
    if isinstance(value, Ref):
        raise _Unmoved
    if not isinstance(value, Known):
        return value
    if value.range is None:
        raise _Unmoved
    if value.values is None and value.range.low != value.range.high:
        raise _Unmoved
    numbers = torch.tensor(value.range.low) if value.values is None else value.values.tensor
    return numbers.expand(value.shape).to(value.dtype)


def _fills_by_mask(step: Step) -> bool:
    """`x[mask] = number`, which works place by place."""
    if step.name != "index_put" or len(step.args["indices"]) != 1:
        return False
    mask, values, into = step.args["indices"][0], step.args["values"], step.args["self"]
    single = isinstance(values, Known) and all(size == 1 for size in values.shape)
    return single and getattr(mask, "dtype", None) is torch.bool and mask.shape == into.shape
