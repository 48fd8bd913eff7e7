"""What to do about a graph break, for this very line. In: a category and the line of source. Out: one sentence.

Covered: the line rewritten where that can be done from its text; otherwise the usual edit for its kind. Not covered:
recompiles (guards.py says what changed, recompiles.py what to do).
"""

from __future__ import annotations

import ast
import re

from compilot.diagnose.report_records import Category, CodeFrame

_READ = re.compile(r"\.(item|tolist)\(\)")
_NUMBER = re.compile(r"\b(int|float|bool)\(([\w.]+)\)")
_ONE_LINE = 72  # a longer rewritten line is not quoted

_USUAL = {
    Category.DATA_DEPENDENT_BRANCH: "compute both sides and choose with torch.where(test, a, b), or use torch.cond",
    Category.SCALAR_READ: "keep the value a tensor, or set torch._dynamo.config.capture_scalar_outputs = True",
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
    found = special(where.source) if special and inside is None else None
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


def _branch(source: str) -> str | None:
    statement = _parsed(source)
    if isinstance(statement, ast.While):
        return f"replace the loop with torch.while_loop, its condition being `{ast.unparse(statement.test)}`"
    if isinstance(statement, ast.Assert):
        test = ast.unparse(statement.test)
        return f"move the check out of forward, or write torch._assert_async({test})"
    if isinstance(statement, ast.If):
        test = ast.unparse(statement.test)
        return f"compute both sides and choose: torch.where({test}, then, otherwise); torch.cond if a side is costly"
    return None


def _read(source: str) -> str | None:
    if _READ.search(source):
        return f"keep the tensor: {_quoted(_READ.sub('', source))}and go on with tensor arithmetic{_OR_CAPTURE}"
    number = _NUMBER.search(source)
    if number:
        return (
            f"keep `{number[2]}` a tensor (as a bound: compare torch.arange(...) with it and mask), or pass it to "
            f"forward as a Python number{_OR_CAPTURE}"
        )
    return None


_OR_CAPTURE = "; or set torch._dynamo.config.capture_scalar_outputs = True"


def _guard_line(source: str) -> str | None:
    if len(source) > _ONE_LINE or _parsed(source) is None:
        return None
    return f"delete the line, or write {_quoted(f'if not torch.compiler.is_compiling(): {source}').rstrip()}"


def _selection(source: str) -> str | None:
    match = re.search(r"\b(\w+)\[(\1 [<>=!]+ .+?)\]", source)
    if match is None:
        return None
    return (
        f"keep the full size: torch.where({match[2]}, {match[1]}, 0) in place of `{match[0]}`, if what follows "
        "allows it; or set torch._dynamo.config.capture_dynamic_output_shape_ops = True"
    )


def _with(source: str) -> str | None:
    statement = _parsed(source)
    if not isinstance(statement, ast.With):
        return None
    manager = ast.unparse(statement.items[0].context_expr)
    return f"put `with {manager}:` around the model's call instead of inside forward, or drop it"


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


def _parsed(source: str) -> ast.stmt | None:
    """The statement on a line, its block left away; None where the line alone is not one."""
    text = re.sub(r"^el(?=if )", "", source.partition("  #")[0].strip())
    for tried in (text, f"{text} pass"):
        try:
            body = ast.parse(tried).body
        except SyntaxError:
            continue
        return body[0] if body else None
    return None
