"""Operators with inputs at the ends of their ranges: what bench/operator_meaning.py asks every engine.

In: nothing. Out: rows of a name, a function of tensors, a harmless example to build from and the values to ask.
Covered: integer arithmetic of every width, division and remainder, shifts, casts, sums, comparisons, ties, NaN,
infinity, signed zeros, small results of float functions, normalisation and attention at their corners, pooling,
padding, resizing. Not covered: operators without a boundary of their own.
"""

from __future__ import annotations

from collections import Counter

from operator_floats import floats, small
from operator_integers import bools, casts, integers, within
from operator_layers import images, masks, reductions
from operator_rows import Row


def rows() -> list[Row]:
    """Every row of the table, each name once."""
    found = [
        *integers(),
        *within(),
        *floats(),
        *casts(),
        *bools(),
        *small(),
        *masks(),
        *images(),
        *reductions(),
    ]
    twice = [name for name, count in Counter(row.name for row in found).items() if count > 1]
    assert not twice, twice
    return [row for row in found if _answers(row)]


def _answers(row: Row) -> bool:
    """Whether eager takes the row's dtype at all."""
    try:
        row.fn(*(tensor.clone() for tensor in row.example))
        row.fn(*(tensor.clone() for tensor in row.values))
    except (RuntimeError, IndexError, ValueError):
        return False
    return True
