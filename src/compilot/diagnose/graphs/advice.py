"""What to do about a graph break, for this very line. In: a category and the line of source. Out: `Advice`.

Covered: the line rewritten where that can be done from its text; otherwise the usual edit for its kind. Branches are in
branches.py, numbers read from a tensor in number_advice.py. Not covered: recompiles (`diagnose.recompiles`).
"""

from __future__ import annotations

import ast
import re

from compilot.diagnose.edits import Advice, Edit
from compilot.diagnose.graphs import scalar_reads
from compilot.diagnose.graphs.branches import branch
from compilot.diagnose.graphs.number_advice import counted, guarded, read
from compilot.diagnose.report_records import Category, CodeFrame

_USUAL = {
    Category.DATA_DEPENDENT_BRANCH: Edit.CHOOSE_ANY,
    Category.SCALAR_READ: Edit.READ_UNSEEN,
    Category.DYNAMIC_OUTPUT_SHAPE: Edit.CAPTURE_SHAPES,
    Category.PRINT: Edit.GUARD,
    Category.LOGGING: Edit.GUARD,
    Category.UNSUPPORTED_BUILTIN: Edit.MOVE_OUT,
    Category.THIRD_PARTY_CALL: Edit.COMPUTE_BEFORE,
    Category.NUMPY: Edit.USE_TORCH,
    Category.GENERATOR: Edit.NEXT_VALUE,
    Category.SIDE_EFFECT: Edit.AROUND_CALL,
    Category.HOOK: Edit.HOOK,
    Category.EXPLICIT: Edit.REMOVE_STOP,
    Category.UNSUPPORTED_OPERATOR: Edit.TRACEABLE,
    Category.UNSUPPORTED_PYTHON: Edit.OUT_OF_FORWARD,
    Category.AUTOGRAD: Edit.OUT_OF_FORWARD,
    Category.EXCEPTION: Edit.OUT_OF_FORWARD,
}
_BY_TEXT = (
    (r"deepcopy\(", Edit.CLONE),
    (r"pack_padded_sequence|pack_sequence|pad_packed_sequence", Edit.PACKED),
    (r"(?i)(lstm|gru|rnn)\w*\(", Edit.ALLOW_RNN),
    (r"(?<!torch\.)\brandom\.\w+\(", Edit.DRAW_WITH_TORCH),
    (r"\.resize_\(", Edit.RESHAPE),
)


def advise(category: Category, where: CodeFrame, inside: CodeFrame | None = None) -> Advice:
    """The edit to make at this line; inside: it happens in a library that the line calls."""
    package = _package(inside)
    if package and package != "torch":  # torch is not a program around the model, but what the user's line asked for
        return Edit.OUTSIDE_LIBRARY(package=package)
    special = _FOR_LINE.get(category)
    found = special(where) if special and inside is None else None
    return found or _by_text(where.source) or _usual(category)


def _package(inside: CodeFrame | None) -> str:
    if inside is None or "site-packages" not in inside.file:
        return ""
    return inside.file.rpartition("site-packages/")[2].partition("/")[0]


def _by_text(source: str) -> Advice | None:
    return next((edit() for pattern, edit in _BY_TEXT if re.search(pattern, source)), None)


def _usual(category: Category) -> Advice:
    if category is Category.CONTEXT_MANAGER:
        return Edit.WITH_AROUND(managers="the context manager")
    return _USUAL[category]()


def _selection(where: CodeFrame) -> Advice | None:
    match = re.search(r"\b(?P<tensor>\w+)\[(?P<test>(?P=tensor) [<>=!]+ .+?)\]", where.source) or re.search(
        r"\btorch\.masked_select\((?P<tensor>\w+), (?P<test>[^()]+)\)", where.source
    )
    return Edit.MASK(**match.groupdict(), selection=match[0]) if match is not None else None


def _with(where: CodeFrame) -> Advice | None:
    statement = scalar_reads.statement_at(where)
    if not isinstance(statement, ast.With):
        return None
    managers = ", ".join(ast.unparse(item.context_expr) for item in statement.items)
    return Edit.WITH_AROUND(managers=f"`with {managers}:`")


def _builtin(where: CodeFrame) -> Advice | None:
    """A loop over range(tensor) is one that runs as often as a tensor says."""
    statement = scalar_reads.statement_at(where)
    loop = statement.iter if isinstance(statement, ast.For) else None
    if not isinstance(loop, ast.Call) or scalar_reads.function_name(loop) != "range" or not loop.args:
        return None
    return counted(statement, ast.unparse(loop.args[-1]))


def _autograd(where: CodeFrame) -> Advice | None:
    if ".apply(" in where.source:
        return Edit.GRADIENT_OF_FUNCTION()
    return Edit.GRADIENTS_OUTSIDE() if re.search(r"\bgrad\(|\.backward\(", where.source) else None


def _exception(where: CodeFrame) -> Advice | None:
    """Only what is caught can be tested first."""
    around = ast.walk(scalar_reads.function_at(where) or ast.Pass())
    tries = (node for node in around if isinstance(node, ast.Try))
    caught = any(one.lineno <= where.line <= (one.body[-1].end_lineno or one.lineno) for one in tries)
    return Edit.TEST_FIRST() if caught else None


_FOR_LINE = {
    Category.DATA_DEPENDENT_BRANCH: branch,
    Category.SCALAR_READ: read,
    Category.PRINT: guarded,
    Category.LOGGING: guarded,
    Category.DYNAMIC_OUTPUT_SHAPE: _selection,
    Category.CONTEXT_MANAGER: _with,
    Category.UNSUPPORTED_BUILTIN: _builtin,
    Category.AUTOGRAD: _autograd,
    Category.EXCEPTION: _exception,
}
