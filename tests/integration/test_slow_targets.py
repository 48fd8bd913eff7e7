"""A target that does not open: every command ends within a limit, says which, and leaves no process behind."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from compilot.doctor import checkup
from compilot.errors import EnvironmentProblem, TargetError
from compilot.packing import golden
from compilot.packing.runs import FinishedRun
from compilot.progress import Observer
from compilot.records import Shipment
from compilot.trials import limits
from compilot.trials.limits import Limits
from compilot.tuning import pipeline
from compilot.tuning.options import TuneOptions
from compilot.workload.dispatch import ship_target

pytestmark = pytest.mark.measures
SLEEPS = "import time\n\n\ndef model():\n    time.sleep(1000)\n"
IMPORTS_SLOWLY = "import time\n\ntime.sleep(1000)\n\n\ndef model():\n    return None\n"


@pytest.fixture(params=[SLEEPS, IMPORTS_SLOWLY], ids=["factory", "import"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    file = tmp_path / "sleepy.py"
    file.write_text(request.param)
    return f"{file}:model"


def no_child_is_left() -> bool:
    return not [p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]


def test_tune_waits_no_longer_than_its_budget_allows(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "LEAST_OPEN_S", 1.5)
    begin = time.monotonic()
    with pytest.raises(TargetError, match=r"sleepy.py:model' did not open within 2 s .*give a larger budget"):
        pipeline.run(ship_target(target), tmp_path / "run", TuneOptions(budget_s=4.0), Observer())
    assert time.monotonic() - begin < 60
    assert no_child_is_left()


def test_the_doctor_says_how_long_it_waited(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(checkup, "Limits", lambda **given: Limits(open_s=given.get("open_s", 2.0)))
    with pytest.raises(TargetError, match=r"did not open within 2 s .* return sooner\.$"):
        checkup.run(ship_target(target), tmp_path)
    assert no_child_is_left()


def test_packing_says_how_long_it_waited(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(golden, "LIMITS", Limits(open_s=2.0))
    run = FinishedRun(folder=tmp_path, plan=None, shipment=ship_target(target))  # type: ignore[arg-type]
    with pytest.raises(TargetError, match=r"did not open within 2 s"):
        golden.save_weights(run, tmp_path, tmp_path / "weights.safetensors")
    assert no_child_is_left()


def test_a_live_model_that_does_not_open_is_not_called_a_target(tmp_path: Path):
    from compilot.trials.opening import _too_slow

    live = Shipment(sys_path=(), cwd="/", payload=str(tmp_path / "payload"))
    told = _too_slow(live, Limits().within(5.0))
    assert isinstance(told, EnvironmentProblem)
    assert "within 30 s" in str(told)


TUNES_BY_COMMAND = """
import sys
from compilot.trials import limits
limits.LEAST_OPEN_S = 1.5
from compilot.cli.main import run
sys.argv = ["compilot", "tune", sys.argv[1], "--budget", "5s", "--out", "run", "--quiet"]
run()
"""


def test_the_command_with_a_budget_of_five_seconds_ends_and_says_how_long_it_waited(target: str, tmp_path: Path):
    """Half of the budget is more than the least time here, which is 30 s otherwise: too long for a test."""
    command = [sys.executable, "-c", TUNES_BY_COMMAND, target]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        started = workers_of(process)
        out, err = process.communicate(timeout=90)
    assert (process.returncode, out) == (2, "")
    [sentence] = err.splitlines()
    assert "sleepy.py:model' did not open within 2 s and was ended" in sentence
    assert "give a larger budget" in sentence
    assert not psutil.wait_procs(started, timeout=5)[1]
    assert not (tmp_path / "run" / "plan.json").exists()


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The processes that a command has started, as soon as there are some."""
    parent = psutil.Process(process.pid)
    while not (found := parent.children(recursive=True)):
        assert process.poll() is None, "it ended before it started a worker"
        time.sleep(0.05)
    return found


TUNES = """
import signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores Ctrl-C
from compilot.tuning import pipeline
from compilot.tuning.options import TuneOptions
from compilot.progress import Observer
from compilot.workload.dispatch import ship_target
print("ready", flush=True)
try:
    pipeline.run(ship_target(sys.argv[1]), Path(sys.argv[2]), TuneOptions(budget_s=100.0), Observer())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_the_waiting_at_once(target: str, tmp_path: Path):
    """In a process of its own: Ctrl-C must not reach the one that runs the tests."""
    command = [sys.executable, "-c", TUNES, target, str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        started = workers_of(process)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=20)  # well below the 50 s that it would wait for the target
    assert out == "interrupted\n"
    gone, alive = psutil.wait_procs(started, timeout=5)
    assert not alive
    assert len(gone) == len(started)
