"""Progress: what is tried, why, how it ended, what is left; drawn or as lines."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from compilot.cli import common
from compilot.errors import InputError
from compilot.showing.live import LiveObserver
from compilot.showing.plain import PlainObserver, clock, outcome_line


def test_plain_lines_name_the_best_so_far(small_run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    observer = PlainObserver()
    observer.finished(small_run.trials[2], 2.0)
    observer.trying(small_run.trials[1].candidate, 3, 61.0)
    text = capsys.readouterr().err
    assert "ok: inductor freezing, cold 9.0 s, ~2.00x" in text
    assert "trying 3: inductor (the yardstick); 1:01 left, best so far inductor freezing (~2.00x)" in text


def test_a_race_that_ended_is_told_with_all_that_was_timed(small_run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    PlainObserver().raced(small_run.confirm)
    assert "confirm: 3 processes x 20 pairs\n" in capsys.readouterr().err


def test_failed_trials_say_why(small_run: Any) -> None:
    assert "wrong: inductor cpp_wrapper, RMSE 0.031" in outcome_line(small_run.trials[4], None)


def test_live_picture_shows_what_why_step_and_budget(small_run: Any) -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None)
    with LiveObserver(300.0, console) as observer:
        observer.started(small_run.header, Path("here"))
        observer.finished(small_run.trials[2], 2.0)
        observer.trying(small_run.trials[1].candidate, 3, 61.0)
        observer.doing("building and answering the first call")
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "Tuning Net; everything seen goes to here" in text
    assert "trying 3: inductor" in text
    assert "why: the yardstick" in text
    assert "building and answering the first call" in text
    assert "of 5:00" in text
    assert "best so far: inductor freezing (~2.00x)" in text


def test_without_a_budget_the_bar_shows_the_rounds_of_a_race(small_run: Any) -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None)
    with LiveObserver(None, console) as observer:
        observer.stage("starting eager")
        observer.racing("bench", ("eager", "inductor"), 3, 40)
        observer._draw()
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "starting eager" in text
    assert "bench: eager, inductor" in text
    assert "3 of 40 pairs" in text
    assert "left" not in text


def test_nothing_is_drawn_while_an_arm_is_timed(small_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compilot.showing.live.TICK_S", 0.01)
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None)
    with LiveObserver(300.0, console) as observer:
        observer.doing("pairing with eager")
        observer._ticker.join(0.05)  # a tick under way may end
        before = console.file.tell()
        observer._ticker.join(0.2)  # the ticker lives on for twenty ticks
        assert console.file.tell() == before


def test_clock_and_sizes() -> None:
    assert clock(247.4) == "4:07"
    assert clock(-3) == "0:00"
    assert common.parse_size("8GiB") == 8 * 2**30
    assert common.parse_size("512M") == 512 * 2**20
    with pytest.raises(InputError, match="write 8GiB"):
        common.parse_size("0")
