"""What a candidate may do to its process, and what the run makes of it: real children, real signals."""

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from compilot.artifacts.rundir import RunDir
from compilot.errors import EnvironmentProblem
from compilot.progress import Observer
from compilot.records import Candidate, Settings, State
from compilot.trials import worker
from compilot.trials.limits import Limits
from compilot.trials.local import LocalRunner
from compilot.tuning.comparing import try_eager, try_one
from compilot.workload.dispatch import ship_target

FAULTY = Path(__file__).parent.parent / "data" / "faulty.py"


def candidate(backend: str) -> Candidate:
    settings = Settings(engine=f"dynamo:faulty_{backend}")
    return Candidate(settings=settings, label=backend, rationale="to see what happens")


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalRunner]:
    limits = Limits(memory_bytes=1 << 30, warm_s=5.0)
    runner = LocalRunner(RunDir(tmp_path_factory.mktemp("run")), limits=limits, observer=Observer())
    runner.open(ship_target(f"{FAULTY}:model"))
    runner.inspect()
    assert try_eager(runner, 60.0).state is State.OK
    yield runner
    runner.close()


def test_a_model_that_kills_its_process_without_any_compiler_ends_the_run_in_one_sentence(tmp_path: Path):
    runner = LocalRunner(RunDir(tmp_path), limits=Limits(), observer=Observer())
    runner.open(ship_target(f"{FAULTY}:dying"))
    with pytest.raises(EnvironmentProblem, match=r"eager's own process failed: .*SIGABRT.* while running eager"):
        runner.inspect()
    runner.close()


def test_an_abort_ends_only_the_worker_and_its_last_words_are_quoted(runner: LocalRunner):
    trial = try_one(runner, candidate("aborts"), 60.0)
    assert trial.state is State.CRASHED
    assert "SIGABRT" in trial.reason
    assert "building" in trial.reason
    assert "about to abort" in trial.reason


def test_a_segmentation_fault_is_recorded_with_its_signal(runner: LocalRunner):
    trial = try_one(runner, candidate("segfaults"), 60.0)
    assert trial.state is State.CRASHED
    assert "SIGSEGV" in trial.reason


def test_a_worker_that_just_leaves_is_a_crash_too(runner: LocalRunner):
    trial = try_one(runner, candidate("exits"), 60.0)
    assert trial.state is State.CRASHED
    assert "exit code 7" in trial.reason


@pytest.mark.measures
def test_a_compile_that_hangs_is_ended_with_everything_it_started(
    runner: LocalRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    pid_file = tmp_path / "pid"
    monkeypatch.setenv("FAULTY_PID_FILE", str(pid_file))
    for limit_s in (8.0, 32.0, 128.0):  # a busy machine may not come to the hanging part within the first
        trial = try_one(runner, candidate("hangs"), limit_s)
        if pid_file.exists():
            break
    assert trial.state is State.TIMED_OUT
    assert "building took longer than" in trial.reason
    grandchild = int(pid_file.read_text())
    assert not psutil.pid_exists(grandchild) or psutil.Process(grandchild).status() == psutil.STATUS_ZOMBIE


@pytest.mark.measures
def test_a_compile_that_eats_the_memory_is_ended_before_the_machine_is(runner: LocalRunner):
    trial = try_one(runner, candidate("hogs"), 120.0)
    assert trial.state is State.INFEASIBLE
    assert "more than the limit of 1.0 GiB" in trial.reason


def test_a_backend_that_raises_is_infeasible_with_the_first_cause(runner: LocalRunner):
    trial = try_one(runner, candidate("raises"), 60.0)
    assert trial.state is State.INFEASIBLE
    assert "no kernel for aten.relu on this planet" in trial.reason


def test_a_backend_that_returns_wrong_numbers_is_refused_with_the_numbers(runner: LocalRunner):
    trial = try_one(runner, candidate("wrong"), 60.0)
    assert trial.state is State.WRONG
    assert trial.check is not None
    assert not trial.check.passed
    assert "RMSE" in trial.reason or "max abs" in trial.reason
    assert not trial.screening


def test_a_backend_that_writes_to_standard_output_cannot_corrupt_the_pipe(runner: LocalRunner):
    trial = try_one(runner, candidate("chatty"), 60.0)
    assert trial.state is State.OK
    assert b"not json" in (runner.run_dir.path / trial.stderr_log).read_bytes()


def test_a_backend_that_does_not_exist_is_infeasible(runner: LocalRunner):
    trial = try_one(runner, candidate("unheard_of"), 60.0)
    assert trial.state is State.INFEASIBLE


def test_the_search_goes_on_after_all_that_and_nothing_is_left_running(runner: LocalRunner):
    trial = try_one(runner, candidate("slow"), 60.0)
    assert trial.state is State.OK
    assert len(trial.screening) == 8
    assert all(mine > eager for eager, mine in trial.screening)
    runner.keep([])
    mine = psutil.Process(os.getpid()).children(recursive=True)
    workers = [p for p in mine if p.status() != psutil.STATUS_ZOMBIE and p.name() == worker.NAME]
    assert len(workers) == 1  # eager's own
