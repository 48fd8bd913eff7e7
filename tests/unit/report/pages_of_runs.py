"""Runs to write reports of: a full one, one candidate, sixty, failures only, one that was interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from doctor_fakes import full_report
from stories import Story, told

from compilot.artifacts.journal import Journal
from compilot.artifacts.planfile import save_plan
from compilot.records import BatchRaceLine, OutputCheck, ProcessSamples, Race, State, Trial
from compilot.report.doctor_html import write_page as write_doctors_page
from compilot.testing.runner import Fate

STATES = (State.OK, State.OK, State.OK, State.WRONG, State.CRASHED, State.TIMED_OUT, State.INFEASIBLE)
WORST = (
    OutputCheck(case="seed 1", output="output[0]", rmse=2e-7, eager_rmse=1e-7, limit=1e-6, max_abs=3e-7, passed=True),
    OutputCheck(case="zeros", output="output[0]", rmse=0.0, eager_rmse=0.0, limit=1e-6, max_abs=0.0, passed=True),
)


def full(small_run: Any, folder: Path) -> Path:
    """Every section has figures: the small run with checks by output and with an examination."""
    small_run.trials = tuple(map(_checked, small_run.trials))
    small_run.write(folder)
    with Journal.open(folder / "journal.jsonl") as journal:
        for batch, seconds in ((1, 0.4), (2, 0.6), (4, 1.0), (8, 1.9)):
            journal.append(BatchRaceLine(batch=batch, race=_slower(small_run.confirm, seconds)))
        journal.append(BatchRaceLine(batch=16, race=None, lost={small_run.trials[0].candidate.id: "no memory"}))
    (folder / "doctor").mkdir()
    (folder / "doctor" / "report.json").write_bytes(msgspec.json.encode(full_report()))
    write_doctors_page(full_report(), folder / "doctor" / "report.html")
    return folder


def _slower(race: Race, times: float) -> Race:
    sets = tuple(
        ProcessSamples(rounds=tuple(tuple(one * times for one in row) for row in process.rounds))
        for process in race.processes
    )
    return msgspec.structs.replace(race, processes=sets)


def _checked(trial: Trial) -> Trial:
    if trial.check is None:
        return trial
    return msgspec.structs.replace(trial, check=msgspec.structs.replace(trial.check, worst=WORST, relative_error=2e-7))


def one(folder: Path) -> Path:
    """Eager and a single candidate."""
    return _kept(told(folder, {"inductor": Fate(speed=1.6)}))


def sixty(small_run: Any, folder: Path) -> Path:
    """Sixty candidates beside eager, some of which fail in each way: the small run with copies of its second trial."""
    pattern = small_run.trials[1]
    small_run.trials = (*small_run.trials, *(_copy(pattern, number) for number in range(56)))
    return small_run.write(folder)  # type: ignore[no-any-return]


def _copy(trial: Trial, number: int) -> Trial:
    settings = msgspec.structs.replace(trial.candidate.settings, engine=f"engine{number % 9}", mode=str(number))
    candidate = msgspec.structs.replace(trial.candidate, settings=settings, label=f"candidate {number}")
    state, speed = STATES[number % len(STATES)], 1.0 + number / 100
    pairs = tuple((eager_s, eager_s / speed) for eager_s, _ in trial.screening)
    return msgspec.structs.replace(
        trial, candidate=candidate, state=state, reason=f"reason {number}", screening=pairs, wall_s=0.5
    )


def failures(folder: Path) -> Path:
    """Nothing works but eager."""
    states = {"a": State.CRASHED, "b": State.WRONG, "c": State.INFEASIBLE}
    return _kept(told(folder, {name: Fate(state=state, reason=f"{name} broke") for name, state in states.items()}))


def _kept(story: Story) -> Path:
    save_plan(story.plan, story.run_dir.plan)
    return story.run_dir.path
