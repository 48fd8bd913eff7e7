"""Earlier runs come from the user's list of runs; what cannot be read is passed over, and only the order changes."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from stories import WORKLOAD
from tests.unit.candidates.conftest import MadeUp, points

from compilot.artifacts import state
from compilot.artifacts.journal import Journal
from compilot.artifacts.rundir import RunDir
from compilot.artifacts.state import Ending
from compilot.candidates.past import PAST_SCHEMA
from compilot.engines import registry
from compilot.engines.traits import BuildCost, EngineTraits
from compilot.ledger import index
from compilot.progress import Observer
from compilot.records import (
    JOURNAL_SCHEMA,
    Diagnosis,
    DiagnosisLine,
    Features,
    RunHeader,
    Trial,
    TrialLine,
    VerdictLine,
    encode,
)
from compilot.report import results_of
from compilot.testing.runner import FakeRunner, Fate
from compilot.tuning import earlier, pipeline
from compilot.tuning.budget import Budget
from compilot.tuning.earlier import Lesson, recalled
from compilot.tuning.options import TuneOptions, options_of

FEATURES = Features(
    conv_share=0.5,
    matmul_share=0.2,
    memory_share=0.2,
    overhead_share=0.1,
    call_s=0.02,
    operators=90,
    parameter_bytes=1000,
    input_bytes=100,
    batch=4,
)


@pytest.fixture(autouse=True)
def _own_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPILOT_STATE", str(tmp_path / "state"))


@pytest.fixture
def finished(small_run: Any, tmp_path: Path) -> Callable[..., RunDir]:
    """A finished run in the list; header: in the place of its own."""

    def written(name: str, *, how: Ending | None = Ending.PLAN, header: RunHeader | None = None) -> RunDir:
        run_dir = RunDir.make(tmp_path / name)
        with Journal.create(run_dir.journal, header or small_run.header) as journal:
            journal.append(DiagnosisLine(diagnosis=Diagnosis(features=FEATURES)))
            for trial in small_run.trials:
                journal.append(TrialLine(trial=trial, at_s=0.0))
            journal.append(VerdictLine(verdict=small_run.verdict, at_s=1.0))
        state.begun(run_dir, "Net")
        if how is not None:
            state.ended(run_dir, how)
        return run_dir

    return written


def labels(found: Sequence[Any]) -> list[str]:
    return [run.label for run in found]


# ------------------------------------------------------------------------------------------------------ reading them


def test_finished_runs_are_read_newest_first_and_once(
    finished: Callable[..., RunDir], small_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = [msgspec.structs.replace(small_run.header.workload, label=label) for label in ("Old", "New")]
    for ref in named:
        finished(ref.label, header=msgspec.structs.replace(small_run.header, workload=ref))
    assert labels(recalled().runs) == ["New", "Old"]
    monkeypatch.setattr(RunDir, "lines", lambda self: pytest.fail("a journal was read again"))
    again = recalled()
    assert (labels(again.runs), again.unreadable) == (["New", "Old"], 0)


def test_a_summary_of_a_journal_that_went_on_is_made_again(finished: Callable[..., RunDir], small_run: Any) -> None:
    run = finished("run")
    before = recalled().runs[0]
    with run.open_journal() as journal:
        again = msgspec.structs.replace(small_run.trials[1], screening=((4.0, 1.0),) * 8)
        journal.append(TrialLine(trial=again, at_s=50.0))
    after = recalled().runs[0]
    assert before.trials[0].gain != after.trials[0].gain


def test_what_cannot_be_used_is_counted_and_passed_over(finished: Callable[..., RunDir], small_run: Any) -> None:
    damaged, empty, other, wrong, gone = (finished(name) for name in ("a", "b", "c", "d", "e"))
    text = damaged.journal.read_bytes()
    damaged.journal.write_bytes(text.replace(b'"trial"', b'"tria\x00', 1))
    empty.journal.write_bytes(b"")
    old = b'"schema":%d' % JOURNAL_SCHEMA
    assert old in text
    other.journal.write_bytes(text.replace(old, b'"schema":1', 1))
    wrong.journal.unlink()
    wrong.journal.mkdir()
    os.rename(gone.path, gone.path.with_name("moved"))
    finished("killed", how=None)
    finished("stopped", how=Ending.INTERRUPTED)
    finished("good")
    for _ in range(2):  # from journals, then from the index
        found = recalled()
        assert (len(found.runs), found.unreadable) == (1, 7)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE lessons SET entry = replace(entry, 'Net', 'Ten')",
        "UPDATE lessons SET entry = '{not json'",
        "ALTER TABLE lessons RENAME COLUMN entry TO other",
        "DROP TABLE lessons",
        "PRAGMA user_version = 99",
    ],
)
def test_what_the_index_has_of_it_is_checked_and_made_again(
    finished: Callable[..., RunDir], tmp_path: Path, damage: str
) -> None:
    finished("run")
    expected = recalled().runs
    assert len(expected) == 1
    connection = sqlite3.connect(tmp_path / "state" / index.FILE_NAME)
    with connection:
        connection.execute(damage)
    connection.close()
    assert recalled().runs == expected
    assert recalled().runs == expected


def test_a_lesson_of_another_version_is_made_again(
    finished: Callable[..., RunDir], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = finished("run")
    expected = recalled().runs
    with index.opened() as opened:
        data = encode(Lesson(schema=PAST_SCHEMA + 1, run=None))
        opened.keep_lesson(str(run.path), index.stamp_of(run), data)
    assert recalled().runs == expected


def test_without_an_index_the_answers_are_the_same(
    finished: Callable[..., RunDir], monkeypatch: pytest.MonkeyPatch
) -> None:
    finished("run")
    expected = recalled()
    monkeypatch.setattr(index, "is_on_network", lambda path: True)
    assert recalled() == expected
    monkeypatch.setattr(index, "opened", unusable)
    assert recalled() == expected


def unusable() -> Any:
    raise sqlite3.OperationalError("no such thing")


def test_a_run_without_features_teaches_nothing(small_run: Any, tmp_path: Path) -> None:
    run = RunDir(small_run.write(tmp_path / "older"))
    state.begun(run, "Net")
    state.ended(run, Ending.PLAN)
    assert recalled() == ([], 1)
    assert recalled() == ([], 1)  # from its summary


def test_the_run_that_asks_is_not_among_them(finished: Callable[..., RunDir]) -> None:
    own, other = finished("own"), finished("other")
    assert len(recalled(own).runs) == 1
    assert (len(recalled(other).runs), recalled(other).unreadable) == (1, 0)


def test_a_folder_that_nobody_can_write_to_is_read_all_the_same(
    finished: Callable[..., RunDir], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    finished("run")
    monkeypatch.setattr(index.Index, "keep_lesson", full)
    assert len(recalled().runs) == 1


def test_reading_ends_after_so_many_runs_and_so_much_time(
    finished: Callable[..., RunDir], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        finished(f"run{number}")
    now = iter(range(100))
    assert len(recalled(clock=lambda: next(now) * 0.4).runs) == 2  # a look at 0.4 s, one at 0.8 s
    monkeypatch.setattr(earlier, "MOST_RUNS", 3)
    assert len(recalled().runs) == 3
    monkeypatch.setattr(earlier, "LARGEST_BYTES", 10)
    index.throw_away()
    (tmp_path / "state" / index.FILE_NAME).unlink(missing_ok=True)
    assert recalled() == ([], 3)


# ---------------------------------------------------------------------------------------------------- a whole run


@pytest.fixture
def _two_engines() -> Iterator[None]:
    for name in ("quick", "slow"):
        half: Any = MadeUp(points("ab"))
        registry.register(name, half, half, EngineTraits(build_cost=BuildCost.SECONDS))
    yield
    for name in ("quick", "slow"):
        registry.unregister(name)


class Notes(Observer):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, _two_engines: None) -> Callable[..., tuple[RunDir, Any]]:
    """A run of `pipeline.run` on a runner that runs nothing; of its engines "quick" and "slow" the second is faster."""

    def run(name: str, *, features: Features | None = FEATURES, **options: Any) -> tuple[RunDir, Any]:
        speeds = {"quick": Fate(speed=1.2), "slow": Fate(speed=2.0)}
        diagnosis = Diagnosis(cores=1, threads=1, features=features)
        runner = FakeRunner(speeds, eager_call_s=0.02, diagnosis=diagnosis)
        monkeypatch.setattr(pipeline, "local_runner", lambda *_: runner)
        monkeypatch.setattr(pipeline, "Budget", lambda seconds: Budget(seconds, clock=runner.clock))
        asked = TuneOptions(budget_s=600.0, engines=("quick", "slow"), **options)
        notes = Notes()
        runner.notes = notes.notes  # type: ignore[attr-defined]
        pipeline.run(WORKLOAD, tmp_path / name, asked, notes)
        return RunDir(tmp_path / name), runner

    return run


def lesson_of(run_dir: RunDir) -> bytes | None:
    """What the index has of a run, before anybody asked for it."""
    with index.opened() as opened:
        return opened.lesson(str(run_dir.path), index.stamp_of(run_dir))


def test_the_second_run_tries_first_what_the_first_one_found_and_says_so(tuned: Callable[..., Any]) -> None:
    first_dir, first = tuned("first", prior=True)
    assert lesson_of(first_dir) is not None
    assert first_dir.header().expected is None
    assert first.tried[1] == "quick a"
    second_dir, second = tuned("second", prior=True)
    expected = second_dir.header().expected
    assert expected is not None
    assert (expected.suggested, expected.runs, expected.nearest) == ("slow", 1, ("Fake",))
    assert second.tried[1] == "slow a"
    assert set(second.tried) == set(first.tried)
    told = "earlier runs suggested slow (from 1 run, nearest: Fake)"
    assert f"{told}; that orders the trials and decides nothing" in second.notes
    found = results_of(second_dir.path)
    assert found.prior is not None
    assert found.prior.sentence == f"{told[0].upper()}{told[1:]}; the plan uses slow: right."
    assert (found.prior.used, found.prior.right) == ("slow", True)


def test_the_verdict_does_not_see_it(tuned: Callable[..., Any]) -> None:
    tuned("first", prior=True)
    results = [results_of(tuned(name, prior=prior)[0].path) for name, prior in (("with", True), ("without", False))]
    with_it, without = (msgspec.structs.replace(found.verdict) for found in results)
    assert with_it == without
    assert "earlier" not in str(with_it)


def test_no_prior_reads_nothing_and_expects_nothing(tuned: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    tuned("first", prior=True)
    monkeypatch.setattr(earlier, "recalled", lambda *_: pytest.fail("earlier runs were read"))
    run_dir, runner = tuned("second", prior=False)
    assert (run_dir.header().prior, run_dir.header().expected) == (False, None)
    assert runner.tried[1] == "quick a"
    assert results_of(run_dir.path).prior is None
    assert lesson_of(run_dir) is not None  # later ones may learn from it all the same


def test_without_features_the_order_is_as_usual(tuned: Callable[..., Any]) -> None:
    tuned("first", prior=True)
    run_dir, runner = tuned("second", prior=True, features=None)
    assert (run_dir.header().prior, run_dir.header().expected, runner.tried[1]) == (True, None, "quick a")


def test_a_resumed_run_keeps_the_switch(tuned: Callable[..., Any]) -> None:
    for value in (True, False):
        run_dir, _ = tuned(f"run-{value}", prior=value)
        assert options_of(run_dir.last_header()).prior is value


def test_the_journal_of_a_run_with_an_expectation_is_read_again(tuned: Callable[..., Any]) -> None:
    tuned("first", prior=True)
    run_dir, _ = tuned("second", prior=True)
    trials: dict[str, Trial] = run_dir.trials()
    assert len(recalled().runs) == 2
    assert {t.candidate.settings.engine for t in trials.values()} == {"eager", "quick", "slow"}
