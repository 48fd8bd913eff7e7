"""What torch.export knows of shapes, in plain terms. Checked on torch 2.13.0.

In: an exported program, or a size of one of its tensors. Out: fake tensors of its inputs and outputs, and sizes as
text. Not covered: sizes that only exist after the call (unbacked symbols) and functions other than integer
arithmetic: None.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.export import ExportedProgram


def user_inputs(program: ExportedProgram) -> list[torch.Tensor]:
    """Fake tensors of the user's inputs, in order. Checked on torch 2.13.0."""
    wanted = set(program.graph_signature.user_inputs)
    return [node.meta["val"] for node in program.graph.nodes if node.op == "placeholder" and node.name in wanted]


def user_outputs(program: ExportedProgram) -> list[torch.Tensor]:
    """Fake tensors of the user's outputs, in order. Checked on torch 2.13.0."""
    return [node.meta["val"] for node in program.graph.output_node().args[0]]


def symbol_of(size: Any) -> Any:
    """The symbol that a size is, None for a number or anything more complex. Checked on torch 2.13.0."""
    expression = size.node.expr if isinstance(size, torch.SymInt) else None
    return expression if expression is not None and expression.is_Symbol else None


def size_text(size: Any, names: Mapping[Any, str]) -> int | str | None:
    """A size as a number or as arithmetic over names; None when it is neither. Checked on torch 2.13.0."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    return _text(size.node.expr, names)


def _text(expression: Any, names: Mapping[Any, str]) -> int | str | None:
    if expression.is_Integer:
        return int(expression)
    if expression.is_Symbol:
        return names.get(expression)
    parts = [_text(part, names) for part in expression.args]
    if any(part is None for part in parts):
        return None
    return _join(type(expression).__name__, [f"({part})" if isinstance(part, str) else str(part) for part in parts])


def _join(kind: str, parts: list[str]) -> str | None:
    if kind in ("Add", "Mul"):
        return {"Add": " + ", "Mul": " * "}[kind].join(parts)
    if kind in ("FloorDiv", "CleanDiv"):
        return " // ".join(parts)
    if kind in ("Max", "Min"):
        return f"_{kind.lower()}({', '.join(parts)})"
    return None


def largest_size(program: ExportedProgram, size: Any, otherwise: int) -> int:
    """The largest value that a size may have; otherwise: where its range is open. Checked on torch 2.13.0."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    bounds = program.range_constraints.get(size.node.expr)
    upper = bounds.upper if bounds is not None else None
    return int(upper) if upper is not None and upper.is_Integer else otherwise


def constant(program: ExportedProgram, name: str) -> torch.Tensor | None:
    """The weight, buffer or lifted constant behind an input of the graph. Checked on torch 2.13.0."""
    signature = program.graph_signature
    places = (signature.inputs_to_parameters, signature.inputs_to_buffers, signature.inputs_to_lifted_tensor_constants)
    where = next((names[name] for names in places if name in names), "")
    found: torch.Tensor | None = program.state_dict.get(where, program.constants.get(where))
    return found


def is_constraint_violation(error: BaseException) -> bool:
    """True when the model contradicts what was declared about its sizes. Checked on torch 2.13.0."""
    return type(error).__name__ == "UserError" and "Constraints violated" in str(error)


def writes_in_place(program: ExportedProgram) -> bool:
    """True when any operator of the graph writes to one of its arguments. Checked on torch 2.13.0."""
    modules = [m for m in program.graph_module.modules() if isinstance(m, torch.fx.GraphModule)]
    targets = {node.target for module in modules for node in module.graph.nodes if node.op == "call_function"}
    return any(isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable for target in targets)
