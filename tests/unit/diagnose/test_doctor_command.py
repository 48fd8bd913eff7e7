"""`compilot doctor` from the outside: exit codes, JSON, and the check after an edit."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "data" / "breaks" / "printing.py"
LINE = '        print("mean", y.mean())  # expect: graph-break print\n'


def doctor(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from compilot.cli.main import run; run()", "doctor", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_finding_fails_the_gate_and_goes_away_with_its_fix(tmp_path: Path) -> None:
    model = tmp_path / "model.py"
    shutil.copy(PROGRAM, model)
    broken = doctor(tmp_path, "model.py:broken", "--quick", "--fail-on", "graph-break,recompile", "--json")
    assert broken.returncode == 1, broken.stderr
    assert "timing the code between the graphs" in broken.stderr  # progress
    document = json.loads(broken.stdout)
    finding = document["failed_on"][0]
    assert (finding["kind"], finding["category"], finding["gb_id"]) == ("graph-break", "print", "GB0059")
    assert document["report"]["modules"][0]["breaks"] == [0]
    assert (tmp_path / "compilot-doctor" / "model-broken" / "report.json").is_file()

    model.write_text(model.read_text().replace(LINE, ""))
    page = tmp_path / "pages" / "doctor.html"
    fixed = doctor(
        tmp_path, "model.py:broken", "--quick", "--fail-on", "graph-break", "--fix-check", "-q", "--html", str(page)
    )
    assert fixed.returncode == 0, fixed.stderr
    assert fixed.stderr == ""
    assert fixed.stdout.startswith("gone: 1\n   graph break  model.py:12  print")
    assert "stayed: 0\nnew: 0\n" in fixed.stdout
    assert "1 graph, 0 graph breaks, 0 recompiles" in fixed.stdout
    assert "Net" in page.read_text()


def test_user_mistakes_end_in_one_sentence(tmp_path: Path) -> None:
    shutil.copy(PROGRAM, tmp_path / "model.py")
    unknown = doctor(tmp_path, "model.py:broken", "--fail-on", "graph-brake")
    assert unknown.returncode == 2
    assert "--fail-on knows no 'graph-brake'" in unknown.stderr
    unchecked = doctor(tmp_path, "model.py:broken", "--fix-check")
    assert unchecked.returncode == 2
    assert "there is no earlier report in compilot-doctor/model-broken" in unchecked.stderr
