"""`compilot check` and `compilot baseline` on the command line: options, exit codes, and what is printed where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gate_history import Project
from tests.unit.gate.fake_races import FakeRaces
from typer.testing import CliRunner

from compilot.cli.main import app
from compilot.gate import races
from compilot.gate.races import Failure

run = CliRunner()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    made = Project(tmp_path / "project")
    monkeypatch.chdir(made.folder)
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    return made


def faked(monkeypatch: pytest.MonkeyPatch, fake: FakeRaces) -> list[Any]:
    """Races that were never run; what they were asked for."""
    asked: list[Any] = []

    def made(*given: Any, **options: Any) -> FakeRaces:
        asked.append((given, options))
        return fake

    monkeypatch.setattr(races, "LocalRaces", made)
    return asked


def check(*words: str) -> Any:
    return run.invoke(app, ["check", "model.py:net", "--arms", "eager", "--out", "run", "--quiet", *words])


def test_a_red_check_exits_with_one_and_writes_every_form(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    faked(monkeypatch, FakeRaces(1.4))
    done = check("--base-ref", "main", "--junit", "j.xml", "--markdown", "out/c.md", "--benchmark-json", "b.json")
    assert done.exit_code == 1
    assert done.stdout.startswith("SLOWER: Net: latency of eager")
    assert "in a second race with fresh" in " ".join(done.stdout.split())
    assert "<failure" in Path("j.xml").read_text()
    assert "slower" in Path("out/c.md").read_text()
    assert len(json.loads(Path("b.json").read_text())["benchmarks"]) == 2
    assert json.loads(Path("run/check.json").read_text())["verdict"] == "slower"


def test_json_is_one_document(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    faked(monkeypatch, FakeRaces())
    done = check("--base-ref", "main", "--json")
    assert done.exit_code == 0
    report = json.loads(done.stdout)
    assert report["verdict"] == "pass"
    assert report["base"]["what"].startswith("main (")


def test_inconclusive_is_a_warning_and_exit_zero(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    faked(monkeypatch, FakeRaces(1.2, noise=0.6, process_noise=0.2, pairs=20))
    done = check("--base-ref", "main", "--github")
    assert done.exit_code == 0
    assert done.stdout.startswith("inconclusive: ")
    assert "::warning title=compilot%3A latency of eager::" in done.stderr


def test_nothing_measured_is_exit_two(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    faked(monkeypatch, FakeRaces(failures={"base eager": Failure("no module named 'lib'")}))
    done = check("--base-ref", "main")
    assert done.exit_code == 2
    assert "no module named 'lib'" in done.stdout


def test_in_a_workflow_the_summary_is_written_by_itself(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    faked(monkeypatch, FakeRaces(1.4))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(project.folder / "summary.md"))
    assert "::error title=" in check("--base-ref", "main").stderr
    assert "latency" in (project.folder / "summary.md").read_text()
    assert "::error" not in check("--base-ref", "main", "--no-github").stderr


def test_a_form_that_cannot_be_written_leaves_the_verdict(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    faked(monkeypatch, FakeRaces(1.4))
    Path("full").write_text("a file, and no folder")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(project.folder / "full" / "summary.md"))
    done = check("--base-ref", "main", "--junit", "full/j.xml", "--markdown", "c.md", "--github", "--json")
    assert done.exit_code == 1
    report = json.loads(done.stdout)
    assert report["verdict"] == "slower"
    assert any(note.startswith("cannot write full/j.xml") for note in report["notes"])
    assert "::warning title=compilot::the summary cannot be written: " in done.stderr
    assert "slower" in Path("c.md").read_text()


def test_an_earlier_report_is_not_taken_for_this_one(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    faked(monkeypatch, FakeRaces())
    assert check("--base-ref", "main").exit_code == 0
    assert Path("run/check.json").exists()
    assert check("--base-ref", "gone").exit_code == 2
    assert not Path("run/check.json").exists()


def test_a_baseline_is_written_and_compared_with(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    faked(monkeypatch, FakeRaces(sides=("head",)))
    made = run.invoke(app, ["baseline", "model.py:net", "-o", "kept.json", "--arms", "eager", "--out", "b", "-q"])
    assert made.exit_code == 0, made.output
    assert "compilot check model.py:net --baseline kept.json" in made.stdout
    asked = faked(monkeypatch, FakeRaces(1.6, sides=("head",), seed=3))
    done = check("--baseline", "kept.json")
    assert done.exit_code == 1
    assert len(asked[0][0][0]) == 1  # one side: the other is the file
    assert "kept.json of " in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give one of base ref, baseline and old python"),
        (("--base-ref", "main", "--baseline", "b.json"), "give one of"),
        (("--baseline", "b.json", "--link", "x"), "links are for a base ref"),
        (("--base-ref", "main", "--arms", "fast"), "there is no arm 'fast'"),
        (("--base-ref", "main", "--allow", "runs"), "there is no metric 'runs'"),
        (("--base-ref", "main", "--allow", "throughput"), "there is no metric 'throughput'"),
        (("--base-ref", "main", "--allow", "speed"), "there is no metric 'speed'; there are latency"),
        (("--base-ref", "main", "--budget", "2s"), "at least 10 s"),
        (("--base-ref", "main", "--margin", "5"), "write 0.05 for 5 %"),
        (("--base-ref", "gone"), "git knows no 'gone'"),
        (("--baseline", "gone.json"), "cannot read gone.json"),
        (("--old-python", "gone/python"), "is no program"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_two(project: Project, words: tuple[str, ...], said: str) -> None:
    done = check(*words)
    assert done.exit_code == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_outside_of_a_repository_a_ref_means_nothing(
    tmp_path: Path, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "alone").mkdir()
    monkeypatch.chdir(tmp_path / "alone")
    Path("model.py").write_text("def net(): ...")
    assert "needs the target in a git repository" in check("--base-ref", "main").stderr
