"""The sentences that docs/troubleshooting.md explains are those that compilot says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
QUOTED = re.findall(r"^> `(.+)`$", PAGE, re.MULTILINE)
REASONS = re.findall(r"`([^`]+)`", " ".join(re.findall(r"^\| (`.+?) \|", PAGE, re.MULTILINE)))
SHORTEST = 4  # letters of a piece that says something
SEAMS = re.compile(r"\.\.\.|, but |(?<=called with )|(?=, so eager answered)")  # where the source puts pieces together


def said() -> str:
    """Every text in the source; of a formatted one its fixed parts."""
    trees = [ast.parse(path.read_text()) for path in (ROOT / "src" / "compilot").rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    return "\n".join(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


SAID = said()


def strange(quoted: str) -> list[str]:
    """Pieces of a quoted sentence that compilot never says."""
    pieces = [piece.strip(" ,;") for piece in SEAMS.split(quoted)]
    return [piece for piece in pieces if len(piece) >= SHORTEST and piece not in SAID]


@pytest.mark.parametrize("quoted", [*QUOTED, *REASONS])
def test_a_quoted_sentence_is_one_that_compilot_says(quoted: str) -> None:
    assert strange(quoted) == []


def test_there_are_enough_of_them_and_an_invented_one_would_be_found() -> None:
    assert len(QUOTED) >= 20
    assert len(REASONS) >= 8
    assert strange("the frobnicator ... is upside down") == ["the frobnicator", "is upside down"]
