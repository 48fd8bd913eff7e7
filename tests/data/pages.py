"""README.md and docs/ as tests see them: blocks of code, marks of blocks that are not run, lines of commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
SHELL = ("", "bash", "console")
MARK = re.compile(r"<!-- not run: (.+) -->\n\Z")


class Block(NamedTuple):
    """A block of code in a page."""

    page: str
    line: int
    language: str
    text: str
    not_run: str  # why; "": it is run

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(text: str, page: str = "page.md") -> Iterator[Block]:
    """Every fenced block, in order."""
    for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        before = text[: found.start()]
        mark = MARK.search(before)
        yield Block(page, before.count("\n") + 1, found[1], found[2], mark[1] if mark else "")


def lines_of(text: str, program: str) -> list[str]:
    """The lines of shell blocks that begin with this program, without the comments behind them."""
    lines = [line for block in blocks_of(text) if block.language in SHELL for line in block.text.splitlines()]
    found = [line.strip().removeprefix("$ ") for line in lines]
    return [line.partition("  #")[0].strip() for line in found if re.match(rf"{program}\b", line)]
