"""Small programs with one known break or recompile each: the doctor names line and category, and its advice helps.

A program states what to expect at the line itself: `# expect: KIND CATEGORY`, and the words of the advice that its edit
follows: `# advice: WORDS`. Its `broken` factory has the fault; `fixed` is the program after the advised edit (with
`fixed_too` where the advice makes two models of one). `# edit: in the calling program` says that no edit of the model
helps; such programs are checked, but not counted among those whose model was mended.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow  # the one process that all of them share takes most of a minute

PROGRAMS = sorted((Path(__file__).parents[2] / "data" / "breaks").glob("*.py"))
EXPECTED = re.compile(r"# expect: (\S+) (\S+)")
ADVISED = re.compile(r"# advice: (.+)")
FIXED = re.compile(r"def (fixed\w*)\(\)")
MENDED = [f"{program}:{name}" for program in PROGRAMS for name in FIXED.findall(program.read_text())]
MENDED_MODELS = [
    program
    for program in PROGRAMS
    if FIXED.search(program.read_text()) and "# edit: in the calling program" not in program.read_text()
]


def stem(program: Path) -> str:
    return program.stem


@pytest.fixture(scope="module")
def seen() -> dict[str, dict[str, Any]]:
    """target -> what was seen of it, all from one process: tracing is quick, importing torch is not."""
    targets = [*(f"{program}:broken" for program in PROGRAMS), *MENDED]
    script = Path(__file__).with_name("examine_programs.py")
    done = subprocess.run([sys.executable, script, *targets], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def found(seen: dict[str, dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """target -> its findings."""
    return {target: one["findings"] for target, one in seen.items()}


def test_there_are_enough_programs() -> None:
    assert len(PROGRAMS) >= 25
    assert len(MENDED_MODELS) >= 15


@pytest.mark.parametrize("program", PROGRAMS, ids=stem)
def test_the_line_and_the_category_are_right(
    program: Path, seen: dict[str, dict[str, Any]], found: dict[str, list[dict[str, Any]]]
) -> None:
    lines = enumerate(program.read_text().splitlines(), 1)
    expected = [(f"{program}:{number}", *match.groups()) for number, text in lines if (match := EXPECTED.search(text))]
    assert len(expected) == 1
    findings = found[f"{program}:broken"]
    assert seen[f"{program}:broken"]["unseen"] == []
    assert [(one["where"], one["kind"], one["category"]) for one in findings] == expected
    assert findings[0]["cost_s"] > 0


@pytest.mark.parametrize("program", PROGRAMS, ids=stem)
def test_the_advice_names_the_edit(program: Path, found: dict[str, list[dict[str, Any]]]) -> None:
    (words,) = ADVISED.findall(program.read_text())
    assert words in found[f"{program}:broken"][0]["advice"]


@pytest.mark.parametrize("target", MENDED, ids=lambda target: Path(target).name)
def test_the_advised_edit_makes_it_disappear(target: str, seen: dict[str, dict[str, Any]]) -> None:
    assert seen[target]["findings"] == []
    assert seen[target]["unseen"] == []  # a call that fails has no findings either
    assert seen[target]["graphs"] >= 1


@pytest.mark.parametrize("program", ["grad_mode", "thread_count", "autocast"])
def test_a_changed_state_is_told_with_both_values(program: str, found: dict[str, list[dict[str, Any]]]) -> None:
    (finding,) = (one for target, (one, *_) in _broken(found) if Path(target).name.startswith(program))
    assert re.search(r"changed from (off to on|\d+ to \d+)", finding["explanation"])


def _broken(found: dict[str, list[dict[str, Any]]]) -> list[tuple[str, list[dict[str, Any]]]]:
    return [(target, findings) for target, findings in found.items() if target.endswith(":broken")]
