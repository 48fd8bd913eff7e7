"""What becomes of a number that is read from a tensor. In: a line of source and its file. Out: `Used`, and its parts.

A number that is only computed with may stay a tensor; one that decides a branch, a loop or an order may not, whatever
torch is set to capture. Covered: the statement itself, and where it only gives the number a name, the uses of that
name in the same function. Not covered: what another function does with it; that is said.
"""

from __future__ import annotations

import ast
import enum
import linecache
import re
from collections.abc import Iterable
from typing import NamedTuple

from compilot.diagnose.report_records import CodeFrame

_METHODS = ("item", "tolist")
NUMBERS = ("int", "float", "bool")
_PASSES_ON = {"abs", "sum", "list", "tuple", "zip", "enumerate", "append", *NUMBERS}  # tensors do as well as numbers
_TENSORS_TOO = {"add", "sub", "mul", "div", "pow", "clamp", "clamp_min", "clamp_max", "where", "maximum", "minimum"}
_TEXTS = {"str", "repr", "print", "format", "debug", "info", "warning", "warn", "error", "write"}
_COMPARES = {"sorted", "sort", "min", "max"}
_SIZES = {
    *("zeros", "ones", "empty", "full", "rand", "randn", "arange", "eye"),
    *("new_zeros", "new_ones", "new_empty", "new_full", "view", "reshape", "expand", "repeat", "split", "narrow"),
}
_MATH = {"sqrt", "exp", "log", "sin", "cos", "tan", "tanh", "ceil", "floor", "log2", "log10", "erf"}


class Use(enum.IntEnum):
    """What a number decides; the more the later."""

    VALUE = 0  # nothing: it is computed with
    TEXT = 1  # what a message says
    MATH = 2  # the value of a function that torch has too
    CALL = 3  # something in a function that is not looked into
    SIZE = 4  # how large a tensor is
    INDEX = 5  # which one of several is taken
    BOUND = 6  # where a slice begins or ends
    ORDER = 7  # what comes first
    COUNT = 8  # how often a loop runs
    BRANCH = 9  # which way the code goes


class Used(NamedTuple):
    """What a number decides, and where."""

    use: Use
    by: ast.AST | None = None  # the call, subscript or statement that needs it
    named: bool = False  # under the name that the line gives it


DECIDES = (Use.ORDER, Use.COUNT, Use.BRANCH)  # control flow, which no setting can keep within a graph


def use_of(where: CodeFrame) -> Used:
    """What the number that this line reads decides, here or under the name that it gets here."""
    statement = statement_at(where)
    if statement is None:
        return Used(Use.VALUE)
    found = _most(statement, reads(statement))
    names = given_names(statement)
    function = function_at(where) if names and found.use is Use.VALUE else None
    if function is None:
        return found
    uses = (node for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
    later = _most(function, [node for node in uses if node.id in names and node.lineno != where.line])
    return found if later.use is Use.TEXT else later._replace(named=True)  # a message may show a tensor


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


def statement_at(where: CodeFrame) -> ast.stmt | None:
    """The whole statement at a line, with its block, from its file; else what the line alone says."""
    statements = (node for node in ast.walk(_tree(where.file)) if isinstance(node, ast.stmt))
    around = [node for node in statements if node.lineno <= where.line <= _end_of_head(node)]
    return max(around, key=lambda node: node.lineno, default=None) or parsed(where.source)


def _end_of_head(node: ast.stmt) -> int:
    body: list[ast.stmt] = getattr(node, "body", [])
    return max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or node.lineno


def function_at(where: CodeFrame) -> ast.AST | None:
    """The innermost function around a line; None where its file cannot be read."""
    functions = (n for n in ast.walk(_tree(where.file)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    around = [node for node in functions if node.lineno <= where.line <= (node.end_lineno or node.lineno)]
    return max(around, key=lambda node: node.lineno, default=None)


def _tree(file: str) -> ast.AST:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return ast.Pass()


def reads(tree: ast.AST, numbers: tuple[str, ...] = NUMBERS) -> list[ast.Call]:
    """The calls that read a tensor: .item() and .tolist(), or else int(), float() and bool(), those in `numbers`."""
    calls = [node for node in _head(tree) if isinstance(node, ast.Call)]
    methods = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in _METHODS]
    return methods or [
        call for call in calls if isinstance(call.func, ast.Name) and call.func.id in numbers and call.args
    ]


def _head(tree: ast.AST) -> Iterable[ast.AST]:
    """The nodes of a statement without those of its block."""
    block = {id(node) for part in ("body", "orelse") for node in _inside(getattr(tree, part, None))}
    return (node for node in ast.walk(tree) if id(node) not in block)


def _inside(block: object) -> Iterable[ast.AST]:
    return (node for statement in block for node in ast.walk(statement)) if isinstance(block, list) else ()


def tensor_of(read: ast.Call) -> ast.expr:
    """The tensor that a call reads."""
    return read.func.value if isinstance(read.func, ast.Attribute) else read.args[0]


def given_names(statement: ast.stmt) -> set[str]:
    """The names that an assignment or a loop gives."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.For):
        return set()
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}


def function_name(call: ast.Call) -> str:
    """The last part of a called function's name, "" where it has none."""
    func = call.func
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def _most(tree: ast.AST, nodes: Iterable[ast.expr]) -> Used:
    parents = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    return max((_use(node, parents) for node in nodes), key=lambda used: used.use, default=Used(Use.VALUE))


def _use(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> Used:
    """The first thing on the way out that the value decides."""
    while (parent := parents.get(node)) is not None:
        found = _decided(node, parent, parents)
        if found is not None:
            return found
        node = parent
    return Used(Use.VALUE)


def _decided(node: ast.AST, parent: ast.AST, parents: dict[ast.AST, ast.AST]) -> Used | None:
    """What a value decides in the node around it; None: that has the value in turn."""
    if _is_test(node, parent):
        return Used(Use.BRANCH, parent)
    if isinstance(parent, ast.Slice):
        return Used(Use.BOUND, parent)
    if isinstance(parent, ast.Subscript) and node is parent.slice:
        return Used(Use.INDEX, parent)
    if isinstance(parent, ast.FormattedValue):
        return Used(Use.TEXT, parent)
    if isinstance(parent, ast.Lambda):
        call = parents.get(parents.get(parent, parent))
        compares = isinstance(call, ast.Call) and function_name(call) in _COMPARES
        return Used(Use.ORDER if compares else Use.CALL, call)
    if isinstance(parent, ast.comprehension) and node is parent.iter:
        return _most(parents[parent], _loads(parents[parent], parent.target))
    if isinstance(parent, ast.Call) and node is not parent.func:
        return _called(node, parent)
    return None


def _called(node: ast.AST, call: ast.Call) -> Used | None:
    """What a value decides as an argument."""
    name = function_name(call)
    plain = isinstance(call.func, ast.Name)
    if plain and name == "range":
        return Used(Use.COUNT, call)
    if name in _COMPARES:  # max(a, b) of two tensors is one, too
        return None if plain and len(call.args) > 1 and node in call.args else Used(Use.ORDER, call)
    if name in _PASSES_ON or (not plain and name in _TENSORS_TOO):
        return None
    if name in _TEXTS:
        return Used(Use.TEXT, call)
    if not plain and name in _SIZES:
        return Used(Use.SIZE, call)
    return Used(Use.MATH if ast.unparse(call.func) in {f"math.{one}" for one in _MATH} else Use.CALL, call)


def _loads(tree: ast.AST, target: ast.expr) -> list[ast.expr]:
    names = {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}
    loads = (node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
    return [node for node in loads if node.id in names]


def _is_test(node: ast.AST, parent: ast.AST) -> bool:
    if isinstance(parent, ast.If | ast.While | ast.IfExp | ast.Assert):
        return node is parent.test
    if isinstance(parent, ast.comprehension):
        return node in parent.ifs
    return isinstance(parent, ast.BoolOp) or (isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not))
