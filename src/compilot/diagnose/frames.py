"""Whose code is it? In: a stack of frames. Out: the innermost frame of the user's, and the library frame below.

Covered: torch, installed packages, the standard library and compilot itself are libraries; everything else is the
user's. A model whose whole code is installed has no frame of the user's; then the library frame is all there is.
"""

from __future__ import annotations

import ast
import linecache
import sysconfig
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol

from compilot.diagnose.report_records import CodeFrame

_PACKAGE = str(Path(__file__).resolve().parents[1])
_LIBRARY_FOLDERS = tuple(
    {str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)


FileLine = tuple[str, int]


class CodeSpot(NamedTuple):
    """A line and the function that it is in; for a whole function its first line."""

    file: str
    line: int
    function: str


class AnyFrame(Protocol):
    """What a frame of any origin has."""

    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int: ...
    @property
    def function(self) -> str: ...


@cache
def is_library(file: str) -> bool:
    """True for code that is not the user's to edit."""
    if file.startswith("<"):  # "<frozen os>", "<string>"
        return True
    folder = str(Path(file).resolve())
    return "site-packages" in folder or folder.startswith((*_LIBRARY_FOLDERS, _PACKAGE))


def code_frame(frame: AnyFrame) -> CodeFrame:
    """A place in the source, with its line of text."""
    line = _below_decorators(frame.file, frame.line)
    return CodeFrame(
        file=frame.file,
        line=line,
        function=frame.function,
        source=linecache.getline(frame.file, line).strip(),
        library=is_library(frame.file),
    )


def _below_decorators(file: str, line: int) -> int:
    """The line of the `def` where a function begins with its decorators."""
    source = linecache.getlines(file)[line - 1 :]
    if not source or not source[0].lstrip().startswith("@"):
        return line
    heads = (number for number, text in enumerate(source) if text.lstrip().startswith(("def ", "async def ")))
    return line + next(heads, 0)


def statement(file: str, line: int) -> range:
    """The lines of the statement that a line is part of, of a compound one its head; the line alone if unreadable."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return range(line, line + 1)
    heads = (_head(node) for node in ast.walk(tree) if isinstance(node, ast.stmt))
    return min((head for head in heads if line in head), key=len, default=range(line, line + 1))


def _head(node: ast.stmt) -> range:
    body: list[ast.stmt] = getattr(node, "body", [])
    end = max(body[0].lineno, node.lineno + 1) if body else (node.end_lineno or node.lineno) + 1
    return range(node.lineno, end)


def blame(stack: Sequence[AnyFrame], boundary: str) -> tuple[CodeFrame, CodeFrame | None]:
    """(the user's frame, the library frame where it happens or None); frames above the boundary file do not count."""
    above = [number for number, frame in enumerate(stack) if frame.file == boundary]
    inner = list(stack[above[-1] + 1 :]) if above else list(stack)
    last = code_frame((inner or list(stack))[-1])
    mine = [frame for frame in inner if not is_library(frame.file)]
    if not mine or not last.library:
        return last, None
    return code_frame(mine[-1]), last


def spot(frame: CodeFrame) -> str:
    """file:line of a frame."""
    return f"{frame.file}:{frame.line}"
