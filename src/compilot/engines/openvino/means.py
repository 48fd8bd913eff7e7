"""OpenVINO, tuning plane: what it computes otherwise than eager, measured with bench/operator_meaning.py.

In: an export. Out: the export with those operators written otherwise, or Infeasible by name. Its division of integers
cuts off where eager's rounds down, rows that a mask hides altogether are NaN, `%` of floats loses its digits where
the quotient is large. Not covered: integers that get too large (integers.py).
"""

from __future__ import annotations

from torch.fx import Node

from compilot.engines.meaning import is_float
from compilot.engines.rewriting import (
    after_cast,
    attention_of_masked_rows,
    floor_from_trunc,
    log_sigmoid_from_softplus,
    logaddexp_from_softplus,
)
from compilot.engines.whereabouts import operator_name

REWRITTEN = {
    "div": floor_from_trunc,
    "floor_divide": floor_from_trunc,
    "cumsum": after_cast,
    "clamp": after_cast,
    "clamp_min": after_cast,
    "clamp_max": after_cast,
    "scaled_dot_product_attention": attention_of_masked_rows,
    "log_sigmoid": log_sigmoid_from_softplus,
    "logaddexp": logaddexp_from_softplus,
}


def _quotient_of_floats(node: Node) -> str:
    rounded = operator_name(node) != "div" or node.kwargs.get("rounding_mode") is not None
    return "OpenVINO rounds a quotient of floats before it is cut off" if rounded and is_float(node) else ""


def _signs(node: Node) -> str:
    return "OpenVINO does not tell -0.0 from 0.0"


REFUSED = {
    "remainder": _quotient_of_floats,
    "fmod": _quotient_of_floats,
    "floor_divide": _quotient_of_floats,
    "div": _quotient_of_floats,
    "atan2": _signs,
    "signbit": _signs,
}
