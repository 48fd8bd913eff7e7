"""Small programs with one known break or recompile each: the doctor names line and category, and its advice helps.

A program states what to expect at the line itself: `# expect: KIND CATEGORY`. Its `broken` factory has the fault; where
there is a `fixed` factory, that is the program after the advised edit.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = sorted((Path(__file__).parents[2] / "data" / "breaks").glob("*.py"))
MENDED = [program for program in PROGRAMS if "def fixed()" in program.read_text()]
EXPECTED = re.compile(r"# expect: (\S+) (\S+)")


def stem(program: Path) -> str:
    return program.stem


@pytest.fixture(scope="module")
def found() -> dict[str, list[dict[str, Any]]]:
    """target -> findings, all from one process: tracing is quick, importing torch is not."""
    targets = [f"{program}:broken" for program in PROGRAMS] + [f"{program}:fixed" for program in MENDED]
    script = Path(__file__).with_name("examine_programs.py")
    done = subprocess.run([sys.executable, script, *targets], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def test_there_are_enough_programs() -> None:
    assert len(PROGRAMS) >= 25
    assert len(MENDED) >= 15


@pytest.mark.parametrize("program", PROGRAMS, ids=stem)
def test_the_line_and_the_category_are_right(program: Path, found: dict[str, list[dict[str, Any]]]) -> None:
    lines = enumerate(program.read_text().splitlines(), 1)
    expected = [(f"{program}:{number}", *match.groups()) for number, text in lines if (match := EXPECTED.search(text))]
    assert len(expected) == 1
    findings = found[f"{program}:broken"]
    assert [(one["where"], one["kind"], one["category"]) for one in findings] == expected
    assert findings[0]["advice"]
    assert findings[0]["cost_s"] > 0


@pytest.mark.parametrize("program", MENDED, ids=stem)
def test_the_advised_edit_makes_it_disappear(program: Path, found: dict[str, list[dict[str, Any]]]) -> None:
    assert found[f"{program}:fixed"] == []
