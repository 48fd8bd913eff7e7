"""The runner on this machine, with real processes: inputs that end eager's own, and builds side by side."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from compilot.artifacts.rundir import RunDir
from compilot.candidates.search import TimeLeft
from compilot.progress import Observer
from compilot.records import Candidate, Diagnosis, ProcessSettings, Settings, State, Trial
from compilot.trials.limits import Limits
from compilot.trials.local import LocalRunner
from compilot.trials.runner import BESIDE, Job, SetRules
from compilot.tuning.budget import Budget
from compilot.tuning.comparing import try_eager, try_one
from compilot.tuning.journal import RunJournal
from compilot.tuning.options import TuneOptions
from compilot.tuning.pipeline import tune
from compilot.workload.dispatch import ship_target

DATA = Path(__file__).parents[1] / "data"
FAULTY = f"{DATA / 'faulty.py'}:model"
FATAL = f"{DATA / 'fatal_inputs.py'}:negated"


class Notes(Observer):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def candidate(name: str) -> Candidate:
    return Candidate(settings=Settings(engine=f"dynamo:faulty_{name}"), label=name, rationale="a test")


def test_inputs_that_end_eagers_own_process_are_left_out_and_the_run_goes_on(tmp_path: Path) -> None:
    told = Notes()
    with LocalRunner(RunDir(tmp_path), limits=Limits(warm_s=1.0), observer=told) as runner:
        runner.open(ship_target(FATAL))
        seen = runner.inspect()
        assert try_eager(runner, 60.0).state is State.OK
        trial = try_one(runner, Candidate(settings=Settings(engine="dynamo:eager"), label="", rationale=""), 60.0)
    [note] = [text for text in told.notes if "eager itself" in text]  # a busy machine is said, too
    assert note.startswith("eager itself does not survive the inputs 'integers at the limits' (died of SIGFPE")
    assert seen.diagnosis.unjudgeable is None
    assert trial.state is State.OK, trial.reason  # judged by the other cases, and not asked for this one
    assert trial.check is not None
    assert "integers at the limits" not in [worst.case for worst in trial.check.worst]


def test_builds_side_by_side_carry_a_doubt_until_they_are_measured_alone(tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path)
    with LocalRunner(run_dir, limits=Limits(warm_s=1.0), observer=Observer(), builds_at_once=2) as runner:
        runner.open(ship_target(FAULTY))
        runner.inspect()
        assert try_eager(runner, 60.0).state is State.OK
        assert runner.free_slots() == 2
        runner.submit([Job(candidate(name), 60.0) for name in ("slow", "chatty")])
        trials = list(runner.completed())
        cache = run_dir.workspace(f"{trials[0].candidate.id}-alone") / "inductor"
        cache.mkdir(parents=True)
        (cache / "left").touch()  # by a run that was killed
        alone = runner.built_alone(trials[0], 60.0)
    assert [(trial.candidate.label, trial.state) for trial in trials] == [("slow", State.OK), ("chatty", State.OK)]
    for trial in trials:
        assert trial.measurement is not None
        assert BESIDE in trial.measurement.doubts
        assert trial.screening  # timed, one after another
    assert alone.measurement is not None
    assert BESIDE not in alone.measurement.doubts
    assert alone.measurement.cold_cache
    assert alone.measurement.cold_s != trials[0].measurement.cold_s  # type: ignore[union-attr]
    assert alone.measurement.call_s == trials[0].measurement.call_s  # type: ignore[union-attr]
    assert alone.artifacts == trials[0].artifacts
    assert not run_dir.workspace(f"{alone.candidate.id}-alone").exists()


def test_a_whole_run_with_builds_side_by_side_times_all_of_them(tmp_path: Path) -> None:
    run_dir, budget, observer = RunDir.make(tmp_path / "run"), Budget(1.0), Observer()
    search = Both([candidate("slow"), candidate("chatty")])
    with (
        RunJournal(run_dir, TuneOptions(budget_s=1.0), budget, observer) as journal,
        LocalRunner(run_dir, limits=Limits(warm_s=1.0), observer=observer, builds_at_once=2) as runner,
    ):
        plan = tune(ship_target(FAULTY), search=search, runner=runner, journal=journal, budget=budget)
    assert {t.candidate.label: t.state for t in search.told} == {
        "eager": State.OK,
        "slow": State.OK,
        "chatty": State.OK,
    }
    assert all(t.screening for t in search.told if not t.candidate.is_eager)
    assert plan.because


@pytest.mark.parametrize("engine", ["onnxruntime", pytest.param("inductor", marks=pytest.mark.compiles)])
def test_the_same_program_with_memory_kept_is_not_built_again(tmp_path: Path, engine: str) -> None:
    run_dir = RunDir(tmp_path)
    base = Candidate(settings=Settings(engine=engine), label="base", rationale="a test")
    kept = msgspec.structs.replace(base, process=ProcessSettings(keep_memory=True), label="kept")
    with LocalRunner(run_dir, limits=Limits(warm_s=1.0), observer=Observer()) as runner:
        runner.open(ship_target(f"{DATA / 'deciding.py'}:chain"))
        runner.inspect()
        assert try_eager(runner, 60.0).state is State.OK
        first, second = (try_one(runner, one, 240.0) for one in (base, kept))
        runner.keep([])
        fresh = runner.confirm([second], SetRules(number=0, pairs=2, for_s=30.0))
    assert (first.state, second.state) == (State.OK, State.OK), second.reason
    assert (first.files_of, second.files_of) == (None, first.candidate.id)
    assert second.check is not None
    assert second.check.passed
    assert second.screening
    assert first.artifacts == second.artifacts
    own, copied = (built_files(run_dir.workspace(one.id)) for one in (base, kept))
    assert own  # and nothing was compiled or exported beside them
    assert copied == own
    assert fresh.samples.rounds


def built_files(workspace: Path) -> set[str]:
    made = (path for path in workspace.rglob("*") if path.suffix in (".so", ".cpp", ".onnx", ".data"))
    return {str(path.relative_to(workspace)) for path in made}


class Both:
    """Asks for everything at once."""

    def __init__(self, candidates: list[Candidate]) -> None:
        self.left = candidates
        self.told: list[Trial] = []

    def begin(self, diagnosis: Diagnosis) -> None: ...

    def ask(self, slots: int, budget: TimeLeft) -> list[Candidate]:
        batch, self.left = self.left[:slots], self.left[slots:]
        return batch

    def tell(self, trial: Trial) -> None:
        self.told.append(trial)


def test_of_two_builds_side_by_side_one_may_die(tmp_path: Path) -> None:
    with LocalRunner(RunDir(tmp_path), limits=Limits(warm_s=1.0), observer=Observer(), builds_at_once=2) as runner:
        runner.open(ship_target(FAULTY))
        runner.inspect()
        assert try_eager(runner, 60.0).state is State.OK
        runner.submit([Job(candidate(name), 60.0) for name in ("aborts", "slow")])
        dead, living = runner.completed()
    assert dead.state is State.CRASHED
    assert "SIGABRT" in dead.reason
    assert living.state is State.OK, living.reason
