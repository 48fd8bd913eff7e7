"""README's picture of a run: the table that the terminal shows, and nothing that a reader's browser would fetch."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from printed import figures, svg_text

ROOT = Path(__file__).parents[3]
PICTURE = runpy.run_path(str(ROOT / "bench" / "picture.py"))
ADDRESS = re.compile(r"(?:https?:)?//[\w.-]+")
NAMESPACE = 'xmlns="http://www.w3.org/2000/svg"'  # a name, never fetched


@pytest.fixture
def drawn(run_dir: Path, tmp_path: Path) -> str:
    PICTURE["main"](str(run_dir), str(tmp_path / "demo.svg"))
    return (tmp_path / "demo.svg").read_text()


def test_it_names_no_other_host(drawn: str) -> None:
    assert ADDRESS.findall(drawn.replace(NAMESPACE, "", 1)) == []
    assert "@font-face" not in drawn
    assert "monospace" in drawn  # what is drawn with instead


def test_it_has_the_table_of_the_run(drawn: str) -> None:
    text = svg_text(drawn)
    assert "warm s" in text
    assert set(figures(text)) == {"inductor", "inductor freezing"}


def test_the_fonts_of_rich_are_taken_out_and_nothing_else() -> None:
    face = '@font-face {{\n  src: local("F"), url("https://fonts.example/{0}.woff2");\n}}\n'
    style = f"<style>{face.format('a')}{face.format('b')}.r1 {{}}</style>"
    svg = f"<svg><!-- made with https://maker.example -->\n{style}</svg>"
    assert "".join(PICTURE["without_hosts"](svg).split()) == "<svg><style>.r1{}</style></svg>"


def test_the_picture_of_the_readme_is_such_a_picture() -> None:
    picture: Any = (ROOT / "docs" / "demo.svg").read_text()
    assert PICTURE["without_hosts"](picture) == picture
    assert ADDRESS.findall(picture.replace(NAMESPACE, "", 1)) == []
