"""Which values of the inputs keep every index of a traced call in range?

In: a problem, and the values that the inputs had in the traced call. Out: for each input that an index depends on, and
for each of its columns, the widest range around those values that is proven, and values outside of it that are proven
too (labels that a loss ignores). Or `Unproven`: an index may be out of range even with values like the example's.
Ranges are found by trying: what is returned has been tried. One input is widened after the other, all columns of it at
once, so a range holds as long as the others keep theirs. Not covered: other sizes (sizes.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from compilot._ranges import Range
from compilot._torch.optrace import Lookup
from compilot.indices.problem import Problem
from compilot.indices.sets import Numbers, joined, numbers, of_dtype

MOST_TOGETHER = 16  # columns of one index that are widened once more, one after the other


class Solved(NamedTuple):
    """What one column of an input may hold, or all of the input."""

    range: Range
    exempt: tuple[int, ...]


class Unproven(Exception):
    """An index whose range cannot be told."""

    def __init__(self, lookup: Lookup) -> None:
        super().__init__(lookup.name)
        self.lookup = lookup
        self.where = ""  # name of the sizes, where they are not the example's


def solve(problem: Problem, seen: Mapping[str, Sequence[set[int]]]) -> dict[str, list[Solved]]:
    """What each column may hold; seen: the values it had. Inputs that may hold anything are left out."""
    apart = problem.apart()
    wanted = {path: [_around(values, apart) for values in seen[path]] for path in problem.inputs}
    given = {path: [_set(one) for one in columns] for path, columns in wanted.items()}
    if wrong := problem.wrong(given):
        raise Unproven(wrong[0].lookup)
    found: dict[str, list[Solved]] = {}
    for path, step in problem.inputs.items():
        room = of_dtype(step.dtype)[0]
        solved = _Columns(problem, given, path, room).widened(wanted[path], apart)
        given[path] = [_set(one) for one in solved]
        if any(one.range != room for one in solved):
            found[path] = solved
    assert not problem.wrong(given), "ranges that were not tried together"
    return found


def _around(values: set[int], apart: set[int]) -> Solved:
    """The range of the values, and those apart from it that a loss ignores or a comparison names."""
    usual = (values - apart) or values or {0}
    span = Range(min(usual), max(usual))
    return Solved(span, tuple(sorted(v for v in values if not span.low <= v <= span.high)))


class _Columns:
    """The columns of one input, the other inputs as given.

    A try widens several columns. It counts for those on which no index out of range depends: each index is in range
    with all columns as they were when one of its columns was widened last, and they were no narrower then than now.
    """

    def __init__(self, problem: Problem, given: Mapping[str, Sequence[Numbers]], path: str, room: Range) -> None:
        self._problem, self._given, self._path, self._room = problem, given, path, room
        self._bits = problem.bits(path)

    def widened(self, start: Sequence[Solved], apart: set[int]) -> list[Solved]:
        """Upwards first, then downwards; then single numbers."""
        found = self._away_from(apart, start)
        for members in [set(range(len(found))), *self._turns()]:
            found = self._furthest(found, members, lambda one, end: Range(one.range.low, end), 1)
            found = self._furthest(found, members, lambda one, end: Range(end, one.range.high), 0)
        return self._with_exempt(found, apart)

    def _away_from(self, apart: set[int], start: Sequence[Solved]) -> list[Solved]:
        """Columns that only had numbers that stand apart begin at a usual one, if that is proven."""
        odd = [one.range.low in apart and one.range.low == one.range.high for one in start]
        usual = [one.range.low for one, is_odd in zip(start, odd, strict=True) if not is_odd]
        found = list(start)
        for value in dict.fromkeys([*usual[:1], 0]) if any(odd) else ():
            tried = [Solved(Range(value, value), (*one.exempt, one.range.low)) for one in start]
            for n, proven in enumerate(
                self._proven([t if o else f for t, o, f in zip(tried, odd, found, strict=True)])
            ):
                if odd[n] and proven:
                    found[n], odd[n] = tried[n], False
        return found

    def _turns(self) -> list[set[int]]:
        """Columns that share an index take turns after all were widened together: one may leave room to another."""
        groups = _groups(self._problem.together(), self._bits)
        shared = [group for group in groups if 1 < len(group) <= MOST_TOGETHER]
        return [{group[n] for group in shared if n < len(group)} for n in range(max(map(len, shared), default=0))]

    def _proven(self, tried: Sequence[Solved]) -> list[bool]:
        wrong = self._problem.wrong({**self._given, self._path: [_set(one) for one in tried]})
        blamed = 0
        for one in wrong:
            blamed |= one.columns
        return [not blamed & bit for bit in self._bits]

    def _furthest(
        self, start: list[Solved], members: set[int], put: Callable[[Solved, int], Range], end: int
    ) -> list[Solved]:
        """Each column with the end furthest from its own that is proven: all the way, else ever longer steps."""
        found, limit = list(start), self._room[end]
        bad = {n: limit for n in members if found[n].range[end] != limit}
        stride, reached = dict.fromkeys(bad, 1), dict(bad)
        while reached:
            tried = [one._replace(range=put(one, reached[n])) if n in reached else one for n, one in enumerate(found)]
            for n, proven in enumerate(self._proven(tried)):
                if n in reached and proven:
                    found[n], stride[n] = tried[n], stride[n] * 2
                elif n in reached:
                    bad[n] = reached[n]
            gaps = {n: worst - found[n].range[end] for n, worst in bad.items()}
            steps = {n: min(stride[n], abs(gap) // 2) for n, gap in gaps.items() if abs(gap) > 1}
            reached = {n: found[n].range[end] + (step if gaps[n] > 0 else -step) for n, step in steps.items()}
        return found

    def _with_exempt(self, solved: Sequence[Solved], apart: set[int]) -> list[Solved]:
        found = [
            one._replace(exempt=tuple(v for v in one.exempt if not one.range.low <= v <= one.range.high))
            for one in solved
        ]
        for value in sorted(apart):
            open_to = [not one.range.low <= value <= one.range.high and value not in one.exempt for one in found]
            pairs = zip(found, open_to, strict=True)
            tried = [one._replace(exempt=tuple(sorted((*one.exempt, value)))) if o else one for one, o in pairs]
            proven = self._proven(tried) if any(open_to) else open_to
            found = [new if p else old for new, old, p in zip(tried, found, proven, strict=True)]
        return found


def _groups(together: Iterable[int], bits: Sequence[int]) -> list[list[int]]:
    """Columns that depend on each other through shared indices, directly or by others."""
    every, merged = sum(bits), list[int]()
    for mask in dict.fromkeys(mask & every for mask in together):
        if mask.bit_count() < 2:
            continue
        for other in [one for one in merged if one & mask]:
            merged.remove(other)
            mask |= other
        merged.append(mask)
    return [[n for n, bit in enumerate(bits) if mask & bit] for mask in merged]


def _set(one: Solved) -> Numbers:
    return joined((one.range,), numbers(Range(value, value) for value in one.exempt))
