"""What to write instead of Python code that goes one way or the other by a tensor's value. In: the line. Out: `Advice`.

What the branch does decides: values are chosen with torch.where, a check becomes an operator, a loop is masked, and
what only Python can do is done after the call. Covered: if, elif, while, assert, conditional expressions and the
conditions of comprehensions. Not covered: whether both sides have the same shape; the advice names that condition.
"""

from __future__ import annotations

import ast

from compilot.diagnose.edits import Advice, Edit
from compilot.diagnose.graphs import scalar_reads
from compilot.diagnose.graphs.tensor_tests import tensor_test
from compilot.diagnose.report_records import CodeFrame

_SPELLED_OUT = "the test, written with torch"


def branch(where: CodeFrame, numbers: tuple[str, ...] = ("bool",)) -> Advice | None:
    """For a test on tensors; `numbers` are the conversions in it that read one. None: there is no test on the line."""
    statement = scalar_reads.statement_at(where)
    if isinstance(statement, ast.If):
        test = tensor_test(statement.test, numbers)
        return Edit.CHOOSE_PART() if test is None else _of_if(statement, test)
    if isinstance(statement, ast.While):
        return Edit.WHILE(test=tensor_test(statement.test, numbers) or _SPELLED_OUT)
    if isinstance(statement, ast.Assert):
        return Edit.CHECK(test=tensor_test(statement.test, numbers) or _SPELLED_OUT)
    return _within(statement or ast.Pass(), numbers)


def _of_if(statement: ast.If, test: str) -> Advice:
    last = statement.body[-1]
    if isinstance(last, ast.Raise):
        return Edit.CHECK(test=f"torch.logical_not({test})")
    if isinstance(last, ast.Break):
        return Edit.LEAVE_LOOP(test=test)
    if isinstance(last, ast.Continue):
        return Edit.SKIP_STEP(test=test)
    if all(map(_is_effect, (*statement.body, *statement.orelse))):
        return Edit.AFTER_CALL(test=test)
    return Edit.CHOOSE(test=test, a="then", b="otherwise")


def _is_effect(statement: ast.stmt) -> bool:
    """Only Python can do it: it stores something outside of the function, or calls something for its effect."""
    if isinstance(statement, ast.Assign | ast.AugAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return all(isinstance(target, ast.Attribute) for target in targets)
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    return not scalar_reads.function_name(statement.value).endswith("_")  # y.add_(1) changes a tensor


def _within(statement: ast.stmt, numbers: tuple[str, ...]) -> Advice | None:
    """For a test inside of an expression."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and scalar_reads.function_name(node) == "_check" and node.args:
            return Edit.CHECK(test=tensor_test(node.args[0], numbers) or _SPELLED_OUT)
        if isinstance(node, ast.comprehension) and node.ifs:
            return Edit.KEEP_ALL()
        if isinstance(node, ast.IfExp):
            test = tensor_test(node.test, numbers)
            if test is None:
                return Edit.CHOOSE_PART()
            return Edit.CHOOSE(test=test, a=ast.unparse(node.body), b=ast.unparse(node.orelse))
    return None
