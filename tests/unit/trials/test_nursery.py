"""Workers that are forked: the same as fresh ones in what they do, and fresh ones wherever a fork would not be safe."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from compilot.records import Candidate, Settings
from compilot.trials import blas, nursery
from compilot.trials.child import Child, Dead
from compilot.trials.limits import worker_env
from compilot.trials.nursery import Forked, Nursery
from compilot.trials.opening import opening
from compilot.trials.protocol import Opened
from compilot.workload.dispatch import ship_target

pytestmark = pytest.mark.slow
WAIT_S = 60.0
EAGER = Candidate(settings=Settings(), label="eager", rationale="test")
TARGET = """
import torch

class Net(torch.nn.Linear):
    pass

def factory():
    return Net(2, 2).eval(), (torch.ones(1, 2),)
"""


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "net.py"
    path.write_text(TARGET)
    return path


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Nursery]:
    one = Nursery(tmp_path / "forkserver.log")
    yield one
    one.close()


def child_of(made: Nursery, tmp_path: Path, name: str = "one", **env: str) -> Child:
    return Child(name, log=tmp_path / f"{name}.log", env={**worker_env(tmp_path / name), **env}, start=made.start)


def opened(child: Child, target: Path, tmp_path: Path) -> Opened:
    request = opening(ship_target(f"{target}:factory"), EAGER, tmp_path / child.owner)
    reply = child.ask(request, Opened, limit_s=WAIT_S)
    assert isinstance(reply, Opened), reply
    return reply


def is_forked(child: Child) -> bool:
    return isinstance(child._process, Forked)


def gone(pid: int) -> bool:
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.01)
    return False


def test_a_forked_worker_answers_and_ends_as_a_fresh_one(made: Nursery, target: Path, tmp_path: Path) -> None:
    child = child_of(made, tmp_path)
    assert is_forked(child), made.why_not
    assert opened(child, target, tmp_path).ref.label == "Net"
    assert os.getpgid(child.pid) == child.pid  # its group can be ended with all it started
    assert child.alive
    child.quit()
    assert child._process.poll() == 0
    assert gone(child.pid)


def test_each_has_its_own_environment_log_and_threads(made: Nursery, target: Path, tmp_path: Path) -> None:
    told = {}
    for name in ("one", "two"):
        child = child_of(made, tmp_path, name)
        assert is_forked(child), made.why_not
        opened(child, target, tmp_path)
        env = _environment(child, tmp_path)
        told[name] = env
        child.kill()
    assert told["one"]["cache"] == str(tmp_path / "one" / "inductor")
    assert told["two"]["cache"] == str(tmp_path / "two" / "inductor")
    assert told["one"]["mark"] != told["two"]["mark"]
    fresh = subprocess.run(
        [sys.executable, "-c", f"import numpy, os; {_REPORT}"], env=dict(os.environ), capture_output=True, text=True
    )
    assert fresh.returncode == 0, fresh.stderr
    assert told["one"]["report"] == fresh.stdout.strip()


_REPORT = (
    "import torch; "
    "print(torch.get_num_threads(), os.environ.get('OPENBLAS_NUM_THREADS'), "
    "len(os.listdir('/proc/self/task')))"
)


def _environment(child: Child, tmp_path: Path) -> dict[str, str]:
    """What the worker's own code sees, by a target that writes it down."""
    seen = tmp_path / f"{child.owner}-seen.py"
    place = tmp_path / f"{child.owner}.txt"
    seen.write_text(
        f"import os, contextlib, numpy, torch\n"
        f"def factory():\n"
        f"    with open({str(place)!r}, 'w') as file, contextlib.redirect_stdout(file):\n"
        f"        print(os.environ['TORCHINDUCTOR_CACHE_DIR']); print(os.environ['COMPILOT_WORKER']); {_REPORT}\n"
        f"    return torch.nn.Linear(1, 1).eval(), (torch.ones(1, 1),)\n"
    )
    opened(child, seen, tmp_path)
    cache, mark, report = place.read_text().splitlines()
    return {"cache": cache, "mark": mark, "report": report}


def test_a_death_is_told_with_its_signal_and_last_words(made: Nursery, tmp_path: Path) -> None:
    target = tmp_path / "dies.py"
    target.write_text(
        "import os, sys\ndef factory():\n    print('allocating', file=sys.stderr)\n    os.kill(os.getpid(), 11)\n"
    )
    child = child_of(made, tmp_path)
    assert is_forked(child), made.why_not
    with pytest.raises(Dead, match=r"died of SIGSEGV while opening; its last output: allocating"):
        child.ask(opening(ship_target(f"{target}:factory"), EAGER, tmp_path), Opened, limit_s=WAIT_S, doing="opening")


def test_what_the_target_imports_is_there_from_the_start(made: Nursery, tmp_path: Path) -> None:
    target = tmp_path / "wants.py"
    target.write_text(
        "import sys\nKNOWN = 'jinja2' in sys.modules\n"
        "import jinja2, torch\n\ndef factory():\n    net = torch.nn.Linear(1, 1).eval()\n"
        "    assert KNOWN is EXPECTED\n    return net, (torch.ones(1, 1),)\nEXPECTED = False\n"
    )
    first = child_of(made, tmp_path)
    imports = opened(first, target, tmp_path).imports
    assert "jinja2" in imports
    assert not any(name == "wants" or name.startswith("_compilot_target") for name in imports)
    made.learn(imports)
    target.write_text(target.read_text().replace("EXPECTED = False", "EXPECTED = True"))
    second = child_of(made, tmp_path, "two")
    assert is_forked(second), made.why_not
    opened(second, target, tmp_path)
    for child in (first, second):
        child.kill()


def test_a_package_that_starts_threads_is_not_forked_with(
    made: Nursery, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "threaded.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]))
    child_of(made, tmp_path, "first").kill()
    made.learn(["threaded"])
    made.settle()
    for number, start in enumerate((made.start, made.start_compiling)):
        child = Child(f"c{number}", log=tmp_path / "c.log", env=worker_env(tmp_path / "c"), start=start)
        assert is_forked(child)  # from a server that did not import it
        opened(child, target, tmp_path)
        child.kill()


def test_another_environment_gets_a_fresh_interpreter(made: Nursery, target: Path, tmp_path: Path) -> None:
    child = child_of(made, tmp_path, TORCH_LOGS="+dynamo")  # read when torch is imported
    assert not is_forked(child)
    opened(child, target, tmp_path)
    child.kill()


def test_a_server_that_died_costs_nothing_but_time(made: Nursery, target: Path, tmp_path: Path) -> None:
    child_of(made, tmp_path, "first").kill()
    assert made._process is not None
    made._process.kill()
    made._process.wait()
    child = child_of(made, tmp_path)
    assert not is_forked(child)
    assert "gone" in made.why_not
    opened(child, target, tmp_path)
    child.kill()


def test_workers_end_with_their_server(made: Nursery, target: Path, tmp_path: Path) -> None:
    child = child_of(made, tmp_path)
    opened(child, target, tmp_path)
    assert made._process is not None
    made._process.kill()
    assert gone(child.pid)
    assert child._process.wait(WAIT_S) == -signal.SIGKILL
    child.kill()


def test_closing_leaves_no_process(made: Nursery, target: Path, tmp_path: Path) -> None:
    child = child_of(made, tmp_path)
    opened(child, target, tmp_path)
    made.learn(("jinja2",))
    made.settle()
    assert made._process is not None
    family = [process.pid for process in psutil.Process(made._process.pid).children(recursive=True)]
    assert len(family) >= 3  # the worker, a server with jinja2, one with the compiler
    child.kill()
    made.close()
    assert all(gone(pid) for pid in family)


def test_it_can_be_switched_off(made: Nursery, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(nursery.OFF, "1")
    child = child_of(made, tmp_path)
    assert not is_forked(child)
    assert nursery.OFF in made.why_not
    child.kill()


@pytest.mark.parametrize(
    ("env", "count"),
    [
        ({"OPENBLAS_NUM_THREADS": "3"}, 3),
        ({"OMP_NUM_THREADS": "5"}, 5),
        ({"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "5"}, 2),
        ({"OPENBLAS_NUM_THREADS": "many"}, len(os.sched_getaffinity(0))),
        ({}, len(os.sched_getaffinity(0))),
    ],
)
def test_threads_of_openblas_are_those_of_a_fresh_interpreter(env: dict[str, str], count: int) -> None:
    assert blas.usual_threads(env) == count


def test_importing_the_compiler_leaves_nothing_in_the_temporary_folder(
    made: Nursery, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    child_of(made, tmp_path).kill()
    made.learn(())
    made.settle()
    assert list((tmp_path / "temporary").iterdir()) == []
