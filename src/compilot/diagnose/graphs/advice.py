"""What to do about a graph break, for this very line. In: a category and the line of source. Out: one sentence.

Covered: the line rewritten where that can be done from its text; otherwise the usual edit for its kind. What a number
read from a tensor is needed for decides what may stand in its place (scalar_reads.py). Not covered: recompiles
(`diagnose.recompiles`).
"""

from __future__ import annotations

import ast
import re

from compilot.diagnose.graphs import scalar_reads
from compilot.diagnose.graphs.scalar_reads import Use
from compilot.diagnose.graphs.tensor_tests import tensor_test
from compilot.diagnose.report_records import Category, CodeFrame

_READ = re.compile(r"\.(item|tolist)\(\)")
_ONE_LINE = 72  # a longer rewritten line is not quoted

_USUAL = {
    Category.DATA_DEPENDENT_BRANCH: "compute both sides and choose with torch.where(test, a, b), or use torch.cond",
    Category.SCALAR_READ: "keep the value a tensor; where it decides no branch and no loop, setting "
    "torch._dynamo.config.capture_scalar_outputs = True helps, too",
    Category.DYNAMIC_OUTPUT_SHAPE: "keep the full size and mask with torch.where(condition, value, 0) instead of "
    "selecting, or set torch._dynamo.config.capture_dynamic_output_shape_ops = True",
    Category.PRINT: "delete the line, or put it under `if not torch.compiler.is_compiling():`",
    Category.LOGGING: "delete the line, or put it under `if not torch.compiler.is_compiling():`",
    Category.UNSUPPORTED_BUILTIN: "move the call out of forward (into __init__, or before the model is called)",
    Category.THIRD_PARTY_CALL: "compute it once in __init__ or before the call and pass the result in, or wrap it with "
    "torch.library.custom_op so that the graph can hold it",
    Category.NUMPY: "write it with torch functions, or wrap it with torch.library.custom_op for the graph to hold",
    Category.GENERATOR: "turn the generator into a list before the call, or pass the next value as an argument",
    Category.CONTEXT_MANAGER: "take the `with` out of forward and put it around the model's call, or drop it",
    Category.SIDE_EFFECT: "do it before or after the model's call, or return the value and store it there",
    Category.AUTOGRAD: "take gradients outside of forward, or set torch._dynamo.config.trace_autograd_ops = True; "
    "write a custom gradient with forward and backward only",
    Category.HOOK: "put what the hook does into forward, or take the hook away when not debugging",
    Category.EXCEPTION: "test the condition first (shapes and types are known while tracing) instead of catching",
    Category.EXPLICIT: "remove torch.compiler.disable or graph_break here, if its reason is gone",
    Category.UNSUPPORTED_OPERATOR: "use an operator that can be traced, or wrap it with torch.library.custom_op",
    Category.UNSUPPORTED_PYTHON: "write it in plainer Python, or move it out of forward",
}


def advise(category: Category, where: CodeFrame, inside: CodeFrame | None = None) -> str:
    """The edit to make at this line."""
    special = _FOR_LINE.get(category)
    found = special(where) if special and inside is None else None
    usual = found or _special_text(where.source) or _USUAL[category]
    if inside is None or "site-packages" not in inside.file or usual != _USUAL[category]:
        return usual
    package = inside.file.rpartition("site-packages/")[2].partition("/")[0]
    if package == "torch":  # not a program around the model, but what the user's line asked for
        return usual
    return (
        f"the code is {package}'s: call it outside of the compiled part (compile the model that it calls); or {usual}"
    )


def _special_text(source: str) -> str | None:
    if "deepcopy(" in source:
        return "write tensor.clone() instead of copy.deepcopy(tensor)"
    if re.search(r"\b(lstm|gru|rnn)\b", source, re.IGNORECASE):
        return "compile the parts around the recurrent layer only, or set torch._dynamo.config.allow_rnn = True"
    if re.search(r"(?<!torch\.)\brandom\.\w+\(", source):
        return "draw it with torch (torch.rand, torch.randn): those numbers are made within the graph"
    if ".resize_(" in source:
        return "make a tensor of the new shape with reshape(), or new_empty(), instead of resizing in place"
    return None


def _branch(where: CodeFrame, numbers: tuple[str, ...] = ("bool",)) -> str | None:
    """For a test on tensors; `numbers` are the conversions in it that read one."""
    statement = scalar_reads.parsed(where.source)
    if isinstance(statement, ast.While | ast.Assert | ast.If):
        test = tensor_test(statement.test, numbers)
        return None if test is None else _BRANCHES[type(statement)].format(test=test)
    choice = next((node for node in ast.walk(statement or ast.Pass()) if isinstance(node, ast.IfExp)), None)
    test = tensor_test(choice.test, numbers) if choice is not None else None
    if choice is None or test is None:
        return None
    return _CHOOSE.format(test=test, a=ast.unparse(choice.body), b=ast.unparse(choice.orelse))


_CHOOSE = "compute both sides and choose: torch.where({test}, {a}, {b}); torch.cond if a side is costly"
_BRANCHES: dict[type[ast.stmt], str] = {
    ast.While: "replace the loop with torch.while_loop, its condition being `{test}`",
    ast.Assert: "move the check out of forward, or write torch._assert_async({test})",
    ast.If: _CHOOSE.replace("{a}, {b}", "then, otherwise"),
}


def _read(where: CodeFrame) -> str | None:
    statement = scalar_reads.parsed(where.source)
    found = scalar_reads.reads(statement) if statement is not None else []
    if statement is None or not found:
        return None
    tensor, use = ast.unparse(scalar_reads.tensor_of(found[0])), scalar_reads.use_of(where)
    if use is Use.BRANCH:
        rewritten = _branch(where, scalar_reads.NUMBERS)
        return rewritten or f"keep `{tensor}` a tensor, {_USUAL[Category.DATA_DEPENDENT_BRANCH]}"
    if use is Use.COUNT:
        return _counted(statement, tensor)
    if use is Use.BOUND or not isinstance(found[0].func, ast.Attribute):
        bound = f"keep `{tensor}` a tensor (as a bound: compare torch.arange(...) with it and mask)"
        return f"{bound}, or pass it to forward as a Python number{_OR_CAPTURE}"
    return f"keep the tensor: {_quoted(_READ.sub('', where.source))}and go on with tensor arithmetic{_OR_CAPTURE}"


def _counted(statement: ast.stmt, tensor: str) -> str:
    """A loop that runs as often as a tensor says: its length must be known, so the rest of the steps change nothing."""
    step = ast.unparse(statement.target) if isinstance(statement, ast.For) else "step"
    keep = f"torch.where({'step' if step == '_' else step} < {tensor}, new, x)"
    return (
        f"run the loop a fixed number of times, the most that can occur, and keep the old value in the rest of them: "
        f"x = {keep}; or pass the number to forward as a Python number"
    )


_OR_CAPTURE = "; or set torch._dynamo.config.capture_scalar_outputs = True"


def _guard_line(where: CodeFrame) -> str | None:
    source = where.source
    if len(source) > _ONE_LINE or scalar_reads.parsed(source) is None:
        return None
    return f"delete the line, or write {_quoted(f'if not torch.compiler.is_compiling(): {source}').rstrip()}"


def _selection(where: CodeFrame) -> str | None:
    match = re.search(r"\b(\w+)\[(\1 [<>=!]+ .+?)\]", where.source)
    if match is None:
        return None
    return (
        f"keep the full size: torch.where({match[2]}, {match[1]}, 0) in place of `{match[0]}`, if what follows "
        "allows it; or set torch._dynamo.config.capture_dynamic_output_shape_ops = True"
    )


def _with(where: CodeFrame) -> str | None:
    statement = scalar_reads.parsed(where.source)
    if not isinstance(statement, ast.With):
        return None
    managers = ", ".join(ast.unparse(item.context_expr) for item in statement.items)
    return f"put `with {managers}:` around the model's call instead of inside forward, or drop it"


_FOR_LINE = {
    Category.DATA_DEPENDENT_BRANCH: _branch,
    Category.SCALAR_READ: _read,
    Category.PRINT: _guard_line,
    Category.LOGGING: _guard_line,
    Category.DYNAMIC_OUTPUT_SHAPE: _selection,
    Category.CONTEXT_MANAGER: _with,
}


def _quoted(source: str) -> str:
    return f"`{source.partition('  #')[0].strip()}` "
