"""`tune` over a trace of many sizes, on a runner that runs nothing: costs, policies, the replay that decides."""

from __future__ import annotations

import io
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console
from stories import WORKLOAD, ListSearch, Story, candidate

from compilot.api.benching import bench
from compilot.api.tracing import requests_of
from compilot.api.tuning import tune as tune_anything
from compilot.artifacts.rundir import RunDir
from compilot.engines.eager.build import EAGER
from compilot.errors import InputError, PlanError, UserError
from compilot.progress import Observer
from compilot.records import (
    ArtifactFile,
    Candidate,
    Decision,
    DimRange,
    Goal,
    Objective,
    Outcome,
    PolicyArm,
    ProcessSamples,
    ProcessSettings,
    Race,
    Replay,
    ReplayLine,
    Settings,
    ShapePolicy,
    Shapes,
    SizeDemand,
    SizesVerdict,
    State,
    Trace,
    TrafficLine,
    Trial,
    TrialLine,
)
from compilot.report.page import page_of
from compilot.report.sizes import arm_sentences, drawn_policy, served_sizes, shown_sizes
from compilot.testing.fake_sizes import FakeSizes
from compilot.testing.runner import FakeRunner, Fate
from compilot.trials.runner import Arm, ArmLost, FreshReplay, Job, RaceRules, ReplayRules
from compilot.tuning import serving, size_arms, size_costs
from compilot.tuning.budget import Budget
from compilot.tuning.journal import RunJournal
from compilot.tuning.options import TuneOptions
from compilot.tuning.pipeline import tune
from compilot.tuning.replays import Made
from compilot.tuning.serving import (
    may_be_cut,
    partly_padded_note,
    powers_note,
    usable_padding,
    with_room,
)
from compilot.tuning.size_arms import Base
from compilot.tuning.size_costs import Curves, telling_first
from compilot.tuning.size_engines import in_process_of, ranked_over
from compilot.verdict.replays import compare_totals, decide_replay, start_share

ENGINE = "quick"
SIZES = FakeSizes({"x:1": (1, 100)}, example={"x:1": 10})


class Heard(Observer):
    """Remembers the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def calls(sizes: Mapping[int, int], seed: int = 0) -> list[dict[str, int]]:
    """Calls of these sizes, so many of each, in a mixed order."""
    found = [{"x:1": size} for size, number in sizes.items() for _ in range(number)]
    random.Random(seed).shuffle(found)
    return found


def dynamic(name: str) -> Candidate:
    return Candidate(
        settings=candidate(name).settings.__class__(engine=name, shapes=Shapes.DYNAMIC), label=name, rationale="a test"
    )


def speeds(static: float, all_sizes: float, **engines: tuple[float, float]) -> Any:
    """How the candidates behave: programs for one size, and for all of them."""
    known = {ENGINE: (static, all_sizes), **engines}

    def fate(one: Candidate) -> Fate:
        own = known.get(one.settings.engine)
        if own is None:
            return Fate(state=State.INFEASIBLE, reason="unknown")
        speed = own[0] if one.sizes else own[1]
        return Fate(speed=speed) if speed else Fate(state=State.INFEASIBLE, reason="it cannot")

    return fate


def served(
    folder: Path,
    fates: Any,
    trace: Sequence[Mapping[str, int]],
    *,
    sizes: FakeSizes = SIZES,
    names: Sequence[str] = (ENGINE,),
    options: TuneOptions | None = None,
    observer: Observer | None = None,
    resume: bool = False,
    runner_class: type[FakeRunner] = FakeRunner,
    **how: Any,
) -> Story:
    requests = requests_of(trace, 64)
    options = (options or TuneOptions(budget_s=2000.0))._replace(trace=requests.trace)
    runner = runner_class(fates, eager_call_s=0.02, sizes=sizes, **how)
    budget = Budget(options.budget_s, clock=runner.clock)
    run_dir, search = RunDir.make(folder / "run"), ListSearch([dynamic(name) for name in names])
    observer = observer or Observer()
    with RunJournal(run_dir, options, budget, observer, resume=resume) as journal, runner:
        plan = tune(
            requests.on(WORKLOAD, later=True),
            search=search,
            runner=runner,
            journal=journal,
            budget=budget,
            goal=options.goal,
            observer=observer,
            trace=requests.trace,
        )
        assert journal.verdict is not None
    return Story(plan, journal.verdict, runner, search, run_dir)


def sizes_of(story: Story) -> SizesVerdict:
    assert story.verdict.sizes is not None
    return story.verdict.sizes


def replays_of(story: Story) -> list[Replay]:
    """The one that chose, then the one that confirmed."""
    return [line.replay for line in story.run_dir.lines() if isinstance(line, ReplayLine)]


SPREAD = calls(dict.fromkeys(range(5, 96, 3), 4))
FEW = calls({10: 100, 60: 100})


def test_one_program_for_all_sizes_where_that_is_as_fast(tmp_path: Path) -> None:
    story = served(tmp_path, speeds(static=2.0, all_sizes=2.0), SPREAD)
    assert sizes_of(story).policy is ShapePolicy.DYNAMIC
    [entry] = story.plan.entries
    assert (entry.name, entry.padding) == ("dynamic", None)
    assert entry.guard.tensors[0].shape == (DimRange(min=1, max=100),)
    assert "1 process" not in story.plan.entries[0].sentence
    assert "3 processes x" in entry.sentence


def test_programs_for_the_common_sizes_and_the_dynamic_one_behind_them_where_nothing_may_be_padded(
    tmp_path: Path,
) -> None:
    story = served(tmp_path, speeds(static=4.0, all_sizes=1.5), FEW, sizes=SIZES._replace(may_pad=False))
    assert sizes_of(story).policy is ShapePolicy.MIXED
    assert {entry.name for entry in story.plan.entries} == {"10", "60", "dynamic"}
    assert story.plan.entries[-1].name == "dynamic"  # what the others do not take
    assert all(entry.padding is None for entry in story.plan.entries)
    assert sizes_of(story).replayed == pytest.approx(4.0, rel=0.1)


def test_buckets_where_padding_is_proven_and_programs_for_all_sizes_are_slow(tmp_path: Path) -> None:
    story = served(tmp_path, speeds(static=6.0, all_sizes=1.1), SPREAD)
    verdict = sizes_of(story)
    assert verdict.policy in (ShapePolicy.BUCKETS, ShapePolicy.MIXED)
    padded = [entry for entry in story.plan.entries if entry.padding is not None]
    assert padded
    for entry in padded:
        assert entry.padding is not None
        [size] = entry.guard.tensors[0].shape
        assert isinstance(size, DimRange)
        assert size.max == entry.padding.dims[0].size == int(entry.name)
    largest = max(
        size.max for e in story.plan.entries for size in e.guard.tensors[0].shape if isinstance(size, DimRange)
    )
    assert largest == 100  # a declared size that the trace does not have is served as well
    assert verdict.forecast is not None
    assert verdict.replayed is not None
    assert abs(verdict.forecast / verdict.replayed - 1.0) < 0.1


def test_a_program_whose_padded_calls_leak_takes_padding_from_its_engine(tmp_path: Path) -> None:
    sizes = SIZES._replace(leaking=[f"{ENGINE} {size}" for size in range(101)])
    story = served(tmp_path, speeds(static=6.0, all_sizes=1.5), FEW, sizes=sizes)
    [line] = [line for line in story.run_dir.lines() if isinstance(line, TrafficLine)]
    assert not line.engines[0].costs.may_pad
    assert "does not stand padding: output changes at size 1, padded to 2" in line.engines[0].notes[-1]
    assert all(entry.padding is None for entry in story.plan.entries)


def test_each_engine_has_its_own_policies_and_the_replay_takes_the_best(tmp_path: Path) -> None:
    fates = speeds(static=2.0, all_sizes=2.0, other=(5.0, 1.2))
    story = served(tmp_path, fates, FEW, names=(ENGINE, "other"))
    [line] = [line for line in story.run_dir.lines() if isinstance(line, TrafficLine)]
    assert {engine.engine for engine in line.engines} == {ENGINE, "other"}
    assert {entry.candidate.settings.engine for entry in story.plan.entries} == {"other"}


def test_an_engine_without_a_program_for_all_sizes_can_have_buckets(tmp_path: Path) -> None:
    story = served(tmp_path, speeds(static=3.0, all_sizes=0.0), FEW)
    assert sizes_of(story).policy is ShapePolicy.BUCKETS
    assert [entry.padding is not None for entry in story.plan.entries] == [True] * len(story.plan.entries)


def test_every_arm_answers_the_same_requests_in_the_same_order(tmp_path: Path) -> None:
    story = served(tmp_path, speeds(static=4.0, all_sizes=1.5), FEW)
    replay, _ = replays_of(story)
    assert len(replay.race.processes) == 3
    assert {len(process.rounds) for process in replay.race.processes} == {replay.requests}
    eager = [row[0] for row in replay.race.processes[0].rounds]
    again = [row[0] for row in replay.race.processes[1].rounds]
    assert [a > 0.05 for a in eager] == [b > 0.05 for b in again]  # short and long ones at the same places
    assert (replay.calls, replay.distinct) == (200, 2)
    by_id = {arm.id: arm for arm in replay.arms}
    assert by_id[EAGER.id].fast_share is None
    assert by_id[sizes_of(story).arm_id].fast_share == 1.0


def test_eager_is_kept_where_nothing_is_faster_and_the_reason_has_figures(tmp_path: Path) -> None:
    story = served(tmp_path, speeds(static=0.8, all_sizes=0.7), FEW)
    assert story.verdict.decision is Decision.KEEP_EAGER
    assert story.plan.entries == ()
    assert story.verdict.because.startswith("best policy quick")
    assert "over 64 requests of a trace of 200 calls" in story.verdict.because


def test_a_horizon_counts_the_start_of_every_program(tmp_path: Path) -> None:
    fates = speeds(static=4.0, all_sizes=3.0)
    long = served(tmp_path / "long", fates, FEW, options=TuneOptions(budget_s=2000.0))
    few = Goal(horizon_calls=20)
    short = served(tmp_path / "short", fates, FEW, options=TuneOptions(budget_s=2000.0, goal=few))
    assert len(short.plan.entries) < len(long.plan.entries)


def test_no_more_programs_than_the_user_allows(tmp_path: Path) -> None:
    trace = calls(dict.fromkeys((5, 20, 40, 60, 80, 95), 20))
    story = served(tmp_path, speeds(6.0, 1.1), trace, options=TuneOptions(budget_s=4000.0, max_entries=2))
    assert 1 <= len(story.plan.entries) <= 2
    more = served(tmp_path / "more", speeds(6.0, 1.1), trace, options=TuneOptions(budget_s=4000.0))
    assert len(more.plan.entries) > 2


TWO = FakeSizes(
    {"x:0": (1, 8), "x:1": (1, 64)},
    cost=lambda own: own["x:0"] * own["x:1"] + 10.0,
    example={"x:0": 1, "x:1": 16},
)
OF_TWO = [{"x:0": batch, "x:1": length} for batch in (1, 4, 8) for length in (10, 30, 64) for _ in range(10)]
CORNERS = {(1, 1), (1, 64), (8, 1), (8, 64)}


def slow_to_build(program_s: float) -> Any:
    """Programs for one size take so long to build."""
    plain = speeds(4.0, 1.2)
    return lambda one: plain(one)._replace(cold_s=program_s if one.sizes else 1.0)


def test_a_short_budget_builds_the_corners_of_two_dimensions_first(tmp_path: Path) -> None:
    story = served(tmp_path, slow_to_build(160.0), OF_TWO, sizes=TWO)
    [line] = [line for line in story.run_dir.lines() if isinstance(line, TrafficLine)]
    [engine] = line.engines
    assert engine.costs.static is not None
    assert {point.sizes for point in engine.costs.static.points} == CORNERS
    built = [label for label in story.runner.tried if label.startswith(f"{ENGINE} ")]
    assert {tuple(map(int, label.split()[1].split("x"))) for label in built[:4]} == CORNERS


def test_three_corners_are_no_cost_of_programs_for_one_size(tmp_path: Path) -> None:
    story = served(tmp_path, slow_to_build(395.0), OF_TWO, sizes=TWO)  # the budget ends the fourth
    [line] = [line for line in story.run_dir.lines() if isinstance(line, TrafficLine)]
    [engine] = line.engines
    built = [x.trial for x in story.run_dir.lines() if isinstance(x, TrialLine) and x.trial.candidate.sizes]
    assert [trial.state for trial in built[:4]] == [State.OK, State.OK, State.OK, State.TIMED_OUT]
    assert engine.costs.static is None
    assert engine.costs.dynamic is not None
    assert any("timed-out" in note for note in engine.notes)
    assert [entry.name for entry in story.plan.entries] == ["dynamic"]


def test_two_dimensions(tmp_path: Path) -> None:
    sizes, trace = TWO, OF_TWO
    story = served(tmp_path, speeds(4.0, 1.2), trace, sizes=sizes)
    assert story.verdict.decision is Decision.USE
    assert any("x" in entry.name for entry in story.plan.entries)
    assert sizes_of(story).replayed == pytest.approx(sizes_of(story).forecast or 0.0, rel=0.1)


def test_an_arm_that_is_lost_in_the_replay_is_left_out_with_its_reason(tmp_path: Path) -> None:
    plain = speeds(4.0, 1.5)
    story = served(tmp_path, lambda c: plain(c)._replace(lost="it crashed" if c.sizes == {"x:1": 60} else ""), FEW)
    first, *_ = replays_of(story)
    assert [arm.lost for arm in first.arms if arm.lost]
    assert "60" not in {entry.name for entry in story.plan.entries}


def test_one_size_only_is_tuned_for_as_without_a_trace(tmp_path: Path) -> None:
    heard = Heard()
    sizes = FakeSizes({}, example={})
    story = served(tmp_path, speeds(2.0, 2.0), [{}] * 10, sizes=sizes, observer=heard)
    assert any("as without a trace" in note for note in heard.notes)
    assert story.verdict.sizes is None
    assert story.verdict.decision is Decision.USE


def test_a_name_that_the_model_does_not_have_ends_the_run_before_anything_is_tried(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 1 of the shape trace: no dimension 'y:1'"):
        served(tmp_path, speeds(2.0, 2.0), [{"y:1": 3}])


def test_a_resumed_run_does_not_build_the_same_programs_again(tmp_path: Path) -> None:
    first = served(tmp_path, speeds(4.0, 1.5), FEW)
    again = served(tmp_path, speeds(4.0, 1.5), FEW, resume=True)
    assert not [label for label in again.runner.tried if label.startswith(f"{ENGINE} ")]
    assert [e.name for e in again.plan.entries] == [e.name for e in first.plan.entries]


def test_the_header_remembers_the_trace(tmp_path: Path) -> None:
    story = served(tmp_path, speeds(2.0, 2.0), FEW, options=TuneOptions(budget_s=900.0, max_entries=5))
    header = story.run_dir.last_header()
    assert (header.trace, header.max_entries) == ("(calls)", 5)


def test_a_trace_is_a_record_of_its_own() -> None:
    found = requests_of(FEW, 16)
    assert isinstance(found.trace, Trace)
    assert len(found.calls) == 16
    assert found.ranges == {"x:1": DimRange(min=10, max=60)}


def test_of_three_sizes_that_vary_programs_for_all_sizes_serve_all(tmp_path: Path) -> None:
    ranges = {"x:0": (1, 4), "x:1": (1, 8), "x:2": (1, 8)}
    sizes = FakeSizes(ranges, cost=lambda own: sum(own.values()), example=dict.fromkeys(ranges, 2))
    draw = random.Random(0)
    trace = [{name: draw.randint(*ends) for name, ends in ranges.items()} for _ in range(100)]
    story = served(tmp_path, speeds(static=6.0, all_sizes=2.0), trace, sizes=sizes)
    assert sizes_of(story).policy is ShapePolicy.DYNAMIC
    assert "x:0, x:1, x:2 vary: programs are chosen for two sizes at most" in sizes_of(story).notes


def test_terminal_page_and_record_have_every_policy_with_forecast_and_replay(tmp_path: Path) -> None:
    story = served(tmp_path, speeds(static=6.0, all_sizes=1.2), SPREAD)
    lines = story.run_dir.lines()
    found = served_sizes(lines)
    assert found is not None
    assert found.rows[0].policy == "eager"
    [chosen] = [row for row in found.rows if row.chosen]
    assert chosen.versus_eager is not None
    assert chosen.versus_eager.ratio == sizes_of(story).replayed
    assert (found.requests, found.processes, found.calls) == (64, 3, len(SPREAD))
    for width in (80, 120):
        console = Console(width=width, record=True, file=io.StringIO())
        console.print(*shown_sizes(found, width), sep="\n")
        text = console.export_text()
        assert max(map(len, text.splitlines())) <= width
        assert "baseline" in text
        assert f"{chosen.forecast:.2f}x" in text
        assert "quick" in text
    story.run_dir.save_plan(story.plan)
    page = page_of(story.run_dir.path)
    section = next(one for one in page.sections if one.id == "sizes")
    assert section.picture is not None
    assert "Sizes of the trace and their cost; programs for one size:" in section.picture.wide
    assert len(section.tables[0].rows) == len(found.rows)
    assert page.head.verdict.startswith("Use ")
    assert "for the trace" in page.head.verdict


def test_what_a_plan_with_many_entries_prints_is_short(tmp_path: Path) -> None:
    story = served(tmp_path, speeds(static=4.0, all_sizes=1.5), FEW, sizes=SIZES._replace(may_pad=False))
    text = str(story.plan).splitlines()[0]
    assert text.startswith("plan for Fake: 3 programs (")
    assert text.count("faster than eager") == 1


def test_the_sizes_that_tell_most_come_first() -> None:
    assert telling_first([(n,) for n in range(5)]) == [(4,), (0,), (2,), (1,), (3,)]
    assert telling_first([(7,)]) == [(7,)]
    grid = [(batch, length) for batch in (1, 2, 4) for length in (8, 16, 32, 64)]
    order = telling_first(grid)
    assert sorted(order) == grid
    assert set(order[:4]) == {(1, 8), (1, 64), (4, 8), (4, 64)}  # the corners
    assert {len(size_costs._grid(dict.fromkeys(order[:done], 1.0))) for done in range(4, 13)} == {4, 6, 9, 12}


def test_a_row_that_was_not_finished_takes_nothing_else_out_of_a_grid() -> None:
    corners = dict.fromkeys([(1, 8), (1, 64), (4, 8), (4, 64)], 1.0)
    assert size_costs._grid({**corners, (2, 64): 1.0}) == corners
    assert size_costs._grid({**corners, (4, 16): 1.0}) == corners


def test_one_size_of_a_dimension_is_no_curve(tmp_path: Path) -> None:
    story = served(tmp_path, speeds(static=4.0, all_sizes=1.5), FEW)
    tried = next(x.trial for x in story.run_dir.lines() if isinstance(x, TrialLine) and x.trial.candidate.sizes)
    eager = {(a, b): 0.01 * a * b for a in (1, 8) for b in (1, 64)}
    row = {(1, length): tried for length in (1, 2, 16, 64)}
    assert size_costs.static_cost(eager, row) is None
    assert size_costs.static_cost(eager, dict.fromkeys([(1, 1), (1, 64), (8, 1)], tried)) is None
    assert size_costs.static_cost(eager, dict.fromkeys(eager, tried)) is not None
    own = tried.candidate.id
    assert size_costs.dynamic_cost(tried, Curves(eager, {own: {(1, length): 0.1 for length in (1, 64)}})) is None
    assert size_costs.dynamic_cost(tried, Curves(eager, {own: eager})) is not None


def test_a_size_that_failed_takes_its_row_out_of_a_grid() -> None:
    points = {(a, b): 1.0 for a in (1, 2) for b in (8, 16, 32)}
    del points[2, 32]
    grid = size_costs._grid(points)
    assert len(grid) in (3, 4)
    axes = [set(axis) for axis in zip(*grid, strict=True)]
    assert len(grid) == len(axes[0]) * len(axes[1])


def test_only_padding_of_all_sizes_of_the_trace_is_used() -> None:
    traffic = SIZES.traffic([])
    whole = SIZES.proof()
    assert usable_padding(whole, traffic) == whole.padding
    assert usable_padding(SIZES._replace(may_pad=False).proof(), traffic) is None
    two = FakeSizes({"x:0": (1, 4), "x:1": (1, 9)})
    assert usable_padding(whole, two.traffic([])) is None  # one of two is proven
    assert partly_padded_note(whole, two.traffic([])) == [
        "x:0 may be padded, and x:1 may not: a program for one size serves that size alone"
    ]
    assert partly_padded_note(whole, traffic) == []
    assert partly_padded_note(SIZES._replace(may_pad=False).proof(), two.traffic([])) == []


def test_powers_of_two_that_need_more_programs_than_a_plan_may_have_are_told(tmp_path: Path) -> None:
    story = served(tmp_path, speeds(6.0, 1.1), SPREAD, options=TuneOptions(budget_s=2000.0, max_entries=4))
    told = "powers of two would need 5 programs, and a plan may have 4: that policy is left out"
    assert told in sizes_of(story).notes  # 8, 16, 32, 64, and 100 as the largest
    [line] = [line for line in story.run_dir.lines() if isinstance(line, TrafficLine)]
    assert ShapePolicy.POWERS_OF_TWO not in {one.policy for one in line.engines[0].choice.forecasts}
    enough = served(tmp_path / "enough", speeds(6.0, 1.1), SPREAD)
    assert not any("powers of two" in note for note in sizes_of(enough).notes)
    assert powers_note(SIZES.traffic([]), 1) == []  # of no calls


def test_programs_for_one_size_have_a_cost_where_eager_failed_at_a_corner(tmp_path: Path) -> None:
    story = served(tmp_path, speeds(static=4.0, all_sizes=1.5), FEW)
    tried = next(x.trial for x in story.run_dir.lines() if isinstance(x, TrialLine) and x.trial.candidate.sizes)
    eager = {(a, b): 0.01 * a * b for a in (1, 2, 4) for b in (8, 16, 32)}
    del eager[4, 32]
    cost = size_costs.static_cost(eager, {(1, 8): tried, (1, 16): tried, (2, 8): tried, (2, 16): tried})
    assert cost is not None
    assert len(cost.points) == 4


def test_a_plan_for_many_sizes_is_not_measured_at_the_size_of_the_example(tmp_path: Path) -> None:
    many = served(tmp_path / "many", speeds(static=4.0, all_sizes=1.5), FEW).plan
    with pytest.raises(InputError, match="this plan is for many sizes; give its trace"):
        bench("nowhere.py:model", plans=many, progress=False)
    one = served(tmp_path / "one", speeds(static=2.0, all_sizes=2.0), SPREAD).plan
    assert one.entries
    for plan, trace in ((one, None), (many, FEW)):  # one program for all sizes has the example's, too
        with pytest.raises(UserError, match="nowhere"):
            bench("nowhere.py:model", plans=plan, trace=trace, out=tmp_path / "bench", progress=False)


class Flattered(FakeRunner):
    """Its plans answer faster in the replay that chooses than in fresh processes, or take all the time there."""

    flattery, takes_s = 1.0, 0.0

    def replay(self, arms: Sequence[Arm], rules: ReplayRules) -> FreshReplay:
        found = super().replay(arms, rules)
        if rules.purpose == "confirm":
            return found
        self._now_s += self.takes_s
        eager = 1 + found.with_aa
        rows = [(*r[:eager], *(s / self.flattery for s in r[eager:])) for r in found.samples.rounds]
        return found._replace(samples=ProcessSamples(rounds=tuple(rows)))


def test_the_plan_has_the_figures_of_fresh_processes_and_not_those_that_chose_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Flattered, "flattery", 1.5)
    story = served(tmp_path, speeds(static=2.0, all_sizes=2.0), SPREAD, runner_class=Flattered)
    chose, again = replays_of(story)
    assert (chose.race.purpose, again.race.purpose) == ("replay", "confirm")
    assert len(again.race.processes) == 3
    assert again.race.arms == (EAGER.id, EAGER.id, sizes_of(story).arm_id)
    assert sizes_of(story).replayed == pytest.approx(2.0, rel=0.05)
    versus = story.plan.entries[0].evidence.versus_eager
    assert versus is not None
    assert versus.ratio == sizes_of(story).replayed
    assert "2.0" in story.verdict.because.split(";")[0]
    assert "in fresh processes" in story.verdict.because


def test_what_only_chance_made_faster_is_not_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flattered, "flattery", 1.3)
    story = served(tmp_path, speeds(static=1.0, all_sizes=1.0), SPREAD, runner_class=Flattered)
    assert len(replays_of(story)) == 2
    assert story.verdict.decision is Decision.KEEP_EAGER
    assert story.plan.entries == ()
    assert "1.30x when it was chosen" in story.verdict.because
    assert sizes_of(story).replayed is None


def test_what_there_was_no_time_to_confirm_is_not_called_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Flattered, "takes_s", 1e5)
    story = served(tmp_path, speeds(static=4.0, all_sizes=1.5), FEW, runner_class=Flattered)
    assert [one.race.purpose for one in replays_of(story)] == ["replay"]
    assert story.verdict.decision is Decision.KEEP_EAGER
    assert "not confirmed in fresh processes: 0 of 3 sets" in story.verdict.because
    assert "give a larger budget" in story.verdict.because
    assert "faster" not in story.verdict.because
    assert Outcome.FASTER not in {one.outcome for one in sizes_of(story).comparisons}
    found = served_sizes(story.run_dir.lines())
    assert found is not None
    assert not any("faster than" in text for text in arm_sentences(found))


class EndsLate(FakeRunner):
    """The first set of the replay that chooses ends at this moment, if not later."""

    ends_at_s = 0.0

    def replay(self, arms: Sequence[Arm], rules: ReplayRules) -> FreshReplay:
        found = super().replay(arms, rules)
        if rules.purpose == "replay":
            self._now_s = max(self._now_s, self.ends_at_s)
        return found


def test_a_confirmation_may_run_over_the_budget_as_any_other_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EndsLate, "ends_at_s", 2100.0)  # of 2000, and a quarter may be run over
    story = served(tmp_path, speeds(static=4.0, all_sizes=1.5), FEW, runner_class=EndsLate)
    assert [(one.race.purpose, len(one.race.processes)) for one in replays_of(story)] == [("replay", 1), ("confirm", 3)]
    assert story.verdict.decision is Decision.USE
    assert story.plan.entries


def test_a_further_set_of_the_replay_that_chooses_must_fit_before_the_confirmation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Flattered, "takes_s", 700.0)  # of 2000, of which a third is for the confirmation
    story = served(tmp_path, speeds(static=4.0, all_sizes=1.5), FEW, runner_class=Flattered)
    assert [(one.race.purpose, len(one.race.processes)) for one in replays_of(story)] == [("replay", 1), ("confirm", 3)]
    assert story.verdict.decision is Decision.USE


class FastWhenLong(FakeRunner):
    """The program of the engine "late" is four times as fast in calls longer than 50; all of the trace's are."""

    def race(self, trials: Sequence[Trial], rules: RaceRules) -> Race:
        race = super().race(trials, rules)
        if rules.sizes.get("x:1", 0) <= 50:
            return race
        return msgspec.structs.replace(race, processes=(self._faster(race.processes[0], race.arms, trials),))

    def over_requests(self, trials: Sequence[Trial], rules: ReplayRules) -> ProcessSamples:
        arms = (EAGER.id, *(trial.candidate.id for trial in trials))
        return self._faster(super().over_requests(trials, rules), arms, trials)

    def _faster(self, samples: ProcessSamples, arms: Sequence[str], trials: Sequence[Trial]) -> ProcessSamples:
        late = {one.candidate.id for one in trials if one.candidate.settings.engine == "late"}
        rows = [
            tuple(seconds / (4.0 if arm in late else 1.0) for seconds, arm in zip(row, arms, strict=True))
            for row in samples.rounds
        ]
        return ProcessSamples(rounds=tuple(rows))


def test_engines_are_chosen_by_the_whole_trace_and_not_by_the_size_of_the_example(tmp_path: Path) -> None:
    fates = speeds(2.0, 2.0, other=(2.0, 1.9), late=(2.0, 1.5))
    names, heard = (ENGINE, "other", "late"), Heard()
    trace = calls({70: 100, 95: 100})
    story = served(tmp_path, fates, trace, names=names, runner_class=FastWhenLong, observer=heard)
    [line] = [line for line in story.run_dir.lines() if isinstance(line, TrafficLine)]
    assert [engine.engine for engine in line.engines] == ["late", ENGINE]
    assert not [label for label in story.runner.tried if label.startswith("other ")]
    assert any("late and quick go on" in note for note in heard.notes)


def test_of_two_engines_of_one_compiler_the_better_one_goes_on() -> None:
    seconds = {"inductor": 2.0, "aoti": 1.0, ENGINE: 3.0}
    bases = [Base(dynamic(name), Trial(candidate=dynamic(name), state=State.OK, reason="")) for name in seconds]
    bases.append(Base(dynamic("static only")))
    curves = {dynamic(name).id: {(1,): own_s, (9,): own_s} for name, own_s in seconds.items()}
    ranked = ranked_over([SizeDemand(sizes=(5,), count=10)], bases, Curves({(1,): 4.0, (9,): 4.0}, curves))
    found = [(base.candidate.settings.engine, total_s) for base, total_s in ranked]
    assert found == [("aoti", 10.0), (ENGINE, 30.0), ("static only", float("inf"))]


def test_torch_compile_is_tried_before_the_policies_take_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = [
        Candidate(settings=Settings(engine=name, shapes=Shapes.DYNAMIC), label=label, rationale="a test")
        for name, label in (("plain", "torch.compile"), ("odd", "torch.compile dynamic=True"))
    ]
    monkeypatch.setattr(serving, "plain_candidates", lambda *_: ways)
    story = served(tmp_path, speeds(6.0, 1.1, plain=(0.0, 1.3)), SPREAD)
    tried = story.runner.tried
    assert tried.index("torch.compile") < tried.index(f"{ENGINE} 8")  # that only powers of two need
    for replay in replays_of(story):
        assert f"as-is-{ways[0].id}" in replay.race.arms
    assert "torch.compile dynamic=True is not compared: infeasible, unknown" in sizes_of(story).notes


HEAVY = calls({5: 400, 9: 150, 14: 90, 23: 60, 41: 25, 66: 9, 97: 3})


@pytest.mark.parametrize("budget_s", [200.0, 2000.0])  # the short one has no time for all requests
@pytest.mark.parametrize("may_pad", [True, False])
def test_the_forecast_is_the_replay_where_costs_are_known_exactly(
    tmp_path: Path, budget_s: float, may_pad: bool
) -> None:
    sizes = FakeSizes(
        {"x:1": (1, 100)}, cost=lambda own: own["x:1"] + 20.0, example={"x:1": 10}, pad_s=0.004, may_pad=may_pad
    )
    goal = Goal(horizon_calls=50_000)
    for number, trace in enumerate((HEAVY, SPREAD)):
        options = TuneOptions(budget_s=budget_s, goal=goal)
        story = served(tmp_path / str(number), speeds(6.0, 1.3), trace, sizes=sizes, options=options, noise=0.0)
        for replay in replays_of(story):
            race = replay.race
            arms = [arm for arm in replay.arms if arm.forecast is not None]
            assert arms
            for arm in arms:
                versus = compare_totals(race, arm.id, EAGER.id, more_s=start_share(arm, goal.horizon_calls))
                assert arm.forecast == pytest.approx(versus.ratio, rel=1e-9)
        assert sizes_of(story).forecast == pytest.approx(sizes_of(story).replayed, rel=1e-9)


def test_a_program_that_is_prepared_anew_at_each_size_is_forecast_as_it_is_in_traffic(tmp_path: Path) -> None:
    """Called again and again with one size it is the fastest; in traffic every call costs 0.2 s more."""
    sizes = FakeSizes({"x:1": (1, 100)}, example={"x:1": 10}, change_s={ENGINE: 0.200})
    story = served(
        tmp_path, speeds(1.5, 4.0, plain=(0.0, 2.0)), SPREAD, sizes=sizes, names=(ENGINE, "plain"), noise=0.0
    )
    [traffic] = [line for line in story.run_dir.lines() if isinstance(line, TrafficLine)]
    assert [engine.engine for engine in traffic.engines] == ["plain", ENGINE]
    for replay in replays_of(story):
        for arm in (arm for arm in replay.arms if arm.forecast is not None):
            assert arm.forecast == pytest.approx(compare_totals(replay.race, arm.id, EAGER.id).ratio, rel=1e-9)
    assert {entry.candidate.settings.engine for entry in story.plan.entries} == {"plain"}


def test_where_memory_is_short_the_best_policy_and_torch_compile_stay() -> None:
    def arm(name: str, policy: ShapePolicy | None) -> Made:
        return Made(Arm(name, ()), PolicyArm(id=name, label=name, engine=ENGINE, policy=policy))

    every = [arm("best", ShapePolicy.MIXED), arm("second", ShapePolicy.DYNAMIC), arm("plain", None), arm("all", None)]
    for most, kept in (
        (9, "best second plain all"),
        (3, "best second plain"),
        (2, "best plain"),
        (1, "best"),
        (0, "best"),
    ):
        found, notes = with_room(every, most)
        assert " ".join(one.arm.id for one in found) == kept
        assert bool(notes) == (len(found) < 4)
    assert with_room(every, 2)[1] == [
        "memory has room for 2 processes beside eager, so these are not replayed: second, all"
    ]


def test_a_replay_on_a_small_machine_has_no_more_processes_than_fit(tmp_path: Path) -> None:
    story = served(tmp_path, speeds(6.0, 1.5), SPREAD, workers=3)
    assert story.runner.replayed
    assert max(map(len, story.runner.replayed)) == 2
    assert any("memory has room for 2 processes beside eager" in note for note in sizes_of(story).notes)


@pytest.mark.parametrize("objective", [Objective.P99, Objective.STARTUP, Objective.MEMORY])
def test_a_goal_that_a_replay_does_not_know_is_said(objective: Objective, tmp_path: Path) -> None:
    told = f"requests are judged by the time that they take in all, and not by the objective {objective}"
    options = TuneOptions(budget_s=2000.0, goal=Goal(objective=objective))
    assert told in sizes_of(served(tmp_path / "one", speeds(6.0, 1.5), FEW, options=options)).notes
    assert told not in sizes_of(served(tmp_path / "two", speeds(6.0, 1.5), FEW)).notes


def test_several_callers_and_a_trace_are_refused_together() -> None:
    with pytest.raises(InputError, match="replayed by one caller; leave out concurrency, or the trace"):
        tune_anything("nowhere.py:model", trace=FEW, objective="throughput", concurrency=4, progress=False)


def test_calls_are_cut_only_where_the_batch_begins_at_one() -> None:
    for low, may in ((0, False), (1, True), (2, False)):
        sizes = FakeSizes({"x:0": (low, 8)}, may_split=True)
        assert may_be_cut(sizes.proof().padding, sizes.traffic([])) == may


def test_a_policy_whose_guards_cannot_be_made_is_left_out_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PlanError("the plan pads positions.")

    monkeypatch.setattr(size_arms, "taken_by", refused)
    story = served(tmp_path, speeds(6.0, 1.5), SPREAD)
    assert any("cannot be used: the plan pads positions" in note for note in sizes_of(story).notes)
    assert story.plan.entries  # of the program for all sizes


def test_two_engines_serve_together_what_each_does_best(tmp_path: Path) -> None:
    """One is fast at one size and slow at all, the other has no programs for one size."""
    sizes = FakeSizes({"x:1": (1, 100)}, example={"x:1": 10}, may_pad=False)
    fates, names = speeds(6.0, 1.2, plain=(0.0, 2.5)), (ENGINE, "plain")
    trace = calls({**dict.fromkeys(range(30, 80), 4), 5: 200, 20: 200, 95: 60})
    story = served(tmp_path, fates, trace, sizes=sizes, names=names, noise=0.0)
    [line] = [line for line in story.run_dir.lines() if isinstance(line, TrafficLine)]
    assert [one.engine for one in line.engines] == ["plain", ENGINE, f"{ENGINE} + plain"]
    assert [forecast.policy for forecast in line.engines[-1].choice.forecasts] == [ShapePolicy.EAGER, ShapePolicy.MIXED]
    *pinned, last = story.plan.entries
    assert {entry.candidate.settings.engine for entry in pinned} == {ENGINE}
    assert {entry.candidate.sizes["x:1"] for entry in pinned} >= {5, 20, 95}
    assert (last.candidate.settings.engine, last.candidate.sizes) == ("plain", {})
    for replay in replays_of(story):
        for arm in (arm for arm in replay.arms if arm.forecast is not None):
            assert arm.forecast == pytest.approx(compare_totals(replay.race, arm.id, EAGER.id).ratio, rel=1e-9)
    assert sizes_of(story).because.startswith(f"{ENGINE} + plain mixed 5, 20")
    shown = served_sizes(story.run_dir.lines())
    assert shown is not None
    drawn = drawn_policy(shown)
    assert drawn is not None
    assert drawn[0].label == f"{ENGINE} + plain"


def test_programs_of_two_engines_have_the_same_settings_of_the_process() -> None:
    def tried(engine: str, speed: float, **process: Any) -> Trial:
        label = f"{engine} {process}"
        one = Candidate(settings=Settings(engine=engine), label=label, rationale="", process=ProcessSettings(**process))
        return Trial(candidate=one, state=State.OK, reason="", screening=((speed, 1.0),) * 4)

    kept, plain, quicker = tried("a", 3.0, keep_memory=True), tried("a", 2.0), tried("a", 2.5)
    other, threads = tried("b", 2.0).candidate, tried("b", 2.0, threads=1).candidate
    trials = [kept, plain, quicker]
    assert in_process_of(kept.candidate, other, trials) is quicker.candidate
    assert in_process_of(plain.candidate, other, trials) is plain.candidate
    assert in_process_of(kept.candidate, threads, trials) is None


def test_programs_that_take_far_more_than_their_share_are_not_built_to_learn_what_they_cost(tmp_path: Path) -> None:
    quick = speeds(6.0, 2.0)

    def slow(one: Candidate) -> Fate:
        return quick(one)._replace(cold_s=80.0)

    options = TuneOptions(budget_s=400.0)
    story = served(tmp_path / "slow", slow, SPREAD, options=options)
    assert not [label for label in story.runner.tried if label.startswith(f"{ENGINE} ")]
    assert [entry.candidate.sizes for entry in story.plan.entries] == [{}]
    story = served(tmp_path / "quick", quick, SPREAD, options=options)
    assert [label for label in story.runner.tried if label.startswith(f"{ENGINE} ")]


def test_eager_and_programs_cost_what_requests_took() -> None:
    eager, own = {(1,): 4.0, (9,): 12.0}, {(1,): 2.0, (9,): 6.0}
    assert size_costs.change_of([(1,), (9,)], [5.0, 15.0], eager) == pytest.approx(2.0)
    assert size_costs.change_of([(1,), (5,)], [1.5, 3.5], own) == pytest.approx(-0.5)
    tried = Trial(candidate=dynamic(ENGINE), state=State.OK, reason="")
    found = Curves(eager, {tried.candidate.id: own}, {EAGER.id: 2.0, tried.candidate.id: -1.5})
    assert [point.call_s for point in size_costs.eager_cost(found).points] == [6.0, 14.0]
    cost = size_costs.dynamic_cost(tried, found)
    assert cost is not None
    assert [point.call_s for point in cost.points] == [1.0, 4.5]  # never less than half


def test_a_program_that_fails_among_changing_sizes_is_left_out_of_that_look(tmp_path: Path) -> None:
    class Failing(FakeRunner):
        """One of the engines does not stand changes of size."""

        asked = 0

        def over_requests(self, trials: Sequence[Trial], rules: ReplayRules) -> ProcessSamples:
            Failing.asked += 1
            for trial in trials:
                if trial.candidate.settings.engine == "plain":
                    raise ArmLost(trial.candidate.id, State.CRASHED, "it died")
            return super().over_requests(trials, rules)

    fates = speeds(6.0, 4.0, plain=(0.0, 2.0))
    story = served(tmp_path, fates, SPREAD, names=(ENGINE, "plain"), runner_class=Failing)
    assert Failing.asked == 2
    assert story.plan.entries


def test_the_forecast_is_the_replay_in_two_dimensions(tmp_path: Path) -> None:
    sizes = FakeSizes(
        {"x:0": (1, 8), "x:1": (1, 64)},
        cost=lambda own: own["x:0"] * own["x:1"] + 10.0,
        example={"x:0": 1, "x:1": 16},
        pad_s=0.003,
    )
    draw = random.Random(1)
    trace = [{"x:0": draw.choice((1, 1, 2, 5, 8)), "x:1": draw.choice((3, 7, 20, 64))} for _ in range(300)]
    story = served(tmp_path, speeds(4.0, 1.2), trace, sizes=sizes, noise=0.0)
    arms = [(replay, arm) for replay in replays_of(story) for arm in replay.arms if arm.forecast is not None]
    assert {arm.policy for _, arm in arms} >= {ShapePolicy.MIXED, ShapePolicy.DYNAMIC}
    for replay, arm in arms:
        assert arm.forecast == pytest.approx(compare_totals(replay.race, arm.id, EAGER.id).ratio, rel=1e-9)


def test_a_policy_that_needs_more_memory_than_allowed_is_not_built(tmp_path: Path) -> None:
    class Large(FakeRunner):
        """Every program has a file of a megabyte."""

        def _trial(self, job: Job, *, beside: bool) -> Trial:
            file = ArtifactFile(name="weights", sha256="0" * 64, size_bytes=1 << 20)
            trial = super()._trial(job, beside=beside)
            return msgspec.structs.replace(trial, artifacts=() if job.candidate.is_eager else (file,))

    trace, one = calls(dict.fromkeys((5, 20, 40, 60, 80, 95), 20)), 1 << 28
    free = served(tmp_path / "free", speeds(6.0, 1.1), trace, runner_class=Large)
    assert len(free.plan.entries) > 3
    limit = TuneOptions(budget_s=2000.0, max_memory_bytes=one + 2 * (1 << 20))
    held = served(tmp_path / "held", speeds(6.0, 1.1), trace, runner_class=Large, options=limit)
    assert 1 <= len(held.plan.entries) <= 3  # the process with the first, and two more files
    [line] = [line for line in held.run_dir.lines() if isinstance(line, TrafficLine)]
    assert max(forecast.memory_bytes for forecast in line.engines[0].choice.forecasts) <= one + 2 * (1 << 20)


@pytest.mark.parametrize("sizes", ["1,2,4", [1, 2]])
def test_a_trace_and_batch_sizes_are_refused_together(sizes: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give trace or batch_sizes, not both"):
        tune_anything("nowhere.py:model", trace=FEW, batch_sizes=sizes, progress=False)
    with pytest.raises(InputError, match="give trace or batch_sizes, not both"):  # before the file is read
        tune_anything("nowhere.py:model", trace=tmp_path / "none.jsonl", batch_sizes=sizes, progress=False)


def test_a_trace_on_a_cluster_is_refused_before_the_cluster_is_asked() -> None:
    with pytest.raises(InputError, match="a trace is served by a run on one machine; leave out the cluster"):
        tune_anything("nowhere.py:model", trace=FEW, on="192.0.2.1:6379", progress=False)


# ------------------------------------------------------------------------------------------------- calls in parts

ROWS = FakeSizes(
    {"x:0": (1, 32)},
    cost=lambda own: float(own["x:0"] if own["x:0"] <= 8 else 3 * own["x:0"]),
    example={"x:0": 8},
    may_split=True,
)
BATCHES = [{"x:0": size} for size in (1, 2, 4, 8, 16, 32) for _ in range(20)]


def test_large_calls_are_cut_where_their_parts_are_faster(tmp_path: Path) -> None:
    story = served(tmp_path, speeds(static=0.0, all_sizes=2.0), BATCHES, sizes=ROWS)
    verdict = sizes_of(story)
    assert verdict.policy is ShapePolicy.SPLIT
    [entry] = story.plan.entries
    assert entry.split is not None
    assert (entry.split.rows, entry.split.min, entry.split.batch.size) == (8, 16, 32)
    assert entry.padding is None
    assert verdict.forecast is not None
    assert verdict.replayed is not None
    assert abs(verdict.forecast / verdict.replayed - 1.0) < 0.1
    assert verdict.replayed > 4.0  # 2x of the program, the rest of the parts
    assert "quick split in parts of 8" in story.verdict.because


def test_an_engine_with_static_programs_alone_serves_large_calls_in_parts(tmp_path: Path) -> None:
    story = served(tmp_path, speeds(static=3.0, all_sizes=0.0), BATCHES, sizes=ROWS)
    assert sizes_of(story).policy is ShapePolicy.SPLIT
    last = next(entry for entry in story.plan.entries if entry.split is not None)
    assert (last.name, last.guard.tensors[0].shape) == ("8", (DimRange(min=1, max=32),))
    assert last.padding is not None
    assert last.padding.dims[0].size == 8
    assert all(arm.fast_share == 1.0 for arm in replays_of(story)[-1].arms if arm.splits)


def test_nothing_is_cut_where_rows_are_not_proven_to_be_independent(tmp_path: Path) -> None:
    story = served(tmp_path, speeds(static=0.0, all_sizes=2.0), BATCHES, sizes=ROWS._replace(may_split=False))
    assert sizes_of(story).policy is ShapePolicy.DYNAMIC
    assert all(entry.split is None for entry in story.plan.entries)


def test_nothing_is_cut_where_calls_cost_what_their_rows_cost(tmp_path: Path) -> None:
    even = ROWS._replace(cost=lambda own: 2.0 + own["x:0"])
    story = served(tmp_path, speeds(static=0.0, all_sizes=2.0), BATCHES, sizes=even)
    assert all(entry.split is None for entry in story.plan.entries)
    assert not any(arm.splits for replay in replays_of(story) for arm in replay.arms)


def test_of_two_arms_that_are_as_good_the_one_that_cuts_nothing_is_taken() -> None:
    rows = tuple((1.0, 1.0, 0.5 + 0.001 * (n % 3), 0.5 + 0.001 * ((n + 1) % 3)) for n in range(96))
    race = Race(arms=(EAGER.id, EAGER.id, "cut", "whole"), with_aa=True, processes=(ProcessSamples(rounds=rows),) * 3)
    arms = [
        PolicyArm(id=name, label=name, engine="quick", policy=policy, fast_share=1.0, splits=cut, programs=programs)
        for name, policy, cut, programs in (
            ("cut", ShapePolicy.SPLIT, True, ("8",)),
            ("whole", ShapePolicy.BUCKETS, False, ("8", "32")),
        )
    ]
    eager = PolicyArm(id=EAGER.id, label="eager", engine="eager", policy=ShapePolicy.EAGER)
    decided = decide_replay(Replay(race=race, arms=(eager, *arms), requests=96, calls=96, distinct=2))
    assert decided.arm is not None
    assert decided.arm.id == "whole"
