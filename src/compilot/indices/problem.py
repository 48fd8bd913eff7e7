"""The indices of one traced call, and what they may hold when the inputs hold given sets.

In: a trace, and for some inputs their columns, which have a set each or for a group of them. Out: which indices may
be out of range with given sets of the inputs, and on which columns those indices depend. Not covered: which sets to
try (solving.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from compilot._ranges import Range
from compilot._torch.optrace import INPUT, Known, Lookup, Ref, Step, Trace
from compilot.indices.lookups import Use, uses
from compilot.indices.places import Columns, Places, Source
from compilot.indices.relations import CHOICES, chosen
from compilot.indices.rules import SIZED, parts_of, result
from compilot.indices.sets import EVERY, Numbers, holds, in_dtype, joined

Given = Mapping[str, Sequence[Numbers]]  # path of an input -> what each of its columns may hold
_Found = dict[int, tuple[Numbers, ...]]  # by value, one set for each class


class Wrong(NamedTuple):
    """An index that may be out of range."""

    lookup: Lookup
    columns: int  # that it depends on: a bit for each column, or group of them, of each input


class Problem:
    """The indices of one trace and the steps they depend on."""

    def __init__(self, trace: Trace, columns: Mapping[str, Columns] | None = None) -> None:
        """columns: by path, of the inputs whose columns are told apart."""
        self._steps = trace.steps
        self._uses = [(use, lookup) for lookup in trace.lookups for use in uses(lookup)]
        self._needed = sorted(_needed(self._steps, (use for use, _ in self._uses)))
        self._places = Places(self._steps, self._needed, columns or {})
        self._seen = [self._places.touched(use.by) for use, _ in self._uses]
        inputs = [(n, self._steps[n]) for n in self._needed if self._steps[n].name == INPUT]
        self.inputs = {str(step.args["path"]): step for _, step in inputs}
        self._counts = {str(step.args["path"]): self._places.count(n) for n, step in inputs}
        self._depends: dict[tuple[int, int], int] = {}  # by value and class: columns, as bits
        self._noted = False  # that is so for every set, so once is enough

    @property
    def split(self) -> bool:
        """Whether some operator may treat one column unlike another."""
        return self._places.split

    def bits(self, path: str) -> list[int]:
        """A bit for each column of an input."""
        first = 0
        for one, count in self._counts.items():
            if one == path:
                return [1 << (first + n) for n in range(count)]
            first += count
        raise KeyError(path)

    def sized(self) -> bool:
        """Whether another size of an input may give other ranges."""
        steps = [self._steps[number] for number in self._needed]
        made = any(
            isinstance(p, Known) and p.range is not None and not p.fixed for s in steps for p in parts_of(s.args)
        )
        return made or any(step.name in SIZED for step in steps) or any(use.sized for use, _ in self._uses)

    def wrong(self, given: Given) -> list[Wrong]:
        """The indices that may be out of range."""
        found: _Found = {}
        for number in self._needed:
            found[number] = self._sets(number, found, given)
        self._noted = True
        bad = []
        for (use, lookup), seen in zip(self._uses, self._seen, strict=True):
            for label in seen:
                if not holds(use.legal, _class(use.by.value, label, found)):
                    bad.append(Wrong(lookup, self._depends.get((use.by.value, label), 0)))
        return bad

    def together(self) -> list[int]:
        """The columns that each index depends on, as bits; known once `wrong` was asked."""
        pairs = zip(self._uses, self._seen, strict=True)
        return [self._depends.get((use.by.value, label), 0) for (use, _), seen in pairs for label in seen]

    def _sets(self, number: int, found: _Found, given: Given) -> tuple[Numbers, ...]:
        step = self._steps[number]
        if step.name == INPUT:
            path = step.args["path"]
            if not self._noted:
                self._depends.update({(number, n): bit for n, bit in enumerate(self.bits(path))})
            return tuple(given[path])
        if number in self._places.sources:
            rows = enumerate(self._places.sources[number])
            return tuple(in_dtype(self._moved(number, label, source, found), step.dtype) for label, source in rows)
        return tuple(self._made(number, label, found) for label in range(self._places.count(number)))

    def _moved(self, number: int, label: int, source: Source, found: _Found) -> Numbers:
        if not isinstance(source.value, Ref):
            return _of(source.value)
        self._note(number, label, source.value.value, source.label)
        return _class(source.value.value, source.label, found)

    def _made(self, number: int, label: int, found: _Found) -> Numbers:
        step, of = self._steps[number], self._reader(number, label, found)
        choice = chosen(step, self._steps, of) if step.name in CHOICES else None
        return choice if choice is not None else result(step, of)

    def _reader(self, number: int, label: int, found: _Found) -> Callable[[Any], Numbers]:
        """What an argument holds where the class of a value is."""

        def of(value: Any) -> Numbers:
            if isinstance(value, Known):
                met = self._places.met(number, label, value)
                return (met,) if isinstance(met, Range) else _of(value)
            if not isinstance(value, Ref):
                return _of(value)
            if value.value < 0:
                return EVERY
            met = self._places.met(number, label, value)
            for other in met:
                self._note(number, label, value.value, other)
            return found[value.value][met[0]] if len(met) == 1 else joined(*(found[value.value][m] for m in met))

        return of

    def _note(self, number: int, label: int, value: int, other: int) -> None:
        """The class of a value depends on that of another one."""
        if self._noted:
            return
        bits = self._depends.get((number, label), 0) | self._depends.get((value, other), 0)
        self._depends[number, label] = bits

    def groups(self, path: str) -> tuple[int, ...]:
        """The columns of an input, those with one number that nothing treats unlike each other."""
        self.wrong({one: [EVERY] * count for one, count in self._counts.items()})
        bits, marks = self.bits(path), self._places.marks()
        every, own = sum(bits), {bit: set[Any]() for bit in bits}
        for place, depends in self._depends.items():
            shared = depends & every
            if shared in own:
                own[shared].update((place[0], mark) for mark in marks.get(place, ()))
            elif shared != every:
                for bit in bits:
                    own[bit].update([place] if bit & shared else ())
        numbers: dict[frozenset[Any], int] = {}
        return tuple(numbers.setdefault(frozenset(own[bit]), len(numbers)) for bit in bits)

    def apart(self) -> set[int]:
        """Single numbers that may be legal apart from all others: those that losses ignore and comparisons name."""
        found = {part.low for use, _ in self._uses for part in use.legal if part.low == part.high}
        compared = [s.args.get("other") for s in self._steps if s.name in ("eq", "ne")]
        found.update(value for value in compared if isinstance(value, int) and not isinstance(value, bool))
        return found | {
            v.range.low for v in compared if isinstance(v, Known) and v.range and v.range.low == v.range.high
        }


def _class(value: int, label: int, found: _Found) -> Numbers:
    return found[value][label] if value >= 0 else EVERY


def _of(value: Any) -> Numbers:
    """What an argument that depends on no input may hold."""
    if isinstance(value, Known):
        if value.range is not None:
            return (value.range,)
        return EVERY if value.dtype.is_floating_point or value.dtype.is_complex else ()
    if isinstance(value, bool | int) or (isinstance(value, float) and value.is_integer()):
        return (Range(int(value), int(value)),)
    return EVERY


def _needed(steps: Sequence[Step], wanted: Iterable[Use]) -> set[int]:
    """The numbers of the steps that an index depends on."""
    found: set[int] = set()
    left = [use.by.value for use in wanted]
    while left:
        number = left.pop()
        if number >= 0 and number not in found:
            found.add(number)
            left += [part.value for part in parts_of(steps[number].args) if isinstance(part, Ref)]
    return found
