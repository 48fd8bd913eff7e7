"""Ranges that were found at several sizes, as one range for all of them.

In: what was solved at each size, with the sizes. Out: one range for each input, or for each of its columns. A limit
that is the same everywhere stays a number; one that moves with a size of an input is written as that size (`SizeOf`);
of any other the narrowest counts. Not covered: sizes that nobody tried: a limit is taken to lie between
those at the ends.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from compilot.indices.places import Columns
from compilot.indices.solving import Solved
from compilot.records import IndexColumns, IndexRange, SizeOf

Place = tuple[str, int]  # path of an input and a dimension of it
_Limits = tuple[int | SizeOf, int | SizeOf, tuple[int, ...]]  # low, high, exempt


class At(NamedTuple):
    """What was solved at some sizes."""

    sizes: Mapping[Place, int]  # of the declared dimensions
    solved: Mapping[str, Sequence[Solved]]  # one for each column, a single one where columns are not told apart


def over_sizes(found: Sequence[At], columns: Mapping[str, Columns]) -> dict[str, IndexRange]:
    """One range per input for all sizes; an input that some size leaves unlimited is limited as at the others.

    columns: by path, of the inputs whose columns were told apart.
    """
    paths = dict.fromkeys(path for at in found for path in at.solved)
    return {
        path: _packed(
            _limits(path, [at for at in found if path in at.solved]), columns[path].dim if path in columns else 0
        )
        for path in paths
    }


def _limits(path: str, found: Sequence[At]) -> list[_Limits]:
    """Of each column."""
    sizes = [at.sizes for at in found]
    return [_over_sizes(column, sizes) for column in zip(*(at.solved[path] for at in found), strict=True)]


def _over_sizes(found: Sequence[Solved], sizes: Sequence[Mapping[Place, int]]) -> _Limits:
    lows, highs = ([one.range[end] for one in found] for end in (0, 1))
    exempt = set.intersection(*(set(one.exempt) for one in found))
    return (
        _following(lows, sizes, max) if len(set(lows)) > 1 else lows[0],
        _following(highs, sizes, min) if len(set(highs)) > 1 else highs[0],
        tuple(sorted(exempt)),
    )


def _packed(limits: Sequence[_Limits], dim: int) -> IndexRange:
    """The limits that most columns have, and those of the others."""
    [((low, high, exempt), _)] = Counter(limits).most_common(1)
    others, first = list[IndexColumns](), 0
    for own, group in itertools.groupby(limits):
        last = first + len(list(group)) - 1
        if own != (low, high, exempt):
            others.append(IndexColumns(first=first, last=last, low=own[0], high=own[1], exempt=own[2]))
        first = last + 1
    return IndexRange(low=low, high=high, exempt=exempt, dim=dim if others else 0, columns=tuple(others))


def _following(
    ends: Sequence[int], sizes: Sequence[Mapping[Place, int]], narrowest: Callable[[Sequence[int]], int]
) -> int | SizeOf:
    """The limit as a size of the call that it moves with, else the narrowest one."""
    for place in sizes[0]:
        for times in (1, -1):
            rest = {end - times * at[place] for end, at in zip(ends, sizes, strict=True)}
            if len(rest) == 1:
                return SizeOf(path=place[0], dim=place[1], times=times, plus=rest.pop())
    return narrowest(ends)
