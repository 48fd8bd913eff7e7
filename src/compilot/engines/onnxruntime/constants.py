"""Constants that are nearly 0 or 1 keep their meaning.

In: an ONNX program as exported, before the exporter's own optimisation. Out: the same, with such constants written so
that they are kept. The exporter drops `x + c` for c up to 1e-8 and `x * c` for c within 1e-5 of 1, as if they did
nothing: `log(x + 1e-12)` of a small x was off by 20 %. It looks at constants without dimensions only, so a constant
gets one dimension of size 1, which broadcasts to the same result. Checked on onnxscript 0.7.
Infeasible: the other operand has no dimensions either, so that the result would get one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compilot.engines.protocol import Infeasible

NEUTRAL = {"Add": 0.0, "Sub": 0.0, "Mul": 1.0, "Div": 1.0}
NEARLY = 1e-4  # ten times as far as the exporter looks


def keep_small(model: Any) -> None:
    """Rewrite the constants of a model (onnx_ir.Model) in place."""
    for node in [*model.graph.all_nodes()]:
        neutral = NEUTRAL.get(node.op_type)
        if neutral is not None and not node.domain:
            for number, value in enumerate(node.inputs):
                if _is_nearly(value, neutral):
                    _spread(node, number)


def _is_nearly(value: Any, neutral: float) -> bool:
    """A constant of no dimensions that is almost, but not quite, the number that changes nothing."""
    held = None if value is None else _held(value)
    if held is None or held.ndim or held.dtype.kind != "f":
        return False
    return bool(held != neutral and abs(float(held) - neutral) <= NEARLY)


def _held(value: Any) -> Any:
    """The numbers of a constant; None for what is computed."""
    if value.const_value is not None:
        return value.const_value.numpy()
    maker = value.producer()
    if maker is None or maker.op_type != "Constant" or "value" not in maker.attributes:
        return None
    return maker.attributes["value"].as_tensor().numpy()


def _spread(node: Any, number: int) -> None:
    import onnx_ir as ir

    value, other = node.inputs[number], node.inputs[1 - number]
    if other.shape is None or not len(other.shape):
        raise Infeasible(
            f"the exporter would drop the constant {float(_held(value)):g} of an operation on single numbers"
        )
    constant = ir.node("Constant", [], {"value": ir.tensor(np.reshape(_held(value), (1,)))})
    node.graph.insert_before(node, constant)
    node.replace_input_with(number, constant.outputs[0])
