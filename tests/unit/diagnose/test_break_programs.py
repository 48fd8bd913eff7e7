"""Small programs with a known break or recompile each: the doctor names line and category, and its advice helps.

A program states what to expect at the line itself: `# expect: KIND CATEGORY`, and the words of the advice that its edit
follows: `# advice: WORDS`. Its `broken` factory has the fault; every `fixed...` factory is the program after one of the
advised edits (`fixed_too` where the advice makes two models of one). In each of them the finding is gone, and `fixed`
answers as before, unless `# answers: WHY` says why it cannot. `# edit: in the calling program` says that no edit of the
model helps; such programs are checked, but not counted among those whose model was fixed. A program whose advice begins
with "no edit is known" may do without. Every advice that the doctor has needs such a program.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from advised import advised_edit

from compilot.diagnose.edits import NONE_KNOWN, Edit

pytestmark = pytest.mark.slow  # the one process that all of them share takes most of a minute

PROGRAMS = sorted((Path(__file__).parents[2] / "data" / "breaks").glob("*.py"))
EXPECTED = re.compile(r"# expect: (\S+) (\S+)")
ADVISED = re.compile(r"# advice: (.+)")
NOT_COMPARED = re.compile(r"# answers: (.+)")
FACTORIES = re.compile(r"def (fixed\w*)\(\)")
FIXED = [f"{program}:{name}" for program in PROGRAMS for name in FACTORIES.findall(program.read_text())]
FIXED_MODELS = [
    program
    for program in PROGRAMS
    if FACTORIES.search(program.read_text()) and "# edit: in the calling program" not in program.read_text()
]

Seen = dict[str, dict[str, Any]]


def stem(program: Path) -> str:
    return program.stem


@pytest.fixture(scope="module")
def seen() -> Seen:
    """target -> what was seen of it, all from one process: tracing is quick, importing torch is not."""
    targets = [*(f"{program}:broken" for program in PROGRAMS), *FIXED]
    script = Path(__file__).with_name("examine_programs.py")
    done = subprocess.run([sys.executable, script, *targets], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def found(seen: Seen) -> dict[str, list[dict[str, Any]]]:
    """target -> its findings."""
    return {target: one["findings"] for target, one in seen.items()}


def test_there_are_enough_programs() -> None:
    assert len(PROGRAMS) >= 90
    assert len(FIXED_MODELS) >= 60


@pytest.mark.parametrize("program", PROGRAMS, ids=stem)
def test_the_line_and_the_category_are_right(program: Path, seen: Seen, found: dict[str, list[dict[str, Any]]]) -> None:
    lines = enumerate(program.read_text().splitlines(), 1)
    expected = [(f"{program}:{number}", *one) for number, text in lines for one in EXPECTED.findall(text)]
    assert expected
    findings = found[f"{program}:broken"]
    assert seen[f"{program}:broken"]["unseen"] == []
    assert sorted((one["where"], one["kind"], one["category"]) for one in findings) == sorted(expected)
    assert all(one["cost_s"] > 0 for one in findings)


@pytest.mark.parametrize("program", PROGRAMS, ids=stem)
def test_the_advice_names_the_edit(program: Path, found: dict[str, list[dict[str, Any]]]) -> None:
    (words,) = ADVISED.findall(program.read_text())
    advice = [one["advice"] for one in found[f"{program}:broken"]]
    assert any(words in one for one in advice)
    if not FACTORIES.search(program.read_text()):
        assert all(one.startswith(NONE_KNOWN) for one in advice)


@pytest.mark.parametrize("target", FIXED, ids=lambda target: Path(target).name)
def test_the_advised_edit_makes_it_disappear(target: str, seen: Seen) -> None:
    assert seen[target]["findings"] == []
    assert seen[target]["unseen"] == []  # a call that fails has no findings either
    assert seen[target]["graphs"] >= 1


@pytest.mark.parametrize("program", PROGRAMS, ids=stem)
def test_the_advised_edit_keeps_the_answers(program: Path, seen: Seen) -> None:
    targets = [target for target in FIXED if target == f"{program}:fixed"]
    if NOT_COMPARED.search(program.read_text()):
        assert targets
        return
    for target in targets:
        assert seen[target]["answer"] == pytest.approx(seen[f"{program}:broken"]["answer"], rel=1e-5, nan_ok=True)


def test_every_advice_about_code_has_programs(found: dict[str, list[dict[str, Any]]]) -> None:
    of_code = list(Edit)[: list(Edit).index(Edit.EVAL)]
    shown = {
        advised_edit(one["advice"])
        for program in PROGRAMS
        for one in found[f"{program}:broken"]
        if FACTORIES.search(program.read_text())
    }
    assert [edit.name for edit in of_code if edit not in shown and not edit.value.startswith(NONE_KNOWN)] == []


@pytest.mark.parametrize("program", ["grad_mode", "thread_count", "autocast"])
def test_a_changed_state_is_reported_with_both_values(program: str, found: dict[str, list[dict[str, Any]]]) -> None:
    (finding,) = (one for target, (one, *_) in _broken(found) if Path(target).name.startswith(program))
    assert re.search(r"changed from (off to on|\d+ to \d+)", finding["explanation"])


def _broken(found: dict[str, list[dict[str, Any]]]) -> list[tuple[str, list[dict[str, Any]]]]:
    return [(target, findings) for target, findings in found.items() if target.endswith(":broken")]
