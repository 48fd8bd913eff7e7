"""ONNX Runtime, tuning plane: what it computes otherwise than eager, measured with bench/operator_meaning.py.

In: an export. Out: the export with those operators written otherwise, or Infeasible by name. Division of integers
with a rounding mode is exported as one of floats, integers are added and multiplied up in float64, `%` of floats
loses its digits where the quotient is large, rows that a mask hides altogether are attended to or NaN, logarithms of
sums of exponentials overflow; of 64-bit integers 2**31 is taken for less than 60 by min, max, clamp and sign.
"""

from __future__ import annotations

import torch
from torch.fx import Node

from compilot.engines.meaning import dtype_of, is_float, is_whole
from compilot.engines.rewriting import (
    attention_of_masked_rows,
    clamped_by_comparing,
    fmod_from_floor,
    larger_by_comparing,
    log_sigmoid_from_softplus,
    logaddexp_from_softplus,
    remainder_from_fmod,
    sign_by_comparing,
    smaller_by_comparing,
    sum_in_parts,
    trunc_from_floor,
)
from compilot.engines.whereabouts import operator_name

REWRITTEN = {
    "div": trunc_from_floor,
    "fmod": fmod_from_floor,
    "sum": sum_in_parts,
    "remainder": remainder_from_fmod,
    "minimum": smaller_by_comparing,
    "min": smaller_by_comparing,
    "maximum": larger_by_comparing,
    "max": larger_by_comparing,
    "clamp": clamped_by_comparing,
    "clamp_min": clamped_by_comparing,
    "clamp_max": clamped_by_comparing,
    "sign": sign_by_comparing,
    "scaled_dot_product_attention": attention_of_masked_rows,
    "log_sigmoid": log_sigmoid_from_softplus,
    "logaddexp": logaddexp_from_softplus,
}


def _product(node: Node) -> str:
    return "ONNX Runtime multiplies integers up as 64-bit floats" if is_whole(node) else ""


def _floor_of_floats(node: Node) -> str:
    floor = operator_name(node) != "div" or node.kwargs.get("rounding_mode") == "floor"
    return "ONNX Runtime rounds a quotient of floats before it is floored" if floor and is_float(node) else ""


def _signs(node: Node) -> str:
    return "ONNX Runtime does not tell -0.0 from 0.0"


def _most_of_many(node: Node) -> str:
    one = len(node.args) < 2 or not isinstance(node.args[1], Node)  # the other form compares two tensors: rewritten
    wide = dtype_of(node.args[0]) is torch.int64
    return "ONNX Runtime takes 2**31 for less than 60 in rows of 64-bit integers" if one and wide else ""


REFUSED = {
    "amax": _most_of_many,
    "amin": _most_of_many,
    "max": _most_of_many,
    "min": _most_of_many,
    "prod": _product,
    "floor_divide": _floor_of_floats,
    "div": _floor_of_floats,
    "signbit": _signs,
    "atan2": _signs,
}
