"""The range of a whole number from the ranges it was computed from, operator by operator.

In: an operator's node and the ranges of its arguments. Out: a range that holds every possible result, None where there
is no rule for the operator. Names are those of torch's operators without their overloads. Not covered: which numbers
matter (integers.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.fx import Node

from compilot._ranges import KEEP, Range, names, spread
from compilot._ranges import between as _between

LONGEST = 2**20  # elements along a dimension, where the declared range does not tell


# numbers of any argument, or zero
JOIN = names(
    "cat stack copy where masked_fill maximum minimum clamp clamp_min clamp_max fill scatter index_put constant_pad_nd "
    "pad tril triu index_fill masked_scatter relu"
)
MERGE = frozenset({"slice_scatter", "select_scatter", "diagonal_scatter"})  # numbers of the first two; then come places
# numbers of any argument, or places in it
JOIN_AND_PLACES = frozenset({"max", "min", "sort", "topk", "cummax", "cummin"})
PLACES = frozenset({"argmax", "argmin", "argsort", "nonzero", "searchsorted", "bucketize", "count_nonzero", "one_hot"})
# nothing of their first argument but its shape
FRESH = frozenset({"ones_like", "zeros_like", "full_like", "new_ones", "new_zeros", "new_full", "sym_size"})


ZERO, FLAG, PLACE = Range(0, 0), Range(0, 1), Range(0, LONGEST)
Size = Callable[[Any], int]  # the largest value that a size may have


def result(node: Node, name: str, parts: Sequence[Range], size: Size) -> Range | None:
    """The range of the operator's results; parts: of its arguments, nodes and plain numbers in order."""
    if name in KEEP and name not in _RULES:
        return parts[0]
    if name in JOIN or name in MERGE or name in JOIN_AND_PLACES:
        return spread([*parts, PLACE if name in JOIN_AND_PLACES else ZERO])
    rule = _RULES.get(name)
    return None if rule is None else rule(node, [*parts, FLAG], size)  # a flag may stand for the second number


def _up_to(most: int) -> Range:
    return Range(-most, most)


def _most(part: Range) -> int:
    return max(map(abs, part))


def _add(node: Node, parts: Sequence[Range], size: Size) -> Range:
    by = node.kwargs.get("alpha", 1)
    factor = by if isinstance(by, int) else LONGEST
    other = _between(parts[1].low * factor, parts[1].high * factor)
    return Range(parts[0].low + other.low, parts[0].high + other.high)


def _sub(node: Node, parts: Sequence[Range], size: Size) -> Range:
    """Either way round."""
    difference = _add(node, [parts[0], Range(-parts[1].high, -parts[1].low)], size)
    return _up_to(_most(difference))


def _mul(node: Node, parts: Sequence[Range], size: Size) -> Range:
    return _between(*(a * b for a in parts[0] for b in parts[1]))


def _neg(node: Node, parts: Sequence[Range], size: Size) -> Range:
    return Range(-parts[0].high, -parts[0].low)


def _abs(node: Node, parts: Sequence[Range], size: Size) -> Range:
    return Range(0, _most(parts[0]))


def _square(node: Node, parts: Sequence[Range], size: Size) -> Range:
    return Range(0, _most(parts[0]) ** 2)


def _sign(node: Node, parts: Sequence[Range], size: Size) -> Range:
    return Range(-1, 1)


def _remainder(node: Node, parts: Sequence[Range], size: Size) -> Range:
    return _up_to(_most(parts[1]))


def _divided(node: Node, parts: Sequence[Range], size: Size) -> Range:
    """Rounded either way; by zero there is no result."""
    if parts[1].low <= 0 <= parts[1].high:
        return _up_to(_most(parts[0]))
    return _between(*(end for a in parts[0] for b in parts[1] for end in (a // b, -(-a // b))))


def _bits(node: Node, parts: Sequence[Range], size: Size) -> Range:
    """Bit by bit: no more bits than the longest argument has."""
    return _up_to(2 ** max(_most(part).bit_length() for part in parts))


def _total(node: Node, parts: Sequence[Range], size: Size) -> Range:
    """A sum has as many terms as the tensor has elements, at the most."""
    terms = 1
    for length in _shape(node.args[0]):
        terms *= size(length)
    return _between(parts[0].low * terms, parts[0].high * terms, 0)


def _running(node: Node, parts: Sequence[Range], size: Size) -> Range:
    """A running sum has as many terms as the dimension is long, at the most."""
    shape, dim = _shape(node.args[0]), node.args[1]
    terms = size(shape[dim]) if shape and isinstance(dim, int) else 1
    return _between(parts[0].low * terms, parts[0].high * terms, 0)


def _shape(source: Any) -> Sequence[Any]:
    return source.meta["val"].shape if isinstance(source, Node) else (LONGEST,)


def _counted(node: Node, parts: Sequence[Range], size: Size) -> Range:
    return spread([*parts, ZERO])


def _filled(node: Node, parts: Sequence[Range], size: Size) -> Range:
    return spread([*parts, FLAG])


_RULES: Mapping[str, Callable[[Node, Sequence[Range], Size], Range]] = {
    "add": _add,
    "sub": _sub,
    "rsub": _sub,
    "mul": _mul,
    "neg": _neg,
    "abs": _abs,
    "square": _square,
    "sign": _sign,
    "sgn": _sign,
    "remainder": _remainder,
    "fmod": _remainder,
    "floor_divide": _divided,
    "div": _divided,
    "bitwise_and": _bits,
    "bitwise_or": _bits,
    "bitwise_xor": _bits,
    "bitwise_not": _bits,
    "__and__": _bits,
    "__or__": _bits,
    "__xor__": _bits,
    "sum": _total,
    "cumsum": _running,
    "arange": _counted,
    "full": _filled,
    "ones": _filled,
    "zeros": _filled,
    **dict.fromkeys(FRESH, _filled),
}
