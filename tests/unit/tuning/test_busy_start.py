"""A run on a busy machine: said before the budget is spent, kept as data, and remembered by the verdict."""

from __future__ import annotations

from pathlib import Path

import pytest
from stories import Story, told

from compilot.cli.common import document as plain
from compilot.progress import Observer
from compilot.records import BusyProcess, Candidate, Decision, Diagnosis, DiagnosisLine, MachineLoad
from compilot.report import results_of
from compilot.testing.runner import Fate

BUSY = MachineLoad(others=1.0, cores=2, processes=(BusyProcess(name="make", pid=9, share=0.9),))
QUIET = MachineLoad(others=0.02, cores=2)


class Heard(Observer):
    def __init__(self) -> None:
        self.events: list[str] = []

    def note(self, text: str) -> None:
        self.events.append(text)

    def trying(self, candidate: Candidate, number: int, remaining_s: float) -> None:
        self.events.append(f"trying {candidate.label}")


def run(folder: Path, load: MachineLoad | None, *, noise: float = 0.01, speed: float = 1.02) -> tuple[Story, list[str]]:
    heard = Heard()
    diagnosis = Diagnosis(cores=2, threads=2, load=load)
    return told(folder, {"x": Fate(speed=speed)}, noise=noise, observer=heard, diagnosis=diagnosis), heard.events


def test_eagers_own_scatter_is_said_before_the_first_candidate(tmp_path: Path) -> None:
    _, events = run(tmp_path, QUIET, noise=0.8)
    said = next(i for i, text in enumerate(events) if text.startswith("eager's own calls vary much on this machine"))
    assert events.index("trying eager") < said < events.index("trying x")


def test_a_steady_eager_is_not_mentioned(tmp_path: Path) -> None:
    assert not [text for text in run(tmp_path, QUIET)[1] if "vary" in text or "busy" in text]


def test_where_the_load_has_said_as_much_it_is_not_said_twice(tmp_path: Path) -> None:
    _, events = run(tmp_path, MachineLoad(others=200.0, cores=2), noise=0.8)
    assert not [text for text in events if "vary" in text]


def test_the_load_is_in_the_journal_and_in_the_json(tmp_path: Path) -> None:
    story, _ = run(tmp_path, BUSY)
    lines = [line.diagnosis for line in story.run_dir.lines() if isinstance(line, DiagnosisLine)]
    assert lines[-1].load == BUSY
    said = plain(results_of(story.run_dir.path))["load"]
    assert said["eager_noise"] < 0.05
    assert {name: said[name] for name in ("busy", "others", "steal", "cores", "smallest_shown")} == {
        "busy": True,
        "others": 1.0,
        "steal": 0.0,
        "cores": 2,
        "smallest_shown": 1.5,
    }
    assert list(said["processes"]) == [{"name": "make", "pid": 9, "share": 0.9}]


def test_a_quiet_machine_is_in_the_json_as_quiet(tmp_path: Path) -> None:
    said = plain(results_of(run(tmp_path, QUIET)[0].run_dir.path))["load"]
    assert (said["busy"], said["others"], said["smallest_shown"]) == (False, 0.02, None)


def test_what_was_not_proven_names_who_was_busy(tmp_path: Path) -> None:
    story, _ = run(tmp_path, BUSY, noise=0.3)
    assert story.verdict.decision is Decision.KEEP_EAGER
    assert "the machine was busy when the run began: other processes used 100 % of a core (make: 90 %)" in (
        story.plan.because
    )


@pytest.mark.parametrize(("load", "speed"), [(QUIET, 1.02), (BUSY, 3.0)])
def test_proven_results_and_quiet_machines_have_no_such_words(tmp_path: Path, load: MachineLoad, speed: float) -> None:
    assert "the machine was busy" not in run(tmp_path, load, speed=speed)[0].plan.because
