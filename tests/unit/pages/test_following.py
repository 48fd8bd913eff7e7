"""A run under way is followed by what it writes: its journal, read once, and progress.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from compilot.artifacts import progress_file
from compilot.artifacts.progress_file import Doing
from compilot.artifacts.rundir import RunDir
from compilot.pages.following import Follower
from compilot.records import TrialLine, VerdictLine


def test_news_come_line_by_line_until_the_verdict(small_run: Any, tmp_path: Path) -> None:
    run_dir = RunDir.make(tmp_path / "run")
    journal = run_dir.create_journal(small_run.header)
    follower = Follower(run_dir)
    first = follower.news()
    assert first is not None
    assert (first.live, first.budget_s, first.trials, first.doing) == (True, 90.0, (), None)
    assert follower.news() is None  # nothing new
    progress_file.write(run_dir.path, Doing(what="trying 2: inductor", step="compiling", elapsed_s=3.0))
    doing = follower.news()
    assert doing is not None
    assert doing.doing is not None
    assert doing.doing.step == "compiling"
    assert doing.elapsed_s >= 3.0
    for number, trial in enumerate((*small_run.trials, small_run.trials[1])):
        journal.append(TrialLine(trial=trial, at_s=float(number)))
    tried = follower.news()
    assert tried is not None
    assert [one.label for one in tried.trials] == [
        *("eager", "inductor freezing", "inductor reduce-overhead", "inductor cpp_wrapper", "inductor")
    ]
    assert [one.ratio for one in tried.trials if one.ratio is not None] == pytest.approx([2.0, 1.25])
    assert tried.trials[3].reason.startswith("RMSE 0.031")
    journal.append(VerdictLine(verdict=small_run.verdict, at_s=40.0))
    journal.close()
    last = follower.news()
    assert last is not None
    assert (last.live, last.doing, last.elapsed_s) == (False, None, 40.0)
    assert last.verdict == "use: 2.00x faster than eager"


def test_half_a_line_is_read_when_it_is_whole_and_a_damaged_one_is_said(small_run: Any, tmp_path: Path) -> None:
    run_dir = RunDir(small_run.write(tmp_path / "run"))
    data = run_dir.journal.read_bytes()
    run_dir.journal.write_bytes(data[: len(data) // 2])
    follower = Follower(run_dir)
    before = follower.news()
    run_dir.journal.write_bytes(data)
    after = follower.news()
    assert before is not None
    assert after is not None
    assert not before.verdict
    assert after.verdict
    assert not after.problem
    assert len(after.trials) == 5
    run_dir.journal.write_bytes(data + b"{}\n")
    damaged = follower.news()
    assert damaged is not None
    assert "cannot be read" in damaged.problem


def test_what_was_read_is_not_read_again(small_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = RunDir(small_run.write(tmp_path / "run"))
    follower = Follower(run_dir)
    follower.news()
    monkeypatch.setattr(Follower, "_take", lambda *_: pytest.fail("a line was read again"))
    assert follower.news() is None


def test_a_resumed_run_begins_its_seconds_again(small_run: Any, tmp_path: Path) -> None:
    run_dir = RunDir(small_run.write(tmp_path / "run"))
    with run_dir.open_journal() as journal:
        journal.append(msgspec.structs.replace(small_run.header, budget_s=300.0))
        found = Follower(run_dir).news()
    assert found is not None
    assert (found.live, found.budget_s, found.elapsed_s, found.verdict) == (True, 300.0, 0.0, "")


def test_a_run_that_is_gone_says_so(tmp_path: Path) -> None:
    found = Follower(RunDir(tmp_path / "none")).news()
    assert found is not None
    assert "No such file" in found.problem
    assert not found.live
