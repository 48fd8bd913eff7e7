"""Messages from below the command line are right in Python, too: none of them names an option of the command line.

Covered: every text in src/compilot outside of cli/, with the parts of formatted ones put together. Allowed: a command
to copy, in quotation marks ('compilot tune TARGET --out DIR'), and the words that commands are made of. Not covered:
docstrings, which name the command that does the same.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src" / "compilot"
FILES = sorted(path for path in SOURCES.rglob("*.py") if path.relative_to(SOURCES).parts[0] != "cli")
OPTION = re.compile(r"(?<![\w-])(?:--[a-z][a-z-]*|-[a-z](?=[.,; ]))")
COMMAND = re.compile(r"'compilot [^']*'")


def texts(source: str) -> Iterator[str]:
    """Every text but docstrings; what is put into a formatted one stands there as X."""
    tree = ast.parse(source)
    left_out = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            left_out |= {id(part) for part in node.values}
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out:
            yield node.value


def options_named(source: str) -> list[str]:
    """Texts that name an option; one that is a whole word of a command by itself is no sentence."""
    return [text for text in texts(source) if " " in text and OPTION.search(COMMAND.sub("", text))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SOURCES).as_posix())
def test_no_message_names_an_option(path: Path) -> None:
    assert options_named(path.read_text()) == []


@pytest.mark.parametrize(
    ("source", "is_named"),
    [
        ("raise E('raise --budget')", True),
        ("raise E(f'pass --resume {here} to continue it')", True),
        ("raise E('cannot write it; '\n'choose another -o.')", True),
        ("raise E(\"run 'compilot tune TARGET --out DIR' first\")", False),
        ("raise E(f\"run 'compilot tune --resume {here}' first\")", False),
        ("raise E(\"run 'compilot tune' with --out DIR first\")", True),
        ("run(['compilot', 'tune', '--resume', here])", False),
        ("def f():\n    'As `compilot tune --json` does.'", False),
        ("raise E('a well-known choice - or another one')", False),
    ],
)
def test_what_counts_as_naming_one(source: str, is_named: bool) -> None:
    assert bool(options_named(source)) is is_named
