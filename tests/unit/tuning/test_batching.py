"""A model at several batch sizes, on a runner that runs nothing: races, figures, advice, files."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from stories import WORKLOAD, ListSearch, Story, candidate, told

from compilot.api.batch_sizes import batch_requests
from compilot.artifacts.rundir import RunDir
from compilot.engines.eager.build import EAGER
from compilot.errors import EnvironmentProblem
from compilot.progress import Observer
from compilot.records import (
    BatchRaceLine,
    BatchSizes,
    Candidate,
    JournalLine,
    PolicyArm,
    ProcessSamples,
    Race,
    Replay,
    ReplayLine,
    Settings,
    ShapePolicy,
    Shapes,
    State,
    Trial,
    TrialLine,
    VerdictLine,
)
from compilot.report.batches import batch_sizes, sentences, write_batches_csv
from compilot.report.page import page_of
from compilot.testing.fake_sizes import FakeSizes
from compilot.testing.runner import FakeRunner, Fate
from compilot.trials.runner import ArmLost, RaceRules
from compilot.tuning.batching import at_batch_sizes, by_batch_size
from compilot.tuning.budget import Budget
from compilot.tuning.comparing import try_eager, try_one
from compilot.tuning.journal import RunJournal
from compilot.tuning.options import TuneOptions, options_of
from compilot.tuning.pipeline import tune

QUICK, STATIC = candidate("quick"), candidate("static")
FATES = {"quick": Fate(speed=2.0), "static": Fate(speed=3.0)}


def saturating(batch: int) -> float:
    """Half of a single call is fixed, and from 4 samples on more of them bring nothing."""
    return {1: 1.0, 2: 1.2, 4: 2.0, 8: 4.0}[batch]


class OneSize(FakeRunner):
    """The static candidate serves the example's batch size alone; 8 samples are too many for eager itself."""

    too_many = False

    def race(self, trials: Sequence[Trial], rules: RaceRules) -> Race:
        if rules.batch == 8 and self.too_many:
            raise EnvironmentProblem("eager's own process failed in a race: out of memory.")
        if rules.batch != 4 and STATIC in [trial.candidate for trial in trials]:
            raise ArmLost(STATIC.id, State.INFEASIBLE, "in a race: it serves only batch size 4")
        return super().race(trials, rules)


def measured(runner: FakeRunner, sizes: Sequence[int]) -> tuple[list[JournalLine], BatchSizes]:
    runner.open(WORKLOAD)
    runner.inspect()
    trials = [try_eager(runner, 60.0), *(try_one(runner, one, 60.0) for one in (QUICK, STATIC))]
    lines: list[JournalLine] = [TrialLine(trial=trial, at_s=0.0) for trial in trials]
    lines += at_batch_sizes(runner, trials[1:], sizes, pairs=12, observer=Observer())
    found = batch_sizes(lines)
    assert found is not None
    return lines, found


def test_every_arm_at_every_size_from_the_raw_samples() -> None:
    _, found = measured(FakeRunner(FATES, batch_cost=saturating), (1, 2, 4, 8))
    assert [(p.candidate, p.batch) for p in found.points[:5]] == [*(("eager", b) for b in (1, 2, 4, 8)), ("quick", 1)]
    by_place = {(point.candidate, point.batch): point for point in found.points}
    quick, eager = by_place["quick", 8], by_place["eager", 8]
    assert eager.call_s == pytest.approx(0.04, rel=0.02)
    assert eager.samples_per_s == pytest.approx(200.0, rel=0.02)
    assert eager.versus_eager is None
    assert quick.versus_eager is not None
    assert quick.versus_eager.ratio == pytest.approx(2.0, rel=0.02)
    assert [(one.candidate, one.max_batch_size) for one in found.advice] == [("eager", 4), ("quick", 4), ("static", 4)]
    assert "a batch of 8 brings" in found.advice[0].because


def test_a_candidate_that_cannot_serve_a_size_says_why_and_the_others_go_on() -> None:
    _, found = measured(OneSize(FATES, batch_cost=saturating), (1, 4))
    by_place = {(point.candidate, point.batch): point for point in found.points}
    assert by_place["static", 1].call_s is None
    assert by_place["static", 4].call_s is not None
    assert by_place["quick", 1].call_s is not None
    assert "static has no figure at batch size 1: in a race: it serves only batch size 4." in sentences(found)


def test_where_eager_itself_cannot_there_is_no_race_and_smaller_sizes_keep_their_figures() -> None:
    runner = OneSize(FATES, batch_cost=saturating)
    runner.too_many = True
    lines, found = measured(runner, (4, 8))
    assert [line.race is None for line in lines if isinstance(line, BatchRaceLine)] == [False, True]
    [broken] = [point for point in found.points if point.batch == 8]
    assert (broken.candidate_id, broken.call_s) == (EAGER.id, None)
    assert "out of memory" in broken.why
    assert found.advice[0].max_batch_size == 4


def test_where_memory_is_short_they_are_raced_in_groups() -> None:
    lines, found = measured(FakeRunner(FATES, workers=2, batch_cost=saturating), (2,))
    arms = [line.race.arms for line in lines if isinstance(line, BatchRaceLine) and line.race]
    assert arms == [(EAGER.id, QUICK.id), (EAGER.id, STATIC.id)]
    assert {point.candidate for point in found.points} == {"eager", "quick", "static"}


def test_a_noisy_machine_is_said_with_the_figures() -> None:
    _, quiet = measured(FakeRunner(FATES, batch_cost=saturating), (1, 4))
    assert quiet.doubts == ()
    _, noisy = measured(FakeRunner(FATES, noise=0.5, batch_cost=saturating), (1, 4))
    [doubt] = noisy.doubts
    assert doubt.startswith("eager against itself varied by")
    assert "at batch size 1, 4; measure again on a quieter machine" in doubt
    assert sentences(noisy)[-1] == f"E{doubt[1:]}."


def test_parts_of_a_batch_are_named_in_short() -> None:
    _, found = measured(FakeRunner(FATES, batch_cost=lambda batch: {1: 1.0, 4: 1.2, 9: 9.0}[batch]), (1, 4, 9))
    assert "A batch of 9 is faster in parts: 2 x 4 + 1 x 1." in sentences(found)[0]


def test_tune_times_eager_and_the_plan_at_each_size_in_the_end(tmp_path: Path) -> None:
    options = TuneOptions(budget_s=600.0, batch_sizes=(1, 4))
    story = told(tmp_path, {"quick": Fate(speed=2.0), "slow": Fate(speed=0.5)}, options=options, batch_cost=saturating)
    lines = story.run_dir.lines()
    found = batch_sizes(lines)
    assert found is not None
    assert [(p.candidate, p.batch) for p in found.points] == [(n, b) for n in ("eager", "quick") for b in (1, 4)]
    assert isinstance(lines[-1], VerdictLine)  # the last word is the verdict's
    assert story.verdict.chosen_id == QUICK.id
    assert options_of(story.run_dir.last_header()).batch_sizes == (1, 4)  # a resumed run asks for them again


def test_a_run_without_batch_sizes_has_none(tmp_path: Path) -> None:
    story = told(tmp_path, {"quick": Fate(speed=2.0)})
    assert batch_sizes(story.run_dir.lines()) is None
    assert write_batches_csv(story.run_dir.path) is None


def test_files_and_records(tmp_path: Path) -> None:
    options = TuneOptions(budget_s=600.0, batch_sizes=(1, 4))
    story = told(tmp_path, FATES, options=options, batch_cost=saturating)
    csv_file = write_batches_csv(story.run_dir.path)
    assert csv_file == story.run_dir.batches_csv
    with csv_file.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["candidate"], row["batch"]) for row in rows] == [(n, b) for n in ("eager", "static") for b in "14"]
    assert (rows[0]["speedup"], rows[0]["why"]) == ("", "")
    assert float(rows[-1]["speedup"]) == pytest.approx(3.0, rel=0.02)
    assert float(rows[-1]["speedup_low"]) <= float(rows[-1]["speedup"]) <= float(rows[-1]["speedup_high"])


# ------------------------------------------------------------------------------------------- a plan for batch sizes

SIZES = (1, 2, 4, 8, 16, 32)
STEEP = FakeSizes(
    {"*:0": (1, 32)},
    cost=lambda own: 1.0 + (own["*:0"] if own["*:0"] <= 8 else 3 * own["*:0"]),
    example={"*:0": 8},
    may_split=True,
)


def chosen_for(folder: Path, fates: Any, sizes: FakeSizes = STEEP, **how: Any) -> Story:
    """A run of `tune --batch-sizes`, as api/tuning.py begins it."""
    requests = batch_requests(SIZES)
    assert requests is not None
    options = TuneOptions(budget_s=4000.0, batch_sizes=SIZES, trace=requests.trace)
    runner = FakeRunner(fates, eager_call_s=0.02, sizes=sizes, **how)
    budget, run_dir = Budget(options.budget_s, clock=runner.clock), RunDir.make(folder / "run")
    every = Settings(engine="quick", shapes=Shapes.DYNAMIC)
    search = ListSearch([Candidate(settings=every, label="quick", rationale="a test")])
    with RunJournal(run_dir, options, budget, Observer()) as journal, runner:
        plan = tune(
            requests.on(WORKLOAD, later=True),
            search=search,
            runner=runner,
            journal=journal,
            budget=budget,
            trace=requests.trace,
        )
        assert journal.verdict is not None
    return Story(plan, journal.verdict, runner, search, run_dir)


def differing(one: Candidate) -> Fate:
    """Programs for 1 and 2 rows are far better than the one for all sizes, larger ones are not."""
    small = bool(one.sizes) and next(iter(one.sizes.values())) <= 2
    return Fate(speed=8.0 if small else 2.0)


def test_a_plan_for_batch_sizes_has_entries_where_the_best_program_differs(tmp_path: Path) -> None:
    even = STEEP._replace(cost=lambda own: 1.0 + own["*:0"], may_pad=False, may_split=False)
    story = chosen_for(tmp_path, differing, even)
    names = [entry.name for entry in story.plan.entries]
    assert {"1", "2"} <= set(names[:-1])
    assert names[-1] == "dynamic"
    assert "of 6 batch sizes, in fresh processes" in story.plan.because
    header = story.run_dir.last_header()
    assert (header.batch_sizes, header.trace) == (SIZES, "")  # the sizes say which calls: it can be resumed
    found = batch_sizes(story.run_dir.lines())
    assert found is not None
    plan = {point.batch: point for point in found.points if point.candidate.startswith("quick mixed")}
    assert list(plan) == list(SIZES)
    versus = {batch: point.versus_eager.ratio for batch, point in plan.items() if point.versus_eager is not None}
    assert versus[1] == pytest.approx(8.0, rel=0.1)
    assert versus[32] == pytest.approx(2.0, rel=0.1)
    assert found.advice[0].candidate == "eager"
    assert "Batch sizes" in [section.title for section in page_of(story.run_dir.path).sections]
    assert write_batches_csv(story.run_dir.path) == story.run_dir.batches_csv


def test_large_batches_are_cut_where_their_parts_are_faster(tmp_path: Path) -> None:
    story = chosen_for(tmp_path, lambda one: Fate(speed=2.0) if not one.sizes else Fate(state=State.INFEASIBLE))
    [entry] = story.plan.entries
    assert entry.split is not None
    assert (entry.split.rows, entry.split.min) == (8, 16)
    found = batch_sizes(story.run_dir.lines())
    assert found is not None
    call_s = {(point.candidate, point.batch): point.call_s or 0.0 for point in found.points}
    own = next(name for name, _ in call_s if name != "eager")
    assert call_s[own, 32] < call_s["eager", 32] / 4  # 2x of the program, the rest of the parts
    advice = next(one for one in found.advice if one.candidate == own)
    assert advice.splits == {}  # the plan does it
    assert next(one for one in found.advice if one.candidate == "eager").splits["32"] == (8, 8, 8, 8)


def test_where_eager_is_kept_its_own_figures_are_there(tmp_path: Path) -> None:
    story = chosen_for(tmp_path, lambda one: Fate(speed=0.5))
    assert story.plan.entries == ()
    found = batch_sizes(story.run_dir.lines())
    assert found is not None
    assert [(point.candidate, point.batch) for point in found.points] == [("eager", size) for size in SIZES]


def test_where_nothing_could_be_replayed_eager_is_timed_at_each_size(tmp_path: Path) -> None:
    broken = Fate(state=State.INFEASIBLE, reason="it cannot")
    story = chosen_for(tmp_path, lambda one: broken, batch_cost=float)
    found = batch_sizes(story.run_dir.lines())
    assert found is not None
    assert [(point.candidate, point.batch) for point in found.points] == [("eager", size) for size in SIZES]


def test_every_size_has_as_many_samples_and_every_part_of_the_order_its_share() -> None:
    requests = batch_requests(SIZES)
    assert requests is not None
    rows = [call.sizes["*:0"] for call in requests.calls]
    assert 250 <= len(rows) <= 270
    samples = {size: size * rows.count(size) for size in SIZES}
    assert max(samples[size] for size in (1, 2, 4, 8)) <= 1.1 * min(samples[size] for size in (1, 2, 4, 8))
    assert rows.count(32) == 6  # however large: a few calls of each
    assert set(rows[:48]) == set(SIZES)
    assert batch_requests((8,)) is None
    assert batch_requests(()) is None


def test_a_size_with_few_requests_has_its_time_and_no_speed_up() -> None:
    rows = tuple((2.0, 2.0, 1.0) if turn % 12 else (8.0, 8.0, 1.0) for turn in range(48))
    arms = (EAGER.id, EAGER.id, "plan")
    race = Race(arms=arms, with_aa=True, processes=(ProcessSamples(rounds=rows),) * 3, purpose="confirm")
    known = [
        PolicyArm(id=EAGER.id, label="eager", engine="eager", policy=ShapePolicy.EAGER),
        PolicyArm(id="plan", label="a plan", engine="quick", policy=ShapePolicy.MIXED),
    ]
    replay = Replay(race=race, arms=tuple(known), requests=48, calls=256, distinct=2, batch_sizes=True)
    lines: list[JournalLine] = [ReplayLine(replay=replay)]
    found = batch_sizes([*lines, *by_batch_size(replay, [1 if turn % 12 else 4 for turn in range(48)])])
    assert found is not None
    small, large = found.points[2:]
    assert (small.candidate, small.batch, small.call_s, large.batch, large.call_s) == ("a plan", 1, 1.0, 4, 1.0)
    assert small.versus_eager is not None
    assert small.versus_eager.ratio == pytest.approx(2.0)
    assert large.versus_eager is None
    assert "Too few requests for a speed-up at batch size 4; give a larger budget." in sentences(found)
