"""What becomes of a number that is read from a tensor. In: a line of source and its file. Out: `Use`, and its parts.

A number that is only computed with may stay a tensor; one that decides a branch or a loop may not, whatever torch is
told to capture. Covered: the line itself, and where the line only gives the number a name, the uses of that name in the
same function. Not covered: numbers that are handed to other functions, statements of several lines.
"""

from __future__ import annotations

import ast
import enum
import linecache
import re
from collections.abc import Iterable

from compilot.diagnose.report_records import CodeFrame

_METHODS = ("item", "tolist")
NUMBERS = ("int", "float", "bool")


class Use(enum.IntEnum):
    """What a number decides; the more the later."""

    VALUE = 0  # nothing: it is computed with
    BOUND = 1  # where a slice begins or ends
    COUNT = 2  # how often a loop runs
    BRANCH = 3  # which way the code goes


DECIDES = (Use.COUNT, Use.BRANCH)  # control flow, which no setting can keep within a graph


def use_of(where: CodeFrame) -> Use:
    """What the number that this line reads decides, here or under the name that it gets here."""
    statement = parsed(where.source)
    if statement is None:
        return Use.VALUE
    found = _most(statement, reads(statement))
    names = given_names(statement)
    function = _function(where) if names and found is Use.VALUE else None
    if function is None:
        return found
    uses = (node for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
    return _most(function, [node for node in uses if node.id in names and node.lineno != where.line])


def parsed(source: str) -> ast.stmt | None:
    """The statement on a line, its block left away; None where the line alone is not one."""
    text = re.sub(r"^el(?=if )", "", source.partition("  #")[0].strip())
    for tried in (text, f"{text} pass"):
        try:
            body = ast.parse(tried).body
        except SyntaxError:
            continue
        return body[0] if body else None
    return None


def reads(tree: ast.AST, numbers: tuple[str, ...] = NUMBERS) -> list[ast.Call]:
    """The calls that read a tensor: .item() and .tolist(), or else int(), float() and bool(), those in `numbers`."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    methods = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in _METHODS]
    return methods or [
        call for call in calls if isinstance(call.func, ast.Name) and call.func.id in numbers and call.args
    ]


def tensor_of(read: ast.Call) -> ast.expr:
    """The tensor that a call reads."""
    return read.func.value if isinstance(read.func, ast.Attribute) else read.args[0]


def given_names(statement: ast.stmt) -> set[str]:
    """The names that an assignment gives."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign):
        return set()
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}


def _most(tree: ast.AST, nodes: Iterable[ast.expr]) -> Use:
    parents = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    return max((_use(node, parents) for node in nodes), default=Use.VALUE)


def _use(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> Use:
    """The first thing on the way out that the value decides."""
    while (parent := parents.get(node)) is not None:
        if _is_test(node, parent):
            return Use.BRANCH
        if isinstance(parent, ast.Slice):
            return Use.BOUND
        if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id == "range":
            return Use.COUNT
        node = parent
    return Use.VALUE


def _is_test(node: ast.AST, parent: ast.AST) -> bool:
    if isinstance(parent, ast.If | ast.While | ast.IfExp | ast.Assert):
        return node is parent.test
    if isinstance(parent, ast.comprehension):
        return node in parent.ifs
    return isinstance(parent, ast.BoolOp) or (isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not))


def _function(where: CodeFrame) -> ast.AST | None:
    """The innermost function around a line; None where its file cannot be read."""
    try:
        tree = ast.parse("".join(linecache.getlines(where.file)))
    except (SyntaxError, ValueError):
        return None
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    around = [node for node in functions if node.lineno <= where.line <= (node.end_lineno or node.lineno)]
    return max(around, key=lambda node: node.lineno, default=None)
