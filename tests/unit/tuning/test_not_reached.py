"""What a short budget never reached is named, with a budget that does reach it."""

from __future__ import annotations

import io
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console
from stories import ListSearch, Story, candidate, told

from compilot._durations import parse_duration
from compilot.candidates.guided import GuidedSearch
from compilot.candidates.search import unasked
from compilot.cli.common import document as plain
from compilot.cli.tune import show
from compilot.records import Candidate, Decision, NotReached, VerdictLine
from compilot.report import read_run, results_of
from compilot.report.terminal import summary
from compilot.showing.live import LiveObserver
from compilot.showing.notebook import NotebookObserver
from compilot.showing.plain import PlainObserver
from compilot.testing.runner import Fate
from compilot.verdict.unreached import clause, line, minutes

FATES = {f"engine{n}": Fate(speed=1.5 + n / 10, cold_s=25.0) for n in range(8)}
SHORT_S = 120.0


class Foreseeing(ListSearch):
    """Says what is left of its list."""

    def unasked(self) -> Sequence[Candidate]:
        return tuple(self.left)


def short(folder: Path, budget_s: float = SHORT_S, fates: dict[str, Fate] = FATES, **how: Any) -> Story:
    return told(folder, fates, search=Foreseeing([candidate(name) for name in fates]), budget_s=budget_s, **how)


def missed_in(story: Story) -> NotReached:
    assert story.verdict.not_reached is not None
    return story.verdict.not_reached


def test_the_result_names_what_was_not_tried(tmp_path: Path) -> None:
    story = short(tmp_path)
    tried = [name for name in story.runner.tried if name != "eager"]
    assert 0 < len(tried) < len(FATES)
    assert [c.label for c in missed_in(story).not_tried] == [name for name in FATES if name not in tried]
    assert story.verdict.decision is Decision.USE
    assert "not tried" not in story.plan.because  # a plan that won needs no advice; the result has it


def test_the_advised_budget_reaches_all_of_them_from_the_start_and_by_resuming(tmp_path: Path) -> None:
    advised_s = missed_in(short(tmp_path / "first")).budget_s
    again = short(tmp_path / "again", advised_s)
    assert (again.verdict.not_reached, len(again.runner.tried)) == (None, len(FATES) + 1)
    resumed = short(tmp_path / "first", advised_s, resume=True)
    assert resumed.verdict.not_reached is None
    assert 1 < len(resumed.runner.tried) < len(FATES) + 1  # what was finished is not repeated


def test_a_run_that_reaches_everything_says_nothing(tmp_path: Path) -> None:
    story = short(tmp_path, 3000.0)
    assert story.verdict.not_reached is None
    document = plain(results_of(story.run_dir.path))
    assert (list(document["not_reached"]), document["advised_budget_s"]) == ([], None)


def test_where_eager_is_kept_the_reason_has_how_many_and_a_budget(tmp_path: Path) -> None:
    story = short(tmp_path, fates={name: fate._replace(speed=0.5) for name, fate in FATES.items()})
    assert story.verdict.decision is Decision.KEEP_EAGER
    missed = missed_in(story)
    assert missed.not_tried
    assert f"; {len(missed.not_tried)} candidates were not tried in time: give a budget of " in story.plan.because
    assert story.plan.because.endswith(clause(missed))


def test_a_search_that_cannot_say_is_not_asked(tmp_path: Path) -> None:
    story = told(tmp_path, FATES, budget_s=SHORT_S)  # ListSearch has begin, ask and tell alone
    assert len(story.runner.tried) < len(FATES)
    assert story.verdict.not_reached is None
    assert unasked(story.search) == ()


def test_journal_json_and_terminal_have_the_same_names(tmp_path: Path) -> None:
    story = short(tmp_path)
    missed = missed_in(story)
    written = [found.verdict for found in story.run_dir.lines() if isinstance(found, VerdictLine)]
    assert written[-1].not_reached == missed
    document = plain(results_of(story.run_dir.path))
    assert [row["id"] for row in document["not_reached"]] == [c.id for c in missed.not_tried]
    assert {row["why"] for row in document["not_reached"]} == {"not tried"}
    assert document["advised_budget_s"] == missed.budget_s
    shown = " ".join(printed(story).split())
    assert f"Not tried, no time left: {', '.join(c.label for c in missed.not_tried)} " in shown
    assert parse_duration(shown.rpartition("--budget ")[2].split()[0]) == missed.budget_s


def printed(story: Story) -> str:
    console = Console(file=io.StringIO(), width=80)
    console.print(summary(read_run(story.run_dir.path), story.plan, width=80), crop=False)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_everyone_who_shows_the_decision_shows_the_line(tmp_path: Path, capsys: Any) -> None:
    story = short(tmp_path)
    expected = line(missed_in(story), story.run_dir.path)
    console = Console(file=io.StringIO(), width=2000)
    pictures: list[str] = []
    with LiveObserver(300.0, console, result=True) as live:
        for observer in (PlainObserver(), live, NotebookObserver(300.0, pictures.append)):
            observer.started(read_run(story.run_dir.path).header, story.run_dir.path)
            observer.decided(story.verdict, story.plan)
    assert expected in capsys.readouterr().err
    assert expected in console.file.getvalue()  # type: ignore[attr-defined]
    assert expected in pictures[-1]


def test_the_words() -> None:
    one, many = (candidate("aoti"),), tuple(candidate(f"c{n}") for n in range(9))
    single = NotReached(not_tried=one, more_s=50.0, budget_s=360.0)
    assert line(single, "runs/a") == (
        "not tried, no time left: aoti (1); about 1m more would reach it: compilot tune --resume runs/a --budget 6m"
    )
    assert clause(single).startswith("1 candidate was not tried in time: give a budget of 6m; ")
    both = NotReached(not_tried=many, ran_out=one, more_s=240.0, budget_s=540.0)
    assert line(both, "D").startswith(
        "not tried, no time left: c0, c1, c2, c3, c4, c5, ... (9); ran out of time: aoti (1); about 4m more would "
    )
    assert clause(both).startswith("1 candidate ran out of time and 9 were not tried: give a budget of 9m;")


def test_the_command_can_be_run_as_it_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    story = short(tmp_path / "a folder")
    missed = missed_in(story)
    words = ["compilot", "tune", "--resume", str(story.run_dir.path), "--budget", minutes(missed.budget_s)]
    assert shlex.split(line(missed, story.run_dir.path).rpartition("reach them: ")[2]) == words
    show(story.plan, story.run_dir.path)
    shown = next(found for found in capsys.readouterr().out.splitlines() if "compilot tune" in found)
    assert len(shown) > 80  # a path that is longer than the terminal's line is not broken either
    assert shlex.split(shown) == words


def test_the_record_survives_the_journal() -> None:
    missed = NotReached(not_tried=(candidate("aoti"),), more_s=50.0, budget_s=360.0)
    assert msgspec.json.decode(msgspec.json.encode(missed), type=NotReached) == missed


def test_the_guided_search_is_one_that_can_say() -> None:
    assert unasked(GuidedSearch()) == []  # before it begins
