"""Sizes that vary between calls, in generated code.

In: a Structure. Out: lines that read each varying size once and refuse unequal ones, and expressions for the sizes of
outputs. Sizes come from a file, so only names of sizes and integer arithmetic over them are let through. Not covered:
whether a size is within its declared range; the guard has checked that.
"""

from __future__ import annotations

import ast

from compilot.engines.protocol import Infeasible
from compilot.engines.structure import InputTensor, Size, Structure

_ARITHMETIC = (ast.Expression, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Load, ast.UnaryOp, ast.USub)
_FUNCTIONS = {"_max": max, "_min": min}


def size_lines(structure: Structure) -> list[str]:
    """Read each varying size once; where the export made several equal, they must be."""
    lines: list[str] = []
    known: dict[str, str] = {}
    for i, tensor in enumerate(structure.inputs):
        for dim, name in _varying(tensor):
            if name not in known:
                known[name] = tensor.path
                lines.append(f"{name} = _i{i}.shape[{dim}]")
            else:
                why = f"dimension {dim} of {tensor.path} differs from that of {known[name]}"
                lines.append(f"if _i{i}.shape[{dim}] != {name}: raise _NotTaken({why!r})")
    return lines


def _varying(tensor: InputTensor) -> list[tuple[int, str]]:
    found = [(dim, size) for dim, size in enumerate(tensor.shape) if isinstance(size, str)]
    if not all(_is_size_name(size) for _, size in found):
        raise Infeasible(f"the sizes of {tensor.path} are not names; run 'compilot tune' again")
    return found


def _is_size_name(text: str) -> bool:
    return text[:2] == "_n" and text[2:].isdecimal()


def size_code(structure: Structure, size: Size) -> str:
    """One size of an output as an expression over the sizes of the inputs; only arithmetic is let through."""
    if isinstance(size, int):
        return repr(size)
    known = {name for tensor in structure.inputs for _, name in _varying(tensor)} | set(_FUNCTIONS)
    try:
        tree = ast.parse(size, mode="eval")
    except (SyntaxError, ValueError) as error:
        raise Infeasible(f"the size {size!r} is not arithmetic; run 'compilot tune' again") from error
    if not all(_is_arithmetic(node, known) for node in ast.walk(tree)):
        raise Infeasible(f"the size {size!r} is not arithmetic; run 'compilot tune' again")
    return f"({ast.unparse(tree)})"


def _is_arithmetic(node: ast.AST, known: set[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in known
    if isinstance(node, ast.Constant):
        return type(node.value) is int
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS and not node.keywords
    return isinstance(node, _ARITHMETIC)
