"""Rows of integers and flags: arithmetic of every width, division, shifts, sums, comparisons, casts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from operator_rows import INF, INTEGERS, NAN, Row, extremes, pairs, row, short

TWO: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "eq": torch.eq,
    "lt": torch.lt,
    "ge": torch.ge,
    "bitwise_and": torch.bitwise_and,
    "bitwise_or": torch.bitwise_or,
    "bitwise_xor": torch.bitwise_xor,
    "where": lambda a, b: torch.where(a > b, a, b),
    "true_divide": lambda a, b: a / torch.where(b == 0, torch.ones_like(b), b),
}
DIVIDING: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "floor_divide": torch.floor_divide,
    "div_trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "div_floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "remainder": torch.remainder,
    "fmod": torch.fmod,
}
ONE: dict[str, Callable[[Tensor], Any]] = {
    "neg": torch.neg,
    "abs": torch.abs,
    "sign": torch.sign,
    "square": torch.square,
    "bitwise_not": torch.bitwise_not,
    "clamp": lambda a: a.clamp(-2, 5) if a.dtype is not torch.uint8 else a.clamp(2, 5),
    "clamp_min": lambda a: a.clamp_min(1),
    "relu": torch.relu,
    "add_one": lambda a: a + 1,
    "sub_one": lambda a: a - 1,
    "one_minus": lambda a: 1 - a,
    "times_3": lambda a: a * 3,
    "half_up": lambda a: (a + a) // 2,
    "floor_divide_2": lambda a: a // 2,
    "floor_divide_minus_3": lambda a: a // -3 if a.dtype is not torch.uint8 else a // 3,
    "trunc_divide_2": lambda a: torch.div(a, 2, rounding_mode="trunc"),
    "true_divide_2": lambda a: a / 2,
    "remainder_3": lambda a: a % 3,
    "remainder_minus_3": lambda a: a % -3 if a.dtype is not torch.uint8 else a % 5,
    "fmod_3": lambda a: torch.fmod(a, 3),
    "floor_divide_float": lambda a: a // 2.5,
    "remainder_float": lambda a: a % 2.5,
    "pow_2": lambda a: a**2,
    "pow_3": lambda a: a**3,
    "logical_not": torch.logical_not,
    "to_bool": lambda a: a.bool(),
    "is_zero": lambda a: a == 0,
    "above_limit": lambda a: a > 2**53 - 1 if a.dtype is torch.int64 else a > 100,
    "sum": lambda a: a.sum(),
    "cumsum": lambda a: a.cumsum(0),
    "prod": lambda a: a[:4].prod(),
    "cumprod": lambda a: a[:4].cumprod(0),
    "max": lambda a: a.max(),
    "amin": lambda a: a.amin(0),
    "argmax": lambda a: a.argmax(),
    "argmin": lambda a: a.argmin(),
    "sort": lambda a: a.sort(stable=True),
    "argsort_descending": lambda a: a.argsort(descending=True, stable=True),
    "mean_of_float": lambda a: a.float().mean(),
    "any": lambda a: a.any(),
    "all": lambda a: a.all(),
    "cat": lambda a: torch.cat([a, a + 1]),
    "flip": lambda a: a.flip(0),
    "masked_fill": lambda a: a.masked_fill(a < 2, 1),
    "cummax": lambda a: a.cummax(0),
    "to_float": lambda a: a.float(),
    "to_double": lambda a: a.double(),
    "to_half": lambda a: a.half(),
    "sqrt": lambda a: a.abs().sqrt(),
    "isin": lambda a: torch.isin(a, torch.tensor([1, 3, 7])),
    "bucketize": lambda a: torch.bucketize(a, torch.tensor([-3, 0, 5])),
    "count_nonzero": lambda a: a.count_nonzero(),
    "roll": lambda a: a.roll(1),
    "unique_diff": lambda a: a[1:] - a[:-1],
    "dot": lambda a: (a * a).sum(),
    "matmul": lambda a: a[:4].reshape(2, 2) @ a[4:8].reshape(2, 2),
    "shift_left_1": lambda a: a << 1,
    "shift_right_1": lambda a: a >> 1,
}


def integers() -> Iterator[Row]:
    for dtype in INTEGERS:
        values = extremes(dtype)
        for name, fn in TWO.items():
            yield row(f"{name} {short(dtype)}", fn, *pairs(values, values))
        a, b = pairs(values, values)
        safe = (b != 0) & ~((b == -1) & (a == torch.iinfo(dtype).min))  # the machine itself stops there
        for name, fn in DIVIDING.items():
            yield row(f"{name} {short(dtype)}", fn, a[safe], b[safe])
        for name, one in ONE.items():
            yield row(f"{name} {short(dtype)}", one, values)
        width = torch.iinfo(dtype).bits
        shifts = torch.tensor([0, 1, width - 1])
        yield row(f"shift_left {short(dtype)}", torch.bitwise_left_shift, *pairs(values, shifts))
        yield row(f"shift_right {short(dtype)}", torch.bitwise_right_shift, *pairs(values, shifts))
        yield row(f"shift_left_far {short(dtype)}", torch.bitwise_left_shift, *pairs(values, torch.tensor([width])))
        yield row(f"shift_right_far {short(dtype)}", torch.bitwise_right_shift, *pairs(values, torch.tensor([width])))
        powers = pairs(torch.tensor([-3, -2, -1, 0, 1, 2, 3]).to(dtype), torch.tensor([0, 1, 2, 5]))
        yield row(f"pow {short(dtype)}", torch.pow, *powers)
        ids = torch.tensor([0, 1, 2, 3, 4], dtype=dtype)
        yield row(f"one_hot {short(dtype)}", lambda a: F.one_hot(a.long(), 5), ids, example=(ids,))
        mixed = extremes(dtype)
        yield row(f"add_float {short(dtype)}", lambda a: a + 0.5, mixed)
        yield row(f"mul_float {short(dtype)}", lambda a: a * 0.1, mixed)
        yield row(f"to_int64_mul {short(dtype)}", lambda a: a.long() * 1000, mixed)
        yield row(f"to_int32 {short(dtype)}", lambda a: a.int(), mixed)
        yield row(f"to_int8 {short(dtype)}", lambda a: a.to(torch.int8), mixed)
        yield row(f"to_uint8 {short(dtype)}", lambda a: a.to(torch.uint8), mixed)
        yield row(f"topk {short(dtype)}", lambda a: a.topk(5).values, mixed)
        yield row(f"median {short(dtype)}", lambda a: a.median(), mixed)
        yield row(f"searchsorted {short(dtype)}", lambda a: torch.searchsorted(a.sort().values, a, right=True), mixed)


def within() -> Iterator[Row]:
    """The same with numbers that no engine can fail to hold: OpenVINO's guard turns the extremes down."""
    values = torch.tensor([-4096, -4095, -1000, -100, -8, -7, -3, -2, -1, 0, 1, 2, 3, 7, 8, 100, 1000, 4095, 4096])
    for dtype in (torch.int32, torch.int64):
        a, b = pairs(values.to(dtype), values)
        for name, fn in TWO.items():
            yield row(f"{name} {short(dtype)} within", fn, a, b)
        for name, fn in DIVIDING.items():
            yield row(f"{name} {short(dtype)} within", fn, a[b != 0], b[b != 0])
        for name, one in ONE.items():
            yield row(f"{name} {short(dtype)} within", one, values.to(dtype))


def casts() -> Iterator[Row]:
    inside = torch.tensor([0.0, -0.0, 0.5, -0.5, 1.9, -1.9, 2.5, -2.5, 100.7, -100.7])
    for dtype in INTEGERS:
        info = torch.iinfo(dtype)
        yield row(f"float32 to {short(dtype)}", lambda a, d=dtype: a.to(d), inside.clamp_min(max(info.min, -200)))
        beyond = torch.tensor([300.0, -300.0, 70000.0, 3e9, -3e9])
        yield row(f"float32 beyond to {short(dtype)}", lambda a, d=dtype: a.to(d), beyond)
        odd = torch.tensor([NAN, INF, -INF, 1e20])
        yield row(f"float32 odd to {short(dtype)}", lambda a, d=dtype: a.to(d), odd)
    yield row("float64 to float32", lambda a: a.float(), torch.tensor([1e300, 1e-300, 0.1, -1e39], dtype=torch.float64))
    yield row("float32 to float16", lambda a: a.half(), torch.tensor([1e5, 65504.0, 65519.0, 65520.0, 1e-8, 0.1]))
    yield row("float32 to bfloat16", lambda a: a.bfloat16(), torch.tensor([3.4e38, 1.00390625, 1.01171875, 0.1]))
    yield row("int64 as float32 and back", lambda a: a.float().long(), torch.tensor([2**24 + 1, -(2**24) - 1, 7]))
    yield row(
        "int64 compare near 2**53", lambda a, b: a < b, torch.tensor([2**53, 2**53 + 1]), torch.tensor([2**53 + 1] * 2)
    )
    yield row(
        "int32 compare near 2**24",
        lambda a, b: (a < b, a == b),
        *pairs(
            torch.tensor([2**24, 2**24 + 1, 2**24 + 2], dtype=torch.int32), torch.tensor([2**24, 2**24 + 1, 2**24 + 2])
        ),
    )
    yield row(
        "int32 max near 2**24",
        lambda a: (a.max(), a.argmax(), a.sort().values),
        torch.tensor([2**24, 2**24 + 1, 2**24 + 2, 2**24 + 1], dtype=torch.int32),
    )
    yield row(
        "int32 sum near 2**24",
        lambda a: (a.sum(), a.sum(dtype=torch.int32), a.cumsum(0)),
        torch.tensor([2**24, 2**24 + 1, 1], dtype=torch.int32),
    )
    yield row(
        "int32 abs neg near 2**24",
        lambda a: (a.abs(), -a, a.sign(), a * 3, a + 1),
        torch.tensor([2**24 + 1, -(2**24) - 1, 2**28 + 1], dtype=torch.int32),
    )
    yield row("int64 round trip of a sum", lambda a: a.sum() % 1000, torch.tensor([2**24 + 1, 5, 2**25 + 3]))
    yield row("uint8 image", lambda a: a.float() / 255 - 0.5, torch.tensor([0, 1, 127, 128, 255], dtype=torch.uint8))
    yield row("arange of a size", lambda a: torch.arange(a.shape[0]) * a, torch.tensor([3, -4, 5]))


def bools() -> Iterator[Row]:
    a, b = torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])
    for name, fn in {
        "and": torch.logical_and,
        "or": torch.logical_or,
        "xor": torch.logical_xor,
        "bitwise_and": torch.bitwise_and,
        "bitwise_xor": torch.bitwise_xor,
        "add": torch.add,
        "mul": torch.mul,
        "eq": torch.eq,
        "lt": torch.lt,
        "maximum": torch.maximum,
        "divide": lambda a, b: a / (b | True),
    }.items():
        yield row(f"{name} bool", fn, a, b)
    for name, one in {
        "bitwise_not": torch.bitwise_not,
        "logical_not": torch.logical_not,
        "sum": lambda a: a.sum(),
        "cumsum": lambda a: a.cumsum(0),
        "prod": lambda a: a.prod(),
        "any": lambda a: a.any(),
        "all": lambda a: a.all(),
        "to_float": lambda a: a.float(),
        "to_long": lambda a: a.long() * 3,
        "times_float": lambda a: a * 2.5,
        "minus_one": lambda a: 1 - a.long(),
        "argmax": lambda a: a.int().argmax(),
        "where": lambda a: torch.where(a, 1.0, -1.0),
        "masked_fill": lambda a: torch.ones(4).masked_fill(a, -INF),
        "max": lambda a: a.max(),
        "mean": lambda a: a.float().mean(),
        "nonzero_count": lambda a: a.count_nonzero(),
    }.items():
        yield row(f"{name} bool", one, a)
