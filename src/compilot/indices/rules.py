"""What an operator's result may hold, from what its arguments may hold.

In: a `Step` and the sets of its arguments. Out: a set that holds every possible result; everything the dtype can hold
where there is no rule. Larger arguments never give a smaller result. Rules read sizes as they were in the traced call.
Covered: moving, choosing, arithmetic, comparing, places (argmax, topk, sort, nonzero), running sums. Not covered:
floats: a whole number made from one may be anything, until it is clamped or taken modulo something.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from compilot._ranges import KEEP, Range, between, names
from compilot._torch.optrace import EMPTY, JOIN, Known, Ref, Step
from compilot.indices.sets import EVERY, FLAG, Numbers, each, in_dtype, joined, numbers, of_dtype

Of = Callable[[Any], Numbers]  # the set of an argument
Rule = Callable[[Step, Of], Numbers]

_KEEP = (KEEP - {"abs"}) | names("take embedding median mode view_copy _reshape_alias lift_fresh as_strided nan_to_num")
_CHOOSE = names("max min sort topk cummax cummin kthvalue median mode")  # numbers, and the places where they stood
_PUT = names("scatter index_put index_fill index_copy masked_scatter slice_scatter select_scatter diagonal_scatter put")
_PUT_FROM = ("src", "value", "values", "source")


def result(step: Step, of: Of) -> Numbers:
    """The set of the step's numbers."""
    rule = _RULES.get(step.name)
    if rule is None and step.name in _KEEP:
        rule = _first
    return of_dtype(step.dtype) if rule is None else in_dtype(rule(step, of), step.dtype)


def _first(step: Step, of: Of) -> Numbers:
    return of(next(iter(step.args.values())))


def _named(name: str) -> Rule:
    return lambda step, of: of(step.args[name])


def _all(*wanted: str) -> Rule:
    """Numbers of any of these arguments."""
    return lambda step, of: joined(*(of(step.args[name]) for name in wanted if step.args.get(name) is not None))


def _listed(step: Step, of: Of) -> Numbers:
    return joined(*map(of, step.args["tensors"]))


def _padded(step: Step, of: Of) -> Numbers:
    return joined(of(step.args["self"]), of(step.args.get("value") or 0))


def _with_zero(step: Step, of: Of) -> Numbers:
    return joined(of(step.args["self"]), of(0))


def _put(step: Step, of: Of) -> Numbers:
    return joined(of(step.args["self"]), *(of(step.args[name]) for name in _PUT_FROM if name in step.args))


# ---- arithmetic ------------------------------------------------------------------------------------------------------


def _two(step: Step) -> tuple[Any, Any]:
    return step.args["self"], step.args["other"]


def _scaled(given: Numbers, factor: Any) -> Numbers:
    if not isinstance(factor, int):
        return EVERY
    return each(lambda part: between(part.low * factor, part.high * factor), given)


def _add(step: Step, of: Of) -> Numbers:
    other = _scaled(of(step.args["other"]), step.args.get("alpha", 1))
    return each(lambda a, b: Range(a.low + b.low, a.high + b.high), of(step.args["self"]), other)


def _sub(step: Step, of: Of) -> Numbers:
    other = _scaled(of(step.args["other"]), step.args.get("alpha", 1))
    return each(lambda a, b: Range(a.low - b.high, a.high - b.low), of(step.args["self"]), other)


def _rsub(step: Step, of: Of) -> Numbers:
    first = _scaled(of(step.args["self"]), step.args.get("alpha", 1))
    return each(lambda a, b: Range(b.low - a.high, b.high - a.low), first, of(step.args["other"]))


def _mul(step: Step, of: Of) -> Numbers:
    return each(lambda a, b: between(*(x * y for x in a for y in b)), *map(of, _two(step)))


def _neg(step: Step, of: Of) -> Numbers:
    return _scaled(of(step.args["self"]), -1)


def _abs(step: Step, of: Of) -> Numbers:
    return each(lambda part: Range(max(part.low, -part.high, 0), max(-part.low, part.high)), of(step.args["self"]))


def _down(a: int, b: int) -> int:
    return a // b


def _towards_zero(a: int, b: int) -> int:
    return -(-a // b) if (a < 0) != (b < 0) else a // b


_ROUNDED: Mapping[Any, Callable[[int, int], int]] = {"floor": _down, "trunc": _towards_zero}


def _divide(step: Step, of: Of) -> Numbers:
    """Rounded down or towards zero; by zero eager raises."""
    mode = "floor" if step.name == "floor_divide" else step.args.get("rounding_mode")
    if mode not in _ROUNDED:
        return EVERY
    rounded, divisors = _ROUNDED[mode], _divisors(of(step.args["other"]))
    return each(lambda a, b: between(*(rounded(x, y) for x in a for y in b)), of(step.args["self"]), divisors)


def _divisors(given: Numbers) -> Numbers:
    return tuple(
        part
        for one in given
        for part in (Range(one.low, min(one.high, -1)), Range(max(one.low, 1), one.high))
        if part.low <= part.high
    )


def _remainder(step: Step, of: Of) -> Numbers:
    """With the sign of the divisor; numbers that are below it already stay as they are."""

    def one(a: Range, b: Range) -> Range:
        if b.low > 0:
            return a if a.low >= 0 and a.high < b.low else Range(0, b.high - 1)
        return Range(b.low + 1, 0)

    return each(one, of(step.args["self"]), _divisors(of(step.args["other"])))


def _fmod(step: Step, of: Of) -> Numbers:
    """With the sign of the dividend."""

    def one(a: Range, b: Range) -> Range:
        most = max(map(abs, b)) - 1
        return Range(max(a.low, -most) if a.low < 0 else 0, min(a.high, most) if a.high > 0 else 0)

    return each(one, of(step.args["self"]), _divisors(of(step.args["other"])))


def _clamp(step: Step, of: Of) -> Numbers:
    """The lower limit first, as torch does it: where the limits cross, the upper one counts."""
    found = of(step.args["self"])
    if (low := step.args.get("min")) is not None:
        found = _larger(found, of(low))
    if (high := step.args.get("max")) is not None:
        found = _smaller(found, of(high))
    return found


def _larger(first: Numbers, second: Numbers) -> Numbers:
    return each(lambda a, b: Range(max(a.low, b.low), max(a.high, b.high)), first, second)


def _smaller(first: Numbers, second: Numbers) -> Numbers:
    return each(lambda a, b: Range(min(a.low, b.low), min(a.high, b.high)), first, second)


def _bits_and(step: Step, of: Of) -> Numbers:
    """Neither has more bits than the smaller one, where both are not negative."""
    a, b = map(of, _two(step))
    able = [part for part in (a, b) if part and part[0].low >= 0]
    return numbers([Range(0, min(part[-1].high for part in able))]) if able else EVERY


def _bits_or(step: Step, of: Of) -> Numbers:
    a, b = map(of, _two(step))
    if not a or not b or a[0].low < 0 or b[0].low < 0:
        return EVERY
    return (Range(0, 2 ** max(a[-1].high.bit_length(), b[-1].high.bit_length()) - 1),)


# ---- sums and places -------------------------------------------------------------------------------------------------


def _terms(step: Step) -> int:
    """How many numbers a sum adds up: those along its dimensions, all where it has none."""
    shape, dim = step.args["self"].shape, step.args.get("dim")
    dims = range(len(shape)) if dim is None or dim == [] else [dim] if isinstance(dim, int) else dim
    return math.prod(shape[d] for d in dims) if shape else 1


def _total(step: Step, of: Of) -> Numbers:
    return _scaled(of(step.args["self"]), _terms(step))


def _running(step: Step, of: Of) -> Numbers:
    terms = max(_terms(step), 1)
    return each(lambda part: between(part.low, part.high, part.low * terms, part.high * terms), of(step.args["self"]))


def _up_to(most: int) -> Numbers:
    return (Range(0, max(most, 0)),)


def _places(step: Step, of: Of) -> Numbers:
    """A place along the dimension, or in the whole tensor where there is no dimension."""
    shape, dim = step.args["self"].shape, step.args.get("dim")
    size = math.prod(shape) if dim is None else shape[dim] if shape else 1
    return _up_to(size - 1)


def _chosen(step: Step, of: Of) -> Numbers:
    """Numbers of a tensor, and where they stood; with two tensors the larger or the smaller of each pair."""
    if isinstance(step.args.get("other"), Ref | Known):
        return (_larger if step.name == "max" else _smaller)(*map(of, _two(step)))
    return _first(step, of) if step.part == 0 else _places(step, of)


def _coordinates(step: Step, of: Of) -> Numbers:
    shape = step.args["self"].shape
    return _up_to((max(shape, default=1) if step.column is None else shape[step.column]) - 1)


def _boundaries(step: Step, of: Of) -> Numbers:
    table = step.args["sorted_sequence" if step.name == "searchsorted" else "boundaries"]
    return _up_to(table.shape[-1] if table.shape else 1)


def _counted(step: Step, of: Of) -> Numbers:
    return _up_to(math.prod(step.args["self"].shape))


def _drawn(step: Step, of: Of) -> Numbers:
    return numbers([Range(step.args.get("low") or 0, step.args["high"] - 1)])


def _pooled(step: Step, of: Of) -> Numbers:
    spatial = {"max_pool2d_with_indices": 2, "max_pool3d_with_indices": 3, "adaptive_max_pool2d": 2}[step.name]
    return _up_to(math.prod(step.args["self"].shape[-spatial:]) - 1)


def _columns(step: Step, of: Of) -> Numbers:
    shape = step.args["self"].shape
    return _up_to(shape[-1] - 1)


_RULES: Mapping[str, Rule] = {
    EMPTY: lambda step, of: (),
    JOIN: _all("old", "new"),
    "copy": _named("src"),
    "fill": _named("value"),
    "zero": lambda step, of: of(0),
    "cat": _listed,
    "stack": _listed,
    "constant_pad_nd": _padded,
    "tril": _with_zero,
    "triu": _with_zero,
    **dict.fromkeys(_PUT, _put),
    "add": _add,
    "sub": _sub,
    "rsub": _rsub,
    "mul": _mul,
    "neg": _neg,
    "abs": _abs,
    "div": _divide,
    "floor_divide": _divide,
    "remainder": _remainder,
    "fmod": _fmod,
    "clamp": _clamp,
    "clamp_min": _clamp,
    "clamp_max": _clamp,
    "maximum": lambda step, of: _larger(*map(of, _two(step))),
    "minimum": lambda step, of: _smaller(*map(of, _two(step))),
    "bitwise_and": _bits_and,
    "__and__": _bits_and,
    "bitwise_or": _bits_or,
    "bitwise_xor": _bits_or,
    "__or__": _bits_or,
    "__xor__": _bits_or,
    "sign": lambda step, of: (Range(-1, 1),),
    "sum": _total,
    "cumsum": _running,
    **dict.fromkeys(_CHOOSE, _chosen),
    "argmax": _places,
    "argmin": _places,
    "argsort": _places,
    "nonzero": _coordinates,
    "searchsorted": _boundaries,
    "bucketize": _boundaries,
    "count_nonzero": _counted,
    "bincount": _counted,
    "multinomial": _columns,
    "randint": _drawn,
    "randperm": lambda step, of: _up_to(step.args["n"] - 1),
    "bernoulli": lambda step, of: FLAG,
    **dict.fromkeys(("max_pool2d_with_indices", "max_pool3d_with_indices", "adaptive_max_pool2d"), _pooled),
}
SIZED: frozenset[str] = names(  # rules that read sizes, which may be others in another call
    "sum cumsum argmax argmin argsort nonzero searchsorted bucketize count_nonzero bincount multinomial randperm "
    "max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool2d"
) | (_CHOOSE - {"max", "min"})


def parts_of(args: Mapping[str, Any]) -> Sequence[Ref | Known]:
    """Every tensor among a step's arguments, in lists too."""
    found: list[Ref | Known] = []
    for value in args.values():
        found += [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, Ref | Known)]
    return found
