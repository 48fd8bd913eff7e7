"""Operators that mean something else to an engine than to eager, and have no equal form: the candidate is infeasible.

In: an exported program and the engine's refusals. Out: nothing, or Infeasible with the operator and its line. A refusal
is asked only about operators that depend on an input; constants are folded, and every check sees them. What the engines
make of each operator was measured by bench/operator_meaning.py. Not covered: integers that get too large for OpenVINO
(openvino/integers.py); operators that can be written otherwise (rewriting.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from compilot.engines.protocol import Infeasible
from compilot.engines.whereabouts import line_of, operator_name

Refusal = Callable[[Node], str]  # why this node cannot be had, "" where it can


def refuse(program: ExportedProgram, refusals: Mapping[str, Refusal]) -> None:
    """Infeasible for the first operator that the engine computes otherwise; in-place forms count as the operator."""
    for module in program.graph_module.modules():
        if isinstance(module, GraphModule):
            for node in module.graph.nodes:
                _refuse_node(node, refusals)


def _refuse_node(node: Node, refusals: Mapping[str, Refusal]) -> None:
    name = operator_name(node) if node.op == "call_function" else ""
    refusal = refusals.get(name) or refusals.get(name.removesuffix("_"))
    if refusal is not None and node.all_input_nodes and (why := refusal(node)):
        raise Infeasible(f"{why}: '{name}'{line_of(node)}")


def dtype_of(node: object) -> torch.dtype | None:
    """Of a node that holds one tensor."""
    value = node.meta.get("val") if isinstance(node, Node) else None
    return value.dtype if isinstance(value, torch.Tensor) else None


def is_whole(node: object) -> bool:
    """True for a tensor of integers, flags not among them."""
    dtype = dtype_of(node)
    return dtype is not None and not dtype.is_floating_point and not dtype.is_complex and dtype is not torch.bool


def is_float(node: object) -> bool:
    """True for a tensor of floats."""
    dtype = dtype_of(node)
    return dtype is not None and dtype.is_floating_point
