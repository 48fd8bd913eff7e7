"""What to write instead of reading a number from a tensor. In: the line. Out: `Advice`, by what the number is for.

Covered: .item(), .tolist(), int(), float() and bool() on the line, and the uses of the name that the number gets there.
None: the line reads nothing that can be seen (an index, a library).
"""

from __future__ import annotations

import ast
import copy

from compilot.diagnose.edits import Advice, Edit
from compilot.diagnose.graphs import scalar_reads
from compilot.diagnose.graphs.branches import branch
from compilot.diagnose.graphs.scalar_reads import Use, Used
from compilot.diagnose.graphs.tensor_tests import as_tensors
from compilot.diagnose.report_records import CodeFrame

_BEST = {"max": "argmax", "min": "argmin"}


def read(where: CodeFrame) -> Advice | None:
    """The edit for a line that reads a number from a tensor."""
    statement = scalar_reads.statement_at(where)
    found = scalar_reads.reads(statement) if statement is not None else []
    if statement is None or not found:
        return None
    tensor, used = ast.unparse(scalar_reads.tensor_of(found[0])), scalar_reads.use_of(where)
    if used.use is Use.BRANCH:
        here = None if used.named else branch(where, scalar_reads.NUMBERS)
        return here or Edit.CHOOSE_LATER(tensor=tensor)
    if used.use is Use.VALUE:
        return _kept(statement, found)
    if used.use is Use.TEXT:
        return guarded(where)
    return _needed(used, tensor, statement, is_list=_is_list(found[0]))


def guarded(where: CodeFrame) -> Advice:
    """For a statement that only shows something."""
    statement = scalar_reads.statement_at(where)
    alone = scalar_reads.parsed(where.source)
    if not isinstance(alone, ast.Expr | ast.Assign) or statement is None or statement.lineno != statement.end_lineno:
        return Edit.GUARD()
    if any(isinstance(node, ast.Lambda) for node in ast.walk(alone)):  # the line only arranges for it
        return Edit.GUARD()
    return Edit.GUARD_LINE(line=where.source.partition("  #")[0].strip())


def counted(statement: ast.stmt | None, tensor: str) -> Advice:
    """A loop that runs as often as a tensor says: its length must be known, so the rest of the steps change nothing."""
    step = ast.unparse(statement.target) if isinstance(statement, ast.For) else "step"
    return Edit.COUNT(keep=f"torch.where({'step' if step == '_' else step} < {tensor}, new, x)")


def _needed(used: Used, tensor: str, statement: ast.stmt, *, is_list: bool) -> Advice:
    """For a number that Python itself needs."""
    call = used.by
    if used.use is Use.COUNT:
        return counted(statement, tensor)
    if used.use is Use.BOUND:
        return Edit.BOUND(tensor=tensor)
    if used.use is Use.SIZE:
        return (Edit.SPLIT_SIZES if is_list else Edit.SIZE)(tensor=tensor)
    if used.use is Use.INDEX and isinstance(call, ast.Subscript):
        return Edit.INDEX(container=ast.unparse(call.value), tensor=_in_brackets(tensor))
    if used.use is Use.ORDER:
        return _ordered(call) or Edit.COMPARED()
    assert isinstance(call, ast.Call | None)
    function = ast.unparse(call.func) if call is not None else "the function"
    if used.use is Use.MATH:
        return Edit.TORCH_MATH(function=function.replace("math.", "torch."), tensor=tensor)
    return Edit.HANDED_OVER(function=function)


def _ordered(call: ast.AST | None) -> Advice | None:
    """sorted, min and max by a key that reads a tensor; None: the call does not show what is compared."""
    if not isinstance(call, ast.Call):
        return None
    options = {one.arg: one.value for one in call.keywords}
    key = options.get("key")
    name = scalar_reads.function_name(call)
    items = call.func.value if isinstance(call.func, ast.Attribute) else next(iter(call.args), None)
    if not isinstance(key, ast.Lambda) or items is None or len(key.args.args) != 1:
        return None
    values = {
        "key": ast.unparse(as_tensors(key.body)),
        "name": key.args.args[0].arg,
        "items": ast.unparse(items),
    }
    if name in _BEST:
        return Edit.PICK(**values, best=_BEST[name])
    reverse = options.get("reverse")
    backwards = isinstance(reverse, ast.Constant) and bool(reverse.value)
    return Edit.SORT(**values, descending="descending=True" if backwards else "")


def _kept(statement: ast.stmt, found: list[ast.Call]) -> Advice:
    line = ast.unparse(as_tensors(_without_block(statement)))
    return (Edit.KEEP_LIST if _is_list(found[0]) else Edit.KEEP_TENSOR)(line=line)


def _without_block(statement: ast.stmt) -> ast.stmt:
    if not hasattr(statement, "body"):
        return statement
    head = copy.copy(statement)
    head.body, head.orelse = [ast.Expr(ast.Constant(...))], []  # type: ignore[attr-defined]
    return head


def _is_list(read: ast.Call) -> bool:
    return scalar_reads.function_name(read) == "tolist"


def _in_brackets(tensor: str) -> str:
    simple = isinstance(ast.parse(tensor, mode="eval").body, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
    return tensor if simple else f"({tensor})"
