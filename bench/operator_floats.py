"""Rows of floats: both zeros, halves, large, small and odd numbers, functions that saturate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from operator_rows import FLOATS, INF, NAN, Row, pairs, row, short


def float_edges(dtype: torch.dtype) -> Tensor:
    """Zeros of both signs, halves, large and small numbers."""
    info = torch.finfo(dtype)
    edges = [0.0, 0.5, 1.0, 1.5, 2.5, 3.5, 7.0, 1e-3, 100.25, 1000.0, info.tiny * 4, info.max, 1 / info.eps, 1e4]
    return torch.tensor([sign * edge for edge in edges for sign in (1.0, -1.0)], dtype=torch.float64).to(dtype)


def _with_odd(values: Tensor) -> Tensor:
    return torch.cat([values, torch.tensor([NAN, INF, -INF], dtype=values.dtype)])


FLOAT_ONE: dict[str, Callable[[Tensor], Any]] = {
    "round": torch.round,
    "round_2": lambda a: torch.round(a.clamp(-1e3, 1e3), decimals=2),
    "floor": torch.floor,
    "ceil": torch.ceil,
    "trunc": torch.trunc,
    "frac": lambda a: a.clamp(-1e4, 1e4).frac(),
    "sign": torch.sign,
    "signbit": torch.signbit,
    "sgn": torch.sgn,
    "reciprocal": torch.reciprocal,
    "rsqrt": torch.rsqrt,
    "sqrt": torch.sqrt,
    "remainder_3": lambda a: a % 3.0,
    "remainder_minus": lambda a: a % -2.5,
    "fmod_3": lambda a: torch.fmod(a, 3.0),
    "floor_divide_3": lambda a: a // 3.0,
    "div_trunc_3": lambda a: torch.div(a, 3.0, rounding_mode="trunc"),
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "isfinite": torch.isfinite,
    "nan_to_num": lambda a: torch.nan_to_num(a, nan=1.0, posinf=7.0, neginf=-7.0),
    "nan_to_num_default": torch.nan_to_num,
    "relu": torch.relu,
    "clamp": lambda a: a.clamp(-1.0, 2.0),
    "clamp_min": lambda a: a.clamp_min(0.0),
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "hardtanh": F.hardtanh,
    "relu6": F.relu6,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "selu": F.selu,
    "celu": F.celu,
    "softplus": F.softplus,
    "softplus_low": lambda a: F.softplus(a, beta=2.0, threshold=5.0),
    "softsign": F.softsign,
    "mish": F.mish,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda a: F.gelu(a, approximate="tanh"),
    "logsigmoid": F.logsigmoid,
    "tanhshrink": F.tanhshrink,
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "threshold": lambda a: F.threshold(a, 0.1, 20.0),
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "log": torch.log,
    "log2": torch.log2,
    "log10": torch.log10,
    "sin": lambda a: a.clamp(-100, 100).sin(),
    "sin_large": lambda a: a.clamp(-1e4, 1e4).sin(),
    "tan": lambda a: a.clamp(-100, 100).tan(),
    "atan": torch.atan,
    "asin": torch.asin,
    "acos": torch.acos,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "asinh": torch.asinh,
    "acosh": torch.acosh,
    "atanh": torch.atanh,
    "erf": torch.erf,
    "lgamma": lambda a: a.clamp(0.5, 50).lgamma(),
    "pow_2": lambda a: a**2,
    "pow_half": lambda a: a**0.5,
    "pow_minus_1": lambda a: a**-1,
    "pow_third": lambda a: a ** (1 / 3),
    "pow_3": lambda a: a**3,
    "two_pow": lambda a: 2**a,
    "argmax": lambda a: a.argmax(),
    "argmin": lambda a: a.argmin(),
    "max": lambda a: a.max(),
    "amin": lambda a: a.amin(0),
    "sort": lambda a: a.sort(stable=True).values,
    "argsort": lambda a: a.argsort(stable=True),
    "cummax": lambda a: a.cummax(0).values,
    "sum_small": lambda a: a.clamp(-10, 10).sum(),
    "softmax": lambda a: a.softmax(0),
    "log_softmax": lambda a: a.log_softmax(0),
    "logsumexp": lambda a: a.logsumexp(0),
    "logcumsumexp": lambda a: a.clamp(-50, 50).logcumsumexp(0),
    "to_bool": lambda a: a.bool(),
    "logical_not": torch.logical_not,
    "eq_zero": lambda a: a == 0,
    "lt_one": lambda a: a < 1,
    "ne_self": lambda a: a != a,
    "neg": torch.neg,
    "abs": torch.abs,
    "one_over": lambda a: 1.0 / a,
    "times_zero": lambda a: a * 0.0,
    "minus_self": lambda a: a - a,
    "over_self": lambda a: a / a,
    "norm": lambda a: a.clamp(-100, 100).norm(),
    "cumsum": lambda a: a.clamp(-100, 100).cumsum(0),
    "heaviside": lambda a: torch.heaviside(a, torch.tensor(0.5, dtype=a.dtype)),
    "bucketize": lambda a: torch.bucketize(a, torch.tensor([-1.0, 0.0, 1.0], dtype=a.dtype)),
    "bucketize_right": lambda a: torch.bucketize(a, torch.tensor([-1.0, 0.0, 1.0], dtype=a.dtype), right=True),
    "logit": lambda a: a.clamp(0.01, 0.99).logit(),
    "any": lambda a: a.any(),
    "where_nan": lambda a: torch.where(a > 0, a, torch.zeros_like(a)),
    "multiply_mask": lambda a: a * (a > 0),
    "sinc": lambda a: torch.sinc(a.clamp(-10, 10)),
    "std": lambda a: a.clamp(-10, 10).std(),
    "var_one": lambda a: a[:1].var(),
    "deg2rad": torch.deg2rad,
    "addcdiv": lambda a: torch.addcdiv(a, a, a.abs() + 1),
    "to_half_and_back": lambda a: a.half().to(a.dtype),
}
FLOAT_TWO: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "floor_divide": torch.floor_divide,
    "div_trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "true_divide": torch.div,
    "pow": torch.pow,
    "atan2": torch.atan2,
    "copysign": torch.copysign,
    "hypot": torch.hypot,
    "eq": torch.eq,
    "lt": torch.lt,
    "clamp_tensor": lambda a, b: torch.clamp(a, min=b),
    "clamp_both": lambda a, b: torch.clamp(a, min=-b.abs(), max=b.abs()),
    "logaddexp": torch.logaddexp,
    "xlogy": torch.xlogy,
    "where": lambda a, b: torch.where(a > b, a, b),
    "lerp": lambda a, b: torch.lerp(a, b, 0.3),
    "sub": torch.sub,
    "mul": torch.mul,
}


def floats() -> Iterator[Row]:
    for dtype in FLOATS:
        values = float_edges(dtype)
        kinds = {"": values} if dtype in (torch.float16, torch.bfloat16) else {"": values, " odd": _with_odd(values)}
        for kind, edges in kinds.items():
            for name, fn in FLOAT_ONE.items():
                yield row(f"{name} {short(dtype)}{kind}", fn, edges)
            for name, two in FLOAT_TWO.items():
                yield row(f"{name} {short(dtype)}{kind}", two, *pairs(edges, edges))
    large = torch.tensor([1e10, 1e10 + 1024, -1e10, 3e12, 123456789.0, -123456789.0, 2**24 + 2.0])
    for name in ("remainder_3", "remainder_minus", "fmod_3", "floor_divide_3", "sin_large"):
        yield row(f"{name} of large", FLOAT_ONE[name], large)
        yield row(f"{name} of large float64", FLOAT_ONE[name], large.double())


SMALL: dict[str, Callable[[Tensor], Any]] = {
    "log1p": torch.log1p,
    "expm1": torch.expm1,
    "sin": torch.sin,
    "tanh": torch.tanh,
    "asinh": torch.asinh,
    "atanh": torch.atanh,
    "sinh": torch.sinh,
    "erf": torch.erf,
    "gelu": F.gelu,
    "gelu_tanh": lambda a: F.gelu(a, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "softsign": F.softsign,
    "tanhshrink": F.tanhshrink,
    "elu": F.elu,
    "selu": F.selu,
    "celu": F.celu,
    "atan": torch.atan,
    "asin": torch.asin,
    "tan": torch.tan,
    "erfinv": torch.erfinv,
}
SATURATING: dict[str, Callable[[Tensor], Any]] = {
    "sigmoid": torch.sigmoid,
    "softplus": F.softplus,
    "logsigmoid": F.logsigmoid,
    "erfc": lambda a: torch.erfc(-a / 4),
    "exp": torch.exp,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda a: F.gelu(a, approximate="tanh"),
    "mish": F.mish,
    "elu_plus_one": lambda a: F.elu(a) + 1,
    "tanh_plus_one": lambda a: torch.tanh(a / 8) + 1,
    "softmax": lambda a: a.softmax(0),
    "log_softmax": lambda a: a.log_softmax(0),
    "exp2": torch.exp2,
    "sigmoid_squared": lambda a: a.sigmoid() ** 2,
    "log1p_exp": lambda a: torch.log1p(a.exp()),
    "quick_gelu": lambda a: a * (1.702 * a).sigmoid(),
    "ndtr": torch.special.ndtr,
}


def small() -> Iterator[Row]:
    small = torch.tensor([1e-2, -1e-2, 1e-3, -1e-3, 1e-4, -1e-4, 1e-6, -1e-6, 1e-8, -1e-8, 1e-20, -1e-20])
    for name, fn in SMALL.items():
        yield row(f"{name} of small", fn, small)
        yield row(f"{name} of small float64", fn, small.double())
    low = torch.tensor([-1.0, -3.0, -5.0, -8.0, -12.0, -16.0, -19.0, -22.0, -30.0, -50.0])
    for name, fn in SATURATING.items():
        yield row(f"{name} saturating", fn, low)
        yield row(f"{name} saturating float64", fn, low.double())
