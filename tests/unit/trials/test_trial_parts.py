"""The small pure parts of trials: what counts as a compiler run, how a busy machine is described, room for workers."""

import io
import signal
import subprocess
import sys
import typing
from pathlib import Path

import pytest

from compilot import errors
from compilot.errors import first_cause
from compilot.records import State
from compilot.trials.child import _signal_obituary, last_lines
from compilot.trials.limits import Limits, affordable_workers, worker_env
from compilot.trials.load import describe
from compilot.trials.protocol import (
    AnyRequest,
    DoctorRequest,
    Failed,
    PackingRequest,
    Quit,
    SizesRequest,
    TimeBatch,
    TrainingRequest,
    TrialRequest,
    decode_request,
)
from compilot.trials.replies import raise_user_error
from compilot.trials.worker import _failed

GIB = 2**30
EXAMPLES = Path(__file__).parents[3] / "examples"


def test_a_quiet_machine_is_described_by_nothing():
    assert describe(wall_s=10.0, others_s=1.0, steal_s=0.1) == ""


def test_a_busy_machine_is_described_in_words():
    assert describe(wall_s=10.0, others_s=8.3, steal_s=0.0) == "other processes used 83 % of a core"
    assert "hypervisor took 20 % of a core" in describe(wall_s=10.0, others_s=0.0, steal_s=2.0)


def test_a_model_larger_than_half_the_memory_gets_two_workers_and_no_more():
    assert affordable_workers(rss_bytes=14 * GIB, available_bytes=24 * GIB) == 2
    assert affordable_workers(rss_bytes=1 * GIB, available_bytes=24 * GIB) == 19


def test_a_cap_shortens_every_step_of_a_trial_but_not_eagers_own():
    limits = Limits().capped(30.0)
    assert (limits.build_s, limits.check_s) == (30.0, 30.0)
    assert limits.inspect_s == Limits().inspect_s


def test_opening_the_target_may_take_half_of_the_budget_and_what_imports_need():
    assert Limits().within(5.0).open_s == 30.0
    assert Limits().within(60.0).open_s == 30.0
    assert Limits().within(100.0).open_s == 50.0
    assert Limits().within(300.0).open_s == 150.0
    assert Limits().within(3600.0).open_s == 1800.0


def test_a_worker_has_a_compile_cache_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("TORCH_CACHING_PRECOMPILE", "1")
    env = worker_env(tmp_path)
    assert env["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "inductor")
    assert "TORCH_CACHING_PRECOMPILE" not in env


def test_a_users_error_in_the_worker_is_the_same_error_in_the_parent():
    reply = Failed(id=1, state=State.INFEASIBLE, reason="no factory 'f'", error="TargetError")
    with pytest.raises(errors.TargetError, match="no factory 'f'"):
        raise_user_error(reply)


def test_anything_else_that_stops_eager_is_a_problem_of_the_environment():
    with pytest.raises(errors.EnvironmentProblem, match="cannot be run: ValueError: bad"):
        raise_user_error(Failed(id=1, state=State.INFEASIBLE, reason="ValueError: bad"))


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            subprocess.CalledProcessError(1, ["g++", "-c", "x.cpp"], stderr=b"In file\nx.cpp:3: error: no\nnote: yes"),
            "x.cpp:3: error: no; the command ended with exit code 1: g++ -c x.cpp",
        ),
        (
            subprocess.CalledProcessError(-9, ["g++", "x.cpp"], output="nothing of use\nthe last line\n"),
            "the last line; the command was ended by signal 9: g++ x.cpp",
        ),
        (subprocess.CalledProcessError(4, "make it"), "it said nothing; the command ended with exit code 4: make it"),
        (subprocess.TimeoutExpired(["g++"], 5.0), "it said nothing; the command did not end in time: g++"),
    ],
)
def test_of_a_program_that_failed_its_own_words_come_first_then_the_command(error: Exception, told: str):
    wrapped = RuntimeError("backend failed")
    wrapped.__cause__ = error
    assert first_cause(wrapped) == told


def test_a_long_command_leaves_room_for_what_went_wrong():
    error = subprocess.CalledProcessError(1, ["g++", *["-Dx"] * 500], stderr="error: " + "y" * 1000)
    told = first_cause(error)
    assert len(told) == 400
    assert told.startswith("error: yyy")
    assert "; the command ended with exit code 1: g++ -Dx" in told


@pytest.mark.parametrize(("number", "name"), [(signal.SIGILL, "SIGILL"), (signal.SIGBUS, "SIGBUS"), (35, "signal 35")])
def test_every_signal_has_a_story_also_those_without_a_name(number: int, name: str):
    assert _signal_obituary(number, "building", "") == (State.CRASHED, f"died of {name} while building")


DEEP = "/home/somebody/" + "/".join(f"a-folder-with-a-long-name-{n}" for n in range(12))
MESSAGE = "fatal error: omp.h: No such file or directory"


def test_in_a_deep_folder_the_compilers_message_and_the_files_name_are_still_told():
    output = f"In file included from {DEEP}/a.h:1:\n{DEEP}/cabc.main.cpp:12:10: {MESSAGE}\n"
    command = ["g++", f"{DEEP}/cabc.main.cpp", f"-I{DEEP}/include", "-o", f"{DEEP}/cabc.main.o"]
    told = first_cause(subprocess.CalledProcessError(1, command, stderr=output))
    assert told.startswith(f".../cabc.main.cpp:12:10: {MESSAGE}; the command ended with exit code 1: g++ ")
    assert told.endswith("g++ .../cabc.main.cpp -I.../include -o .../cabc.main.o")


def test_a_path_that_there_is_room_for_stays_whole():
    told = first_cause(
        subprocess.CalledProcessError(1, ["g++", "/tmp/a/b/c.cpp"], stderr=f"/tmp/a/b/c.cpp:1: {MESSAGE}")
    )
    assert told == f"/tmp/a/b/c.cpp:1: {MESSAGE}; the command ended with exit code 1: g++ /tmp/a/b/c.cpp"


def test_what_is_too_long_without_paths_is_cut_and_shows_that_it_is():
    told = first_cause(subprocess.CalledProcessError(1, ["g++", "-x" * 300], stderr="error: " + "much " * 100))
    assert len(told) == 400
    assert "...; the command ended with exit code 1: g++ -x" in told
    assert told.endswith("...")


def test_the_first_cause_is_told_not_the_wrapping():
    wrapped = RuntimeError("wrapped")
    wrapped.__cause__ = ValueError("the real reason\nand a second line")
    assert first_cause(wrapped) == "ValueError: the real reason"


def test_last_words_are_the_last_lines_that_say_something(tmp_path: Path):
    log = tmp_path / "log"
    log.write_text("one\n\ntwo\n  three  \n\n")
    assert last_lines(log, 2) == "two | three"
    assert last_lines(tmp_path / "missing") == ""


def test_every_request_has_one_handler():
    from compilot.trials.steps import HANDLERS, training

    wanted = {
        *typing.get_args(TrialRequest),
        *typing.get_args(SizesRequest),
        *typing.get_args(DoctorRequest),
        *typing.get_args(PackingRequest),
    }
    assert set(HANDLERS) == wanted
    wanted |= {*typing.get_args(TrainingRequest)}  # which have handlers of their own
    assert wanted & set(training.HANDLERS) >= {*typing.get_args(TrainingRequest)}
    assert wanted | {Quit} == set(typing.get_args(AnyRequest))


def test_requests_survive_the_pipe():
    assert decode_request(b'{"type":"TimeBatch","id":7}') == TimeBatch(id=7)
    assert decode_request(b'{"type":"Quit","id":0}') == Quit(id=0)


def test_a_worker_whose_log_is_on_a_full_disk_still_tells_what_went_wrong(monkeypatch: pytest.MonkeyPatch):
    with io.TextIOWrapper(io.FileIO("/dev/full", "w"), write_through=True) as log:
        monkeypatch.setattr(sys, "stderr", log)
        reply = _failed(OSError(28, "No space left on device"))
    assert "No space left on device" in reply.reason


EAGERS_STEPS = """
import sys, torch
from compilot.records import Candidate, MemoryFormat, Settings
from compilot.trials.protocol import PROTOCOL, Build, Inspect, Open
from compilot.trials.steps import trial
from compilot.trials.steps.state import WorkerState
from compilot.workload.dispatch import ship_target

target, folder = sys.argv[1:]
worker, settings = WorkerState(), Settings(memory_format=MemoryFormat.CHANNELS_LAST)
candidate = Candidate(settings=settings, label="eager channels-last", rationale="a test")
request = Open(protocol=PROTOCOL, shipment=ship_target(target), candidate=candidate, workspace=folder)
trial.open_workload(worker, request)
trial.inspect(worker, Inspect(references=folder))
built = trial.build(worker, Build())
print(type(built).__name__, "torch._dynamo" in sys.modules)
"""


@pytest.mark.slow
def test_eagers_worker_does_without_dynamo(tmp_path):
    """Most processes of a run are eager's; the import costs as much as torch's own."""
    command = [sys.executable, "-c", EAGERS_STEPS, str(EXAMPLES / "tiny.py:mlp"), str(tmp_path)]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    assert shown.stdout == "Built False\n", shown.stderr
