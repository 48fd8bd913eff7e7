"""A Python test as one on tensors, for torch.where. In: the test of an `if`. Out: its source, rewritten, or None.

`0 < x.max().item() < 5 and not done` becomes `(0 < x.max()) & (x.max() < 5) & torch.logical_not(done)`: nothing is read
from a tensor, and nothing asks for the truth of a part. None: Python must decide a part of it (`mask is not None`), or
it is not clear which of several conversions reads a tensor.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence
from typing import TypeVar

from compilot.diagnose.graphs import scalar_reads

_Node = TypeVar("_Node", bound=ast.AST)
_PYTHONS_OWN = (ast.Is, ast.IsNot, ast.In, ast.NotIn, ast.NamedExpr)


def tensor_test(test: ast.expr, numbers: tuple[str, ...]) -> str | None:
    """The test without reads; `numbers` are the conversions (int, float, bool) that read a tensor here."""
    whole = copy.deepcopy(test)
    found = scalar_reads.reads(whole, numbers)
    unclear = len(found) > 1 and not isinstance(found[0].func, ast.Attribute)
    if unclear or any(isinstance(node, _PYTHONS_OWN) for node in ast.walk(whole)):
        return None
    if whole in found and isinstance(found[0].func, ast.Attribute):  # `if x.item():` asks for the truth of a number
        return f"{ast.unparse(scalar_reads.tensor_of(found[0]))}.bool()"
    return ast.unparse(ast.fix_missing_locations(_AsTensors(found).visit(whole)))


def as_tensors(tree: _Node) -> _Node:
    """The same code with nothing read from a tensor, conversions around a read included."""
    whole = copy.deepcopy(tree)
    found = scalar_reads.reads(whole)
    around = [call for call in ast.walk(whole) if _converts(call) and any(read in ast.walk(call) for read in found)]
    return ast.fix_missing_locations(_AsTensors([*found, *around]).visit(whole))  # type: ignore[no-any-return]


def _converts(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in scalar_reads.NUMBERS


class _AsTensors(ast.NodeTransformer):
    def __init__(self, read: Sequence[ast.AST]) -> None:
        self._read = read

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if node not in self._read:
            return node
        tensor = scalar_reads.tensor_of(node)
        if isinstance(node.func, ast.Name) and node.func.id == "int":  # 3.7 > 3 holds, int(3.7) > 3 does not
            return ast.Call(ast.Attribute(tensor, "long", ast.Load()), [], [])
        return tensor

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        return _joined(node.values, ast.BitAnd() if isinstance(node.op, ast.And) else ast.BitOr())

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Not):
            return node
        return ast.Call(ast.Attribute(ast.Name("torch", ast.Load()), "logical_not", ast.Load()), [node.operand], [])

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        pairs = zip([node.left, *node.comparators], node.ops, node.comparators, strict=False)
        return _joined([ast.Compare(left, [op], [right]) for left, op, right in pairs], ast.BitAnd())


def _joined(parts: list[ast.expr], operator: ast.operator) -> ast.expr:
    whole = parts[0]
    for part in parts[1:]:
        whole = ast.BinOp(whole, operator, part)
    return whole
