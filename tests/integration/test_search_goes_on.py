"""One run in which most candidates end badly, with real processes: each has its story, and the best one is chosen.

Rows 14, 15 and 17 of what compilot must survive: a compiler that fails, at once or on a kernel only, or is too old; a
worker that may not have more memory, or that is killed as the system kills one for its memory (by the signal: nobody
here fills the machine); illegal instructions. The model sleeps (bench/kills_model.py), so that the winner is
known whatever else the machine does.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from compilot.artifacts.rundir import RunDir
from compilot.candidates import guided
from compilot.engines import registry
from compilot.engines.eager.build import EAGER
from compilot.engines.space import Seed, Space
from compilot.progress import Observer
from compilot.records import Decision, State, Trial
from compilot.trials.limits import Limits
from compilot.trials.local import LocalRunner
from compilot.tuning import budget, pipeline
from compilot.tuning.options import TuneOptions
from compilot.workload.dispatch import ship_target

ROOT = Path(__file__).parents[2]
TARGET = f"{ROOT / 'bench' / 'kills_model.py'}:model"
DYING = ("illegal-build", "illegal-call", "killed-build", "refused-build")
FAILS = """#!/bin/sh
case "$*" in *--version*) exec g++ "$@";; esac
echo "In file included from header.hpp:1:" >&2
echo "header.hpp:7: internal compiler error: Segmentation fault" >&2
exit 1
"""
FAILS_ON_KERNELS = f"""#!/bin/sh
case "$1" in
*/{EAGER.id}/*) ;;
*.main.cpp)
  echo "In file included from kernel.cpp:1:" >&2
  echo "kernel.cpp:7: internal compiler error: in vectorize_loops" >&2
  exit 4;;
esac
exec g++ "$@"
"""  # the first program of a run, which lies in eager's folder, is made; a candidate's kernels are not
TOO_OLD = """#!/bin/sh
case "$*" in *--version*) echo "g++ (GCC) 4.8.5 20150623"; exit 0;; *-dumpversion*) echo 4.8.5; exit 0;; esac
for word in "$@"; do
  case "$word" in -std=c++17|-std=c++20) echo "g++: error: unrecognized command line option '$word'" >&2; exit 1;; esac
done
exec g++ "$@"
"""

pytestmark = pytest.mark.measures


def compiler(folder: Path, name: str, script: str) -> str:
    path = folder / name
    path.write_text(script)
    path.chmod(0o755)
    return str(path)


@pytest.fixture(scope="module")
def engines() -> Iterator[None]:
    """The engines that die and the two whose speed is certain, known to this process and to its workers."""
    before = dict(registry._registered)
    with pytest.MonkeyPatch.context() as patch:
        for folder in (ROOT / "bench", ROOT / "tests" / "data"):
            patch.syspath_prepend(str(folder))
        for name in ("dying_engines", "kills_engine"):
            sys.modules.pop(name, None)
            importlib.import_module(name)
        yield
    registry._registered.clear()
    registry._registered.update(before)


@pytest.fixture(scope="module")
def outcome(engines: None, tmp_path_factory: pytest.TempPathFactory) -> pipeline.Tuned:
    """A whole run with all of them, a compiler that is too old, and one engine that is fast."""
    folder = tmp_path_factory.mktemp("dying")
    return whole_run(folder, compiler(folder, "old-g++", TOO_OLD), ("inductor", *DYING, "quick"))


def whole_run(folder: Path, cxx: str, engines: tuple[str, ...]) -> pipeline.Tuned:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", cxx)
        patch.setenv("DYING_PID_FILE", str(folder / "pid"))
        patch.setenv("KILLS_BUILDS", str(folder / "builds"))
        patch.setattr(pipeline, "PREPARE_FROM_S", float("inf"))  # neither doctor nor compiler beside eager's start
        patch.setattr(pipeline, "Limits", lambda **named: Limits(warm_s=0.3, **named))
        patch.setattr(guided, "turns", lambda candidate, knobs: [])
        patch.setattr(budget, "TAIL_S", 0.2)
        patch.setattr(budget, "CONFIRM_PAIRS", 20)
        for name in ("CONFIRM_PROCESSES", "MOST_CONFIRM_PROCESSES"):
            patch.setattr(budget, name, 1)
        options = TuneOptions(budget_s=300.0, engines=engines)
        return pipeline.run(ship_target(TARGET), folder / "run", options, Observer())


def trial(outcome: pipeline.Tuned, engine: str) -> Trial:
    (found,) = [t for t in outcome.trials if t.candidate.label == engine]
    return found


@pytest.mark.parametrize("engine", ["illegal-build", "illegal-call"])
def test_row_17_an_illegal_instruction_ends_only_the_worker_and_has_its_signal(
    outcome: pipeline.Tuned, engine: str
) -> None:
    found = trial(outcome, engine)
    assert found.state is State.CRASHED
    assert "died of SIGILL while building" in found.reason  # which ends with the first call


def test_row_15_a_worker_that_is_ended_by_sigkill_counts_as_out_of_memory_with_its_last_words(
    outcome: pipeline.Tuned,
) -> None:
    """The signal is what the system sends then; that it sends it is not tried here."""
    found = trial(outcome, "killed-build")
    assert found.state is State.INFEASIBLE
    assert "killed by SIGKILL while building: most likely the machine ran out of memory" in found.reason
    assert "its last output: allocating the last page" in found.reason


def test_row_15_a_worker_that_may_not_have_more_memory_says_so_and_lives_to_tell(outcome: pipeline.Tuned) -> None:
    found = trial(outcome, "refused-build")
    assert found.state is State.INFEASIBLE
    assert found.reason == "MemoryError"


def test_row_14_a_compiler_that_is_too_old_is_named_with_what_it_said_and_its_command(
    outcome: pipeline.Tuned,
) -> None:
    compiled = [t for t in outcome.trials if t.candidate.settings.engine == "inductor"]
    assert compiled
    for found in compiled:
        assert found.state is State.INFEASIBLE
        assert "no working C++ compiler: g++: error: unrecognized command line option '-std=c++" in found.reason
        assert "the command ended with exit code 1: " in found.reason
        assert "old-g++ " in found.reason
    log = (outcome.run_dir / "logs" / "toolchain.log").read_text()
    assert "-fopenmp" in log  # the whole command


def test_the_search_went_on_and_the_plan_is_the_best_of_the_rest(outcome: pipeline.Tuned) -> None:
    assert trial(outcome, "quick").state is State.OK
    assert outcome.verdict.decision is Decision.USE
    assert [entry.candidate.settings.engine for entry in outcome.plan.entries] == ["quick"]


def test_nothing_that_a_dead_worker_started_is_left(outcome: pipeline.Tuned) -> None:
    """Its parent was dead before anybody could ask whose child it is, and it had gone to a session of its own."""
    started = int((outcome.run_dir.parent / "pid").read_text())
    assert not psutil.pid_exists(started) or psutil.Process(started).status() == psutil.STATUS_ZOMBIE


@pytest.mark.usefixtures("engines")
def test_row_14_a_compiler_that_fails_is_told_in_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", compiler(tmp_path, "failing-g++", FAILS))
    runner = LocalRunner(RunDir(tmp_path / "run"), limits=Limits(), observer=Observer())
    try:
        problem = runner.try_compiler().problem
    finally:
        runner.close()
    assert problem is not None
    assert problem.startswith("header.hpp:7: internal compiler error: Segmentation fault; the command ended with exit")
    assert "failing-g++ " in problem


@pytest.mark.usefixtures("engines")
def test_row_14_a_compiler_that_fails_on_a_kernel_ends_only_that_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Space(seeds=(Seed("", "a test"),))
    monkeypatch.setattr(registry.build_half("inductor"), "space", lambda diagnosis: one)
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # a compiler of another name gets a header of its own: not for keeps
    outcome = whole_run(tmp_path, compiler(tmp_path, "half-g++", FAILS_ON_KERNELS), ("inductor", "quick"))
    failed = trial(outcome, "inductor")
    assert failed.state is State.INFEASIBLE
    said = "kernel.cpp:7: internal compiler error: in vectorize_loops; the command ended with exit code 4: "
    assert failed.reason.startswith(said)
    assert "half-g++ " in failed.reason
    assert "no working C++ compiler" not in failed.reason  # it worked when it was tried
    assert trial(outcome, "quick").state is State.OK
    assert outcome.verdict.decision is Decision.USE
    assert [entry.candidate.settings.engine for entry in outcome.plan.entries] == ["quick"]
