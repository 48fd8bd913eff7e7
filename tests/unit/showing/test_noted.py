"""What a run does at this moment stands in progress.json, for pages in other processes, and everybody else hears it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compilot.artifacts import progress_file
from compilot.artifacts.progress_file import Doing
from compilot.progress import Observer
from compilot.showing.noted import NotedObserver, noted


class Heard(Observer):
    """Notes the names of events."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name in vars(Observer) and not name.startswith("_"):
            return lambda *_: self.events.append(name)
        return super().__getattribute__(name)


def test_what_is_done_why_and_how_far_is_in_the_file(small_run: Any, tmp_path: Path) -> None:
    seconds = [0.0]
    observer = NotedObserver(Observer(), tmp_path, 90.0, clock=lambda: seconds[0])
    trial = small_run.trials[2]
    observer.trying(trial.candidate, 3, 80.0)
    seconds[0] = 4.0
    observer.doing("compiling")
    assert progress_file.read(tmp_path) == Doing(
        what="trying 3: inductor freezing",
        step="compiling",
        why="weights become constants",
        elapsed_s=4.0,
        budget_s=90.0,
        best="eager",
    )
    observer.finished(trial, 2.0)
    observer.stage("racing the finalists")
    found = progress_file.read(tmp_path)
    assert found is not None
    assert (found.what, found.step, found.best) == ("racing the finalists", "", "inductor freezing (~2.00x)")


def test_rounds_of_a_race_are_written_once_a_second_at_the_most(small_run: Any, tmp_path: Path) -> None:
    seconds = [0.0]
    observer = NotedObserver(Observer(), tmp_path, clock=lambda: seconds[0])
    observer.trying(small_run.trials[1].candidate, 2, 1.0)
    names = (small_run.trials[0].candidate.id, small_run.trials[1].candidate.id)
    seen = []
    for done in range(1, 13):
        seconds[0] += 0.25
        observer.racing("confirm", names, done, 80)
        seen.append(progress_file.read(tmp_path))
    assert len({one.step for one in seen if one is not None and one.step}) == 3
    assert seen[-1] is not None
    assert seen[-1].what == f"confirm: {names[0]}, inductor"
    assert seen[-1].step.startswith("pair ")


def test_every_event_is_handed_on(small_run: Any, tmp_path: Path) -> None:
    heard = Heard()
    with noted(heard, tmp_path) as observer:
        observer.started(small_run.header, tmp_path)
        observer.stage("a")
        observer.note("b")
        observer.trying(small_run.trials[0].candidate, 1, 1.0)
        observer.doing("c")
        observer.at_node("a", "compiling")
        observer.at_node("b", "timing")
        found = progress_file.read(tmp_path)
        observer.at_node("a", "")
        observer.at_node("b", "")
        observer.finished(small_run.trials[0], None)
        observer.racing("race", (), 1, 2)
        observer.raced(small_run.confirm)
        observer.decided(small_run.verdict, small_run.plan)
        observer.interrupted(tmp_path)
    assert found is not None
    assert found.step == "a: compiling; b: timing"
    assert set(heard.events) == {name for name in vars(Observer) if not name.startswith("_")}


def test_the_file_goes_with_the_run_and_only_with_its_own(tmp_path: Path) -> None:
    progress_file.write(tmp_path, Doing(what="another run"))
    with noted(Observer(), tmp_path):
        pass  # refused before it did anything
    assert progress_file.read(tmp_path) == Doing(what="another run")
    with pytest.raises(KeyboardInterrupt):
        interrupted(tmp_path)
    assert list(tmp_path.iterdir()) == []


def interrupted(folder: Path) -> None:
    with noted(Observer(), folder) as observer:
        observer.stage("ours")
        assert progress_file.read(folder) is not None
        raise KeyboardInterrupt


def test_nothing_that_is_wrong_with_it_matters(tmp_path: Path) -> None:
    NotedObserver(Observer(), tmp_path / "nowhere").stage("a")
    assert progress_file.read(tmp_path / "nowhere") is None
    (tmp_path / progress_file.FILE_NAME).write_text('{"what": 3}')
    assert progress_file.read(tmp_path) is None
