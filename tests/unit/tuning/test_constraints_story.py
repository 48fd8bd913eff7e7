"""--max-compile and --max-error in the story of a run, on a runner that runs nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from stories import Story, candidate, told

from compilot.artifacts.rundir import RunDir
from compilot.errors import InputError
from compilot.progress import Observer
from compilot.records import Diagnosis, RunHeader, State, TrialLine
from compilot.report import read_run, results_of
from compilot.testing.runner import Fate
from compilot.tuning.options import TuneOptions, options_of
from compilot.tuning.pipeline import local_runner

SLOW_BUILD = {"slow": Fate(speed=3.0, cold_s=50.0, error=1e-6), "quick": Fate(speed=2.0, cold_s=5.0, error=1e-3)}
JUDGED = Diagnosis(cores=2, threads=2, eager_error=2e-7)


class Notes(Observer):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def chosen(story: Story) -> str:
    return story.plan.entries[0].candidate.label if story.plan.entries else "eager"


def states(story: Story) -> dict[str, tuple[str, str]]:
    return {row["candidate"]: (row["state"], row["note"]) for row in read_run(story.run_dir.path).rows}


def test_without_limits_the_fastest_is_chosen(tmp_path: Path) -> None:
    assert chosen(told(tmp_path, SLOW_BUILD, diagnosis=JUDGED)) == "slow"


def test_a_start_above_the_limit_is_ended_there_and_not_chosen(tmp_path: Path) -> None:
    options = TuneOptions(budget_s=600.0, max_compile_s=30.0)
    story = told(tmp_path, SLOW_BUILD, options=options)
    assert chosen(story) == "quick"
    assert states(story)["slow"] == ("infeasible", "cold start took longer than the 30 s allowed")
    (ended,) = [t for t in story.search.told if t.candidate.label == "slow"]
    assert ended.wall_s == 30.0  # not 50: nobody waits for what cannot be chosen
    assert story.run_dir.header().max_compile_s == 30.0
    assert options_of(story.run_dir.header()) == options
    assert results_of(story.run_dir.path).limits.max_compile_s == 30.0


def test_eager_is_never_held_to_a_limit_on_starts(tmp_path: Path) -> None:
    fates = {"eager": Fate(cold_s=90.0), "quick": Fate(speed=2.0, cold_s=5.0)}
    story = told(tmp_path, fates, options=TuneOptions(budget_s=600.0, max_compile_s=30.0))
    assert states(story)["eager"][0] == "ok"
    assert chosen(story) == "quick"


def test_an_error_above_the_limit_is_wrong_whatever_the_precision(tmp_path: Path) -> None:
    story = told(tmp_path, SLOW_BUILD, options=TuneOptions(budget_s=600.0, max_error=1e-4), diagnosis=JUDGED)
    assert chosen(story) == "slow"
    why = "relative error 0.001 against float64 is above the error allowed, 0.0001"
    assert states(story)["quick"] == ("wrong", why)
    rows = {row["candidate"]: row["relative_error"] for row in read_run(story.run_dir.path).rows}
    assert rows == {"eager": 2e-7, "slow": 1e-6, "quick": 1e-3}
    assert story.plan.entries[0].evidence.relative_error == 1e-6


def test_a_limit_that_eager_itself_does_not_keep_is_refused_before_anything_is_tried(tmp_path: Path) -> None:
    off = Diagnosis(cores=2, threads=2, eager_error=0.004)
    options = TuneOptions(budget_s=600.0, max_error=1e-4)
    with pytest.raises(InputError, match=r"even eager has a relative error of 0\.004 .*, above the error allowed"):
        told(tmp_path, SLOW_BUILD, options=options, diagnosis=off)
    lines = read_run(tmp_path / "run").trials
    assert lines == {}
    with pytest.raises(InputError, match=r"0\.0001 \(of the preset research, unless you gave it\); allow a larger"):
        told(tmp_path, SLOW_BUILD, options=options._replace(preset="research"), diagnosis=off, resume=True)
    larger = told(tmp_path, SLOW_BUILD, options=options._replace(max_error=0.01), diagnosis=off, resume=True)
    assert chosen(larger) == "slow"


def test_without_float64_a_note_says_that_eager_is_the_measure(tmp_path: Path) -> None:
    notes = Notes()
    options = TuneOptions(budget_s=600.0, max_error=1e-4)
    assert chosen(told(tmp_path, SLOW_BUILD, options=options, observer=notes)) == "slow"
    said = [note for note in notes.notes if "float64" in note]
    assert said == ["there is no float64 reference for this model; errors are counted from eager's answers instead"]


def test_no_limit_no_note_and_a_model_that_cannot_be_judged_is_not_refused(tmp_path: Path) -> None:
    notes = Notes()
    told(tmp_path / "a", SLOW_BUILD, observer=notes)
    assert [note for note in notes.notes if "float64" in note] == []
    odd = Diagnosis(cores=2, threads=2, eager_error=0.5, unjudgeable="it keeps state")
    assert (
        told(tmp_path / "b", {}, options=TuneOptions(max_error=1e-4), diagnosis=odd).verdict.because == "it keeps state"
    )


def test_a_resumed_run_with_a_lower_limit_puts_out_what_it_had_without_another_trial(tmp_path: Path) -> None:
    told(tmp_path, SLOW_BUILD, diagnosis=JUDGED)
    notes = Notes()
    options = TuneOptions(budget_s=600.0, max_compile_s=30.0)
    again = told(tmp_path, SLOW_BUILD, options=options, diagnosis=JUDGED, resume=True, observer=notes)
    assert again.runner.tried == ["eager"]
    assert chosen(again) == "quick"
    assert states(again)["slow"] == ("infeasible", "cold start took longer than the 30 s allowed: 50.0 s")
    said = "slow is judged otherwise now: infeasible, cold start took longer than the 30 s allowed: 50.0 s"
    assert said in notes.notes
    assert results_of(again.run_dir.path).limits.max_compile_s == 30.0  # of the last part
    headers = [line.max_compile_s for line in again.run_dir.lines() if isinstance(line, RunHeader)]
    assert headers == [None, 30.0]


def test_a_limit_that_is_taken_back_lets_in_what_was_measured_before_it(tmp_path: Path) -> None:
    told(tmp_path, SLOW_BUILD, diagnosis=JUDGED)
    low = TuneOptions(budget_s=600.0, max_compile_s=30.0)
    told(tmp_path, SLOW_BUILD, options=low, diagnosis=JUDGED, resume=True)
    notes = Notes()
    again = told(
        tmp_path, SLOW_BUILD, options=low._replace(max_compile_s=90.0), diagnosis=JUDGED, resume=True, observer=notes
    )
    assert (chosen(again), again.runner.tried) == ("slow", ["eager"])
    assert states(again)["slow"][0] == "ok"
    assert "slow is judged otherwise now: ok" in notes.notes


def test_a_higher_limit_tries_again_what_the_lower_one_ended(tmp_path: Path) -> None:
    first = TuneOptions(budget_s=600.0, max_compile_s=30.0, max_error=1e-4)
    story = told(tmp_path, SLOW_BUILD, options=first, diagnosis=JUDGED)
    assert chosen(story) == "eager"
    higher = first._replace(max_compile_s=60.0, max_error=1e-2)
    again = told(tmp_path, SLOW_BUILD, options=higher, diagnosis=JUDGED, resume=True)
    assert again.runner.tried == ["eager", "slow", "quick"]
    assert chosen(again) == "slow"
    tries = [line.trial.state for line in again.run_dir.lines() if _is_of(line, "slow")]
    assert tries == [State.INFEASIBLE, State.OK]


def test_the_limits_reach_the_runner_of_this_machine(tmp_path: Path) -> None:
    run_dir = RunDir.make(tmp_path / "run")
    with local_runner(run_dir, TuneOptions(max_compile_s=30.0, max_error=1e-4), Observer()) as runner:
        assert (runner.limits.cold_s, runner.max_error) == (30.0, 1e-4)
    with local_runner(run_dir, TuneOptions(), Observer()) as runner:
        assert (runner.limits.cold_s, runner.max_error) == (None, None)


def _is_of(line: object, name: str) -> bool:
    return isinstance(line, TrialLine) and line.trial.candidate.id == candidate(name).id
