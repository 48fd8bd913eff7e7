"""Where in the user's code an export failed.

In: an error, or an operator an engine does not know and the graph it stands in. Out: one sentence with the source
line, or an operator's plain name. Covered: lines that torch quotes in the error, tracebacks, stack traces that graph
nodes carry. Not covered: errors that come from no line of Python at all; they get the sentence alone.
"""

from __future__ import annotations

import operator
import re
import traceback
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from torch.export import ExportedProgram
from torch.fx import Node

from compilot.errors import first_cause

_QUOTED = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_INNER = ("torch", "compilot", "onnx", "onnxscript", "onnx_ir", "onnxruntime", "openvino")
_MODELS = f"{Path(__file__).parents[1] / 'testing'}/"  # those of the engines' contract stand for a user's
_DATA_DEPENDENT = re.compile(r"data-dependent|Dynamic control flow|GuardOnDataDependent")
_UNKNOWN = re.compile(r"No conversion rule found for operations?: *(.+)")
_FIXED = re.compile(r"You marked (\w+) as dynamic but your code specialized it to be a constant \((\d+)\)")
_TRAILER = "The error above occurred when calling"


def cause(error: BaseException, program: ExportedProgram | None = None) -> str:
    """The first cause with its source line."""
    text = first_cause(error)
    full = str(error)
    if _DATA_DEPENDENT.search(full):
        text = "control flow or a shape depends on the values of a tensor"
    elif found := _UNKNOWN.search(full):
        text = f"operators it does not know: {found[1].strip()}"
    elif "Constraints violated" in full:
        text = _constraint(full)
    where = _quoted(full) or _from_traceback(error) or _of_operator(full, program)
    return f"{text} at {where}" if where else text


def _constraint(full: str) -> str:
    if found := _FIXED.search(full):
        return f"the declared dynamic dimension {found[1]} cannot vary: the model fixes it to {found[2]}"
    lines = [line.strip(" -") for line in full.splitlines()[1:] if line.strip() and _TRAILER not in line]
    return f"a declared dynamic dimension cannot vary: {lines[0] if lines else full}"[:400]


def _quoted(text: str) -> str | None:
    """The last line of user code that the message itself quotes."""
    return _last((m["file"], m["line"]) for m in _QUOTED.finditer(text))


def _from_traceback(error: BaseException) -> str | None:
    """The deepest frame of user code, of the innermost error that has one."""
    found = None
    at: BaseException | None = error
    while at is not None:
        found = _last((f.filename, str(f.lineno)) for f in traceback.extract_tb(at.__traceback__)) or found
        at = at.__cause__
    return found


def _of_operator(text: str, program: ExportedProgram | None) -> str | None:
    """The line that gave rise to the first operator of the graph which the message names."""
    for node in program.graph.nodes if program is not None else ():
        if node.op == "call_function" and str(node.target) in text:
            return _quoted(node.meta.get("stack_trace") or "")
    return None


def line_of(node: Node) -> str:
    """ " at file:line" of the user's code that gave rise to an operator, "" where it is not known."""
    where = _quoted(node.meta.get("stack_trace") or "")
    return f" at {where}" if where else ""


ALIASES = {  # torch's second names of one operator; an export keeps whichever the model used
    "clip": "clamp",
    "divide": "div",
    "true_divide": "div",
    "multiply": "mul",
    "subtract": "sub",
    "negative": "neg",
    "absolute": "abs",
    "arctan2": "atan2",
    "sgn": "sign",
}


def operator_name(node: Node) -> str:
    """ "add" of aten.add.Tensor; of an operator with two names the usual one."""
    if node.target is operator.getitem:
        return "getitem"
    parts = str(node.target).split(".")
    name = parts[1] if len(parts) > 1 else parts[0]
    plain = name.removesuffix("_")
    return ALIASES[plain] + name[len(plain) :] if plain in ALIASES else name


def _last(places: Iterable[tuple[str, str]]) -> str | None:
    own = [f"{file}:{line}" for file, line in places if not _is_inner(file)]
    return own[-1] if own else None


def _is_inner(file: str) -> bool:
    inner = any(file.startswith(folder) for folder in _inner_folders())
    return file.startswith("<") or (inner and not file.startswith(_MODELS))


def _inner_folders() -> list[str]:
    specs = [spec for name in _INNER if (spec := find_spec(name)) is not None]
    return [f"{Path(place)}/" for spec in specs for place in spec.submodule_search_locations or ()]
