"""Whole runs in which the right decision is known: real processes, real compiles, small budgets."""

import importlib
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
import torch

import compilot
from compilot.api import whycold
from compilot.artifacts import journal
from compilot.artifacts.planfile import save_plan
from compilot.artifacts.rundir import RunDir
from compilot.candidates.spaces import candidates_of
from compilot.diagnose.cachemiss import why_cold
from compilot.engines import registry
from compilot.engines.eager.build import EAGER
from compilot.errors import InputError, TargetError
from compilot.progress import Observer
from compilot.records import (
    Candidate,
    Decision,
    Diagnosis,
    DynamicDim,
    Evidence,
    Outcome,
    PlanEntry,
    RaceLine,
    Settings,
    State,
    Trial,
    TrialLine,
)
from compilot.trials import worker
from compilot.trials.limits import Limits
from compilot.trials.local import LocalRunner
from compilot.trials.runner import Job, RaceRules
from compilot.tuning import budget, pipeline
from compilot.tuning.comparing import try_eager, try_one
from compilot.tuning.options import TuneOptions
from compilot.verdict.compare import compare
from compilot.workload import load_target
from compilot.workload.dispatch import ship_target

DATA = Path(__file__).parent.parent / "data"
DECIDING = DATA / "deciding.py"
FAULTY = DATA / "faulty.py"
SHORTEST_S = 1.0  # however short the budget, one candidate is tried and confirmed, with the fewest rounds


class Notes(Observer):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def run(target: str, folder: Path, budget_s: float, *engines: str, dynamic: tuple[DynamicDim, ...] = ()):
    options = TuneOptions(budget_s=budget_s, engines=engines)
    notes = Notes()
    outcome = pipeline.run(ship_target(target, extra_dynamic=dynamic), folder / "run", options, notes)
    return outcome, notes.notes


def trial_of(outcome: pipeline.Tuned, engine: str) -> Trial:
    return next(t for t in outcome.trials if t.candidate.settings.engine == engine)


@pytest.fixture
def one_confirmation(monkeypatch: pytest.MonkeyPatch) -> None:
    """One set of fresh processes instead of three, for tests in which the decision is of no matter."""
    monkeypatch.setattr(budget, "CONFIRM_PROCESSES", 1)


@pytest.mark.measures
@pytest.mark.compiles
def test_a_model_too_small_to_compile_keeps_eager_with_a_reason(tmp_path: Path):
    outcome, notes = run(f"{DECIDING}:two_ops", tmp_path, SHORTEST_S, "inductor")
    assert outcome.verdict.decision is Decision.KEEP_EAGER
    assert outcome.plan.entries == ()
    assert "inductor" in outcome.plan.because
    assert any("one eager call takes" in note for note in notes)
    fast = compilot.compile(load_target(f"{DECIDING}:two_ops").model, outcome.run_dir / "plan.json")
    assert torch.equal(fast(torch.tensor([-3.0, 1.0])), torch.tensor([0.0, 2.0]))


def test_a_model_that_no_seed_makes_repeat_itself_is_recognised_and_nothing_is_compiled(tmp_path: Path):
    outcome, notes = run(f"{DECIDING}:unseedable", tmp_path, 60.0)
    assert outcome.verdict.decision is Decision.KEEP_EAGER
    assert "two eager runs on the same input differ" in outcome.verdict.because
    assert "model.eval()" in outcome.verdict.because
    assert [t.candidate for t in outcome.trials] == [EAGER]
    assert any("train mode" in note for note in notes)


@pytest.fixture(scope="module")
def without_compiler(tmp_path_factory: pytest.TempPathFactory) -> pipeline.Tuned:
    """A run on a machine whose C++ compiler is gone, with one more backend, which is slow."""
    folder = tmp_path_factory.mktemp("without")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", str(folder / "no-such-g++"))
        return run(f"{FAULTY}:model", folder, 45.0, "inductor", "dynamo:faulty_slow")[0]


@pytest.mark.measures
def test_without_a_compiler_the_rest_goes_on(without_compiler: pipeline.Tuned):
    compiled = [t for t in without_compiler.trials if t.candidate.settings.engine == "inductor"]
    assert compiled
    assert {t.state for t in compiled} == {State.INFEASIBLE}
    assert all("no-such-g++" in t.reason for t in compiled)
    assert trial_of(without_compiler, "dynamo:faulty_slow").state is State.OK


@pytest.mark.measures
def test_a_candidate_that_is_slower_keeps_eager_with_the_figures(without_compiler: pipeline.Tuned):
    assert without_compiler.verdict.decision is Decision.KEEP_EAGER
    assert without_compiler.plan.entries == ()
    assert "dynamo:faulty_slow" in without_compiler.verdict.because
    assert "slower" in without_compiler.verdict.because


@pytest.mark.measures
def test_every_figure_can_be_computed_again_from_the_journal(without_compiler: pipeline.Tuned):
    lines = journal.read(without_compiler.run_dir / "journal.jsonl")
    race = next(line.race for line in lines if isinstance(line, RaceLine) and line.race.purpose == "confirm")
    assert len(race.processes) >= 3
    told = without_compiler.verdict.comparisons[0]
    assert compare(race, told.candidate_id, told.baseline_id) == told
    column = race.arms.index(told.candidate_id)
    ratios = [row[0] / row[column] for process in race.processes for row in process.rounds]
    assert told.ratio == pytest.approx(statistics.median(ratios), rel=0.2)  # by other means than compare's
    trials = [line.trial for line in lines if isinstance(line, TrialLine)]
    assert trials == list(without_compiler.trials)
    ran = [t for t in trials if t.state is State.OK]
    assert len(ran) >= 2  # eager and the slow one
    assert all(t.measurement is not None and t.measurement.call_s for t in ran)


def test_a_wrong_candidate_never_races(tmp_path: Path):
    outcome, _ = run(f"{FAULTY}:model", tmp_path, 25.0, "dynamo:faulty_wrong")
    assert trial_of(outcome, "dynamo:faulty_wrong").state is State.WRONG
    assert outcome.verdict.because == "no candidate could be used: 1 wrong"
    assert not [line for line in journal.read(outcome.run_dir / "journal.jsonl") if isinstance(line, RaceLine)]


@pytest.mark.measures  # a step of its trial has 20 s
@pytest.mark.compiles
@pytest.mark.usefixtures("one_confirmation")
def test_a_declared_dimension_stays_fast_over_twenty_sizes_without_a_recompile_storm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COMPILOT_CACHE", str(tmp_path / "own"))
    length = DynamicDim(input="x", dim=1, min=2, max=256)
    outcome, _ = run(f"{DECIDING}:chain", tmp_path, SHORTEST_S, "inductor", dynamic=(length,))
    ok = [t for t in outcome.trials if t.state is State.OK and not t.candidate.is_eager]
    assert ok
    assert {"smallest", "largest"} <= {worst.case for worst in ok[0].check.worst}  # type: ignore[union-attr]
    chosen = ok[0]  # whether it wins depends on the machine; that it stays fast must not
    assert chosen.guard is not None
    model = load_target(f"{DECIDING}:chain").model
    entry = PlanEntry(
        guard=chosen.guard,
        candidate=chosen.candidate,
        evidence=Evidence(),
        sentence="for this test",
        artifacts_dir=f"work/{chosen.candidate.id}",
    )
    save_plan(msgspec.structs.replace(outcome.plan, entries=(entry,)), outcome.run_dir / "plan.json")
    fast = compilot.compile(model, outcome.run_dir / "plan.json")
    with torch.no_grad():
        for size in range(2, 240, 12):
            x = torch.randn(2, size, 64)
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
    stats = fast.stats()
    assert stats.calls == 20
    assert stats.fallbacks == {}
    assert stats.compiles == 1
    _check_why_cold(outcome.run_dir, model, outcome.run_dir / entry.artifacts_dir / "inductor")


def _check_why_cold(run_dir: Path, model: torch.nn.Module, cache: Path) -> None:
    """The build and each start noted what they depend on: nothing differs until the cache is emptied."""
    start, which = whycold.latest(run_dir)
    assert which == "its last start on this machine"
    assert why_cold(whycold.read(run_dir), start) == ()
    shutil.rmtree(cache)
    compilot.compile(model, run_dir / "plan.json")
    assert [cause.component for cause in why_cold(whycold.read(run_dir), whycold.latest(run_dir)[0])] == ["cache files"]


TWINS = {  # one long loop is the same program with all of these
    "inductor": Settings(engine="inductor", mode="reduce-overhead"),
    "aoti": Settings(engine="aoti", options={"aggressive_fusion": True}),
}


@pytest.mark.compiles
@pytest.mark.parametrize("engine", TWINS)
def test_a_candidate_that_is_the_same_program_is_stopped_before_the_compiler_runs(tmp_path: Path, engine: str):
    shipment = ship_target(f"{DECIDING}:chain")
    runner = LocalRunner(RunDir(tmp_path), limits=Limits(warm_s=3.0), observer=Observer())
    by_label = {c.label: c for c in candidates_of(engine, Diagnosis())}
    other = Candidate(settings=TWINS[engine], label="the other one", rationale="a test")
    try:
        runner.open(shipment)
        runner.inspect()
        assert try_eager(runner, 60.0).state is State.OK
        plain = try_one(runner, by_label[engine], 120.0)
        assert plain.code_sha256 is not None
        assert plain.measurement is not None
        assert plain.measurement.compiler_runs > 0
        known = {plain.code_sha256: plain.candidate.id}
        runner.submit([Job(other, 120.0, known)])
        [twin] = runner.completed()
    finally:
        runner.close()
    assert twin.state is State.PRUNED, twin.reason
    assert twin.same_as == plain.candidate.id
    assert twin.measurement is not None
    assert twin.measurement.compiler_runs < plain.measurement.compiler_runs  # what is left asks for the CPU's vectors
    assert compiled(tmp_path, plain)
    assert not compiled(tmp_path, twin)


def compiled(run_dir: Path, trial: Trial) -> list[Path]:
    """The programs that the C++ compiler made for a candidate; torch's questions about the CPU are none."""
    folder = run_dir / "work" / trial.candidate.id
    return [*(folder / "inductor").rglob("*.main.so"), *folder.glob("model-*.so")]


def test_an_unknown_engine_and_a_broken_target_are_the_users_mistakes(tmp_path: Path):
    with pytest.raises(InputError, match="unknown engine 'tensorflow'"):
        run(f"{FAULTY}:model", tmp_path, 30.0, "tensorflow")
    with pytest.raises(TargetError, match="modle"):
        run(f"{FAULTY}:modle", tmp_path / "other", 30.0)


def test_a_candidate_that_dies_in_a_race_is_struck_out_and_the_run_ends_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    flag = tmp_path / "die"
    monkeypatch.setenv("FAULTY_DIE_FILE", str(flag))
    original = LocalRunner._time

    def deadly(self: LocalRunner, *arguments, **named):
        flag.touch()
        return original(self, *arguments, **named)

    monkeypatch.setattr(LocalRunner, "_time", deadly)
    outcome, _ = run(f"{FAULTY}:model", tmp_path, SHORTEST_S, "dynamo:faulty_dies_later")
    dead = trial_of(outcome, "dynamo:faulty_dies_later")
    assert dead.state is State.CRASHED
    assert "in a race: died of SIGABRT" in dead.reason
    assert outcome.verdict.decision is Decision.KEEP_EAGER
    assert outcome.verdict.because == "no candidate could be used: 1 crashed"


@pytest.mark.usefixtures("one_confirmation")
def test_an_engine_of_forty_lines_is_tried_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(DATA.parent.parent / "examples"))
    importlib.import_module("script_engine")
    try:
        outcome, _ = run(f"{FAULTY}:model", tmp_path, SHORTEST_S, "script")
    finally:
        registry.unregister("script")
    script = trial_of(outcome, "script")
    assert script.state is State.OK, script.reason
    assert [file.name for file in script.artifacts] == ["model.ts"]
    assert script.weights_sha256  # its author says nothing of digests: compilot compares the weights for it
    assert "script" in outcome.plan.because


@pytest.fixture
def hogs() -> Iterator[None]:
    """Every core kept busy by somebody else."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
    yield
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.measures
@pytest.mark.usefixtures("hogs")
def test_a_busy_machine_is_noticed_and_gives_no_false_win(tmp_path: Path):
    runner = LocalRunner(RunDir(tmp_path), limits=Limits(warm_s=3.0), observer=Observer())
    try:
        runner.open(ship_target(f"{FAULTY}:model"))
        runner.inspect()
        assert try_eager(runner, 60.0).state is State.OK
        race = runner.race([], RaceRules((20,), purpose="aa"))
    finally:
        runner.close()
    assert "other processes used" in race.load
    judged = compare(race, EAGER.id, EAGER.id)
    assert judged.outcome is not Outcome.FASTER
    assert race.load in judged.doubts


@pytest.mark.measures
def test_a_large_model_gets_two_workers_at_once_and_no_second_eager(tmp_path: Path):
    slow = Candidate(settings=Settings(engine="dynamo:faulty_slow"), label="slow", rationale="to race")
    runner = LocalRunner(RunDir(tmp_path), limits=Limits(warm_s=3.0), observer=Observer())
    try:
        runner.open(ship_target(f"{FAULTY}:model"))
        runner.inspect()
        assert try_eager(runner, 60.0).state is State.OK
        assert runner.workers.learn_capacity(rss_bytes=psutil.virtual_memory().available) == 2
        tried = try_one(runner, slow, 60.0)
        assert tried.state is State.OK
        race = runner.race([tried], RaceRules((8,)))
        children = psutil.Process().children(recursive=True)  # forked by a server of ours
        workers = [p for p in children if p.status() != psutil.STATUS_ZOMBIE and p.name() == worker.NAME]
    finally:
        runner.close()
    assert race.arms == (EAGER.id, slow.id)
    assert not race.with_aa
    assert len(workers) == 2
    assert compare(race, slow.id, EAGER.id).outcome is Outcome.SLOWER
