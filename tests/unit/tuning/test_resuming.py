"""A run that goes on: what it takes from the parts before, on a runner that runs nothing."""

from __future__ import annotations

from pathlib import Path

import msgspec
from stories import candidate, told

from compilot.artifacts.rundir import RunDir
from compilot.records import Candidate, Precision, RunHeader, State, Trial, TrialLine
from compilot.testing.runner import Fate
from compilot.tuning.options import TuneOptions, options_of
from compilot.tuning.resuming import finished_trials

ONE = {"good": Fate(speed=2.0)}


def test_each_part_of_a_run_writes_what_it_was_asked_for(tmp_path: Path) -> None:
    told(tmp_path, ONE, budget_s=600.0)
    story = told(tmp_path, ONE, budget_s=900.0, resume=True)
    budgets = [line.budget_s for line in story.run_dir.lines() if isinstance(line, RunHeader)]
    assert budgets == [600.0, 900.0]
    assert options_of(story.run_dir.last_header()) == TuneOptions(budget_s=900.0)
    assert story.run_dir.header().budget_s == 600.0


def test_a_lower_precision_counts_only_where_the_same_tolerance_judged_it(tmp_path: Path) -> None:
    header = told(tmp_path, ONE).run_dir.header()
    plain = candidate("good")
    lower = Candidate(
        settings=msgspec.structs.replace(plain.settings, precision=Precision.BF16), label="", rationale=""
    )
    lines = [
        header,
        *(TrialLine(trial=Trial(candidate=one, state=State.OK, reason=""), at_s=1.0) for one in (plain, lower)),
        msgspec.structs.replace(header, tolerance=0.1),
    ]
    run = RunDir(tmp_path / "run")

    def known(tolerance: float | None) -> set[str]:
        return set(finished_trials(run, lines, msgspec.structs.replace(header, tolerance=tolerance)))

    assert known(None) == {plain.id, lower.id}
    assert known(0.1) == {plain.id}
    lines += [lines[2]]  # judged again, by 0.1
    assert known(0.1) == {plain.id, lower.id}
