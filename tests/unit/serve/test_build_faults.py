"""Builds that go wrong: eager goes on with right answers, one event says why, and it is tried again."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from swapping import QUICK, Faulty, Serving, plan_of
from torch import nn

from compilot.errors import RunDirError, StoreError
from compilot.identity.machine import machine_fingerprint
from compilot.records import encode
from compilot.serve import SwapState, builder, processes, shared, watching
from compilot.serve.bounding import free_bytes
from compilot.serve.braking import Brake
from compilot.serve.records import Bounds, BuildJob, BuildResult, EventKind, Tried
from compilot.serve.shared import Refused, built_once, shared_folder
from compilot.serve.staying import Later, Stays
from compilot.serve.watching import Ran, Spent

Make = Callable[..., Serving]
REAL_RUN = watching.Child.run
DONE = Ran(BuildResult(ok=True, digest="d", label="faulty"), Spent(1.0, 2.0, 3))


def postponed(served: Serving) -> list[str]:
    return [event.reason for event in served.events if event.kind is EventKind.POSTPONED]


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (Later("the building process was killed by SIGKILL"), "killed by SIGKILL"),
        (Later("memory is short: 3 MiB of memory are free"), "memory is short"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
    ],
)
def test_eager_goes_on_and_it_is_tried_again(
    model: nn.Module, serving: Make, child: Any, problem: Exception, words: str
) -> None:
    def fail(job: BuildJob) -> Ran:
        raise problem

    child.act = fail
    served = serving(model, None)
    served.when(lambda: len(child.jobs) >= 3)
    assert served.wrong == 0
    assert all(words in reason for reason in postponed(served))
    retries = [event.retry_s for event in served.events if event.kind is EventKind.POSTPONED]
    assert retries[:2] == [QUICK.retry_s, 2 * QUICK.retry_s]


def test_a_disk_that_is_full_when_the_model_is_written(
    model: nn.Module, serving: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise RunDirError("cannot write the model into x: No space left on device; choose another folder.")

    monkeypatch.setattr("compilot.serve.bringing._shipped", full)
    served = serving(model, None)
    served.when(lambda: len(postponed(served)) >= 2)
    assert "No space left" in postponed(served)[0]
    served.ask(3)
    assert served.wrong == 0


def test_a_build_that_will_never_work_is_not_tried_again(model: nn.Module, serving: Make, child: Any) -> None:
    child.act = lambda job: Ran(BuildResult(ok=False, reason="no engine passed"), Spent(1.0, 1.0, 1))
    served = serving(model, None)
    served.when(lambda: served.swap.reason == "no engine passed")
    assert served.swap.wait(1) is SwapState.EAGER
    served.ask(5)
    assert len(child.jobs) == 1
    second = serving(model, None)  # another worker process: it believes the first
    second.when(lambda: second.swap.reason == "no engine passed")
    assert len(child.jobs) == 1


def test_a_store_that_is_away_is_tried_again(model: nn.Module, serving: Make, child: Any, tmp_path: Path) -> None:
    child.act = lambda job: Ran(builder.done(job), Spent(1.0, 1.0, 1))  # what the child does, in this process
    served = serving(model, f"file://{tmp_path}/nowhere")
    served.when(lambda: len(postponed(served)) >= 2)
    assert "nowhere" in postponed(served)[0]
    assert SwapState.FETCHING in [event.state for event in served.events]
    assert served.wrong == 0


@pytest.mark.parametrize("state", ["building", "fetching"])
def test_a_child_that_is_killed_while(
    model: nn.Module, serving: Make, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    monkeypatch.setattr(watching.Child, "run", REAL_RUN)
    monkeypatch.setattr(watching, "_started", sleeping)
    served = serving(model, "file:///nowhere" if state == "fetching" else None)
    served.when(lambda: served.swap.building_pid is not None)
    assert served.swap.state == state
    pid = served.swap.building_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    served.when(lambda: bool(postponed(served)))
    assert "the building process was killed by SIGKILL" in postponed(served)[0]
    served.when(lambda: served.swap.building_pid not in (None, pid))  # once more
    assert served.wrong == 0


def sleeping(job_file: Path, bounds: Bounds, log: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stderr=log, process_group=0)


def test_closing_ends_the_child_and_removes_its_files(
    model: nn.Module, serving: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(watching.Child, "run", REAL_RUN)
    monkeypatch.setattr(watching, "_started", sleeping)
    served = serving(model, None)
    served.when(lambda: served.swap.building_pid is not None)
    pid = served.swap.building_pid
    assert pid is not None
    assert list((tmp_path / "cache" / "serve").glob("*/job-*"))
    served.swap.close()
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    assert not list((tmp_path / "cache" / "serve").glob("*/job-*"))


def job_in(folder: Path, **more: Any) -> BuildJob:
    work = folder / "job-1"
    work.mkdir()
    place = {"folder": str(work), "out": str(folder / "out"), "result": str(folder / "result")}
    return BuildJob(machine=machine_fingerprint(compiler=False), threads=1, **place, **more)


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        (Bounds(least_free_bytes=1 << 60), "memory is short"),
        (Bounds(least_free_bytes=0, limit_s=0.1), "took longer than 0 s"),
        (Bounds(least_free_bytes=0, memory_share=1e-9), "more than its share"),
    ],
)
def test_bounds_of_memory_and_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bounds: Bounds, words: str) -> None:
    monkeypatch.setattr(watching, "_started", sleeping)
    child = watching.Child(bounds)
    with pytest.raises(Later, match=words):
        REAL_RUN(child, job_in(tmp_path), 0, threading.Event())
    assert child.pid is None


FORKED = """
import os, time
held = bytearray(os.urandom(1 << 20)) * 128  # every page is written
for _ in range(3):
    if not os.fork():
        break
print("there", flush=True)
time.sleep(600)
"""


def test_pages_that_forked_workers_have_in_common_count_once() -> None:
    with subprocess.Popen([sys.executable, "-c", FORKED], stdout=subprocess.PIPE, process_group=0) as process:
        try:
            assert process.stdout is not None
            for _ in range(4):
                process.stdout.readline()
            tree = processes.tree(process.pid)
            assert sorted(tree) == sorted([process.pid, *(one.pid for one in psutil.Process(process.pid).children())])
            used = processes.usages([*tree, 2**22 + 1])  # the last one does not exist
            assert sorted(used) == sorted(tree)
            assert sum(one.rss_bytes for one in used.values()) > 4 * (128 << 20)
            assert 128 << 20 < sum(map(processes.memory_bytes, tree)) < 2 * (128 << 20)
            about = psutil.Process(process.pid).cpu_times()
            assert used[process.pid].cpu_s == pytest.approx(about.user + about.system, abs=0.5)
        finally:
            watching._end(process)


def test_a_child_that_nobody_wants_any_more_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def start(*given: Any) -> subprocess.Popen[bytes]:
        started.append(sleeping(*given))
        return started[-1]

    def go_on() -> None:
        raise Stays("rolled back meanwhile")

    monkeypatch.setattr(watching, "_started", start)
    with pytest.raises(Stays, match="rolled back meanwhile"):
        REAL_RUN(watching.Child(QUICK, go_on), job_in(tmp_path), 0, threading.Event())
    assert started[0].returncode == -signal.SIGKILL


def test_the_last_words_of_a_child_are_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dying(job_file: Path, bounds: Bounds, log: int) -> subprocess.Popen[bytes]:
        program = "import sys; sys.exit('the disk is on fire')"
        return subprocess.Popen([sys.executable, "-c", program], stderr=log, process_group=0)

    monkeypatch.setattr(watching, "_started", dying)
    with pytest.raises(Later, match=r"^the building process ended with .* 1; its last output: the disk is on fire"):
        REAL_RUN(watching.Child(QUICK), job_in(tmp_path), 0, threading.Event())


def test_a_child_that_could_not_even_say_that_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dying(job_file: Path, bounds: Bounds, log: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", "raise SystemExit(1)"], process_group=0)

    monkeypatch.setattr(watching, "_started", dying)
    room = shutil.disk_usage(tmp_path)._replace(free=168 << 10)
    monkeypatch.setattr("compilot.serve.watching.shutil.disk_usage", lambda _: room)
    with pytest.raises(Later, match=r"^No space left on device .168 KiB are left in .*: the building process ended"):
        REAL_RUN(watching.Child(QUICK), job_in(tmp_path), 0, threading.Event())


@pytest.mark.slow
def test_the_real_child_is_nice_and_ends_with_its_parent(tmp_path: Path) -> None:
    job = job_in(tmp_path, url="file:///nowhere/at/all")
    file = tmp_path / "job"
    file.write_bytes(encode(job))
    program = (
        "import os, sys, threading, time\n"
        "from pathlib import Path\n"
        "from compilot.serve.records import Bounds\n"
        "from compilot.serve import bounding\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    bounding.bound_myself(Bounds(one_core_from=2), os.getppid())\n"
        "    print(os.getpid(), os.nice(0), len(os.sched_getaffinity(0)), flush=True)\n"
        "    time.sleep(600)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid, nice, cores = map(int, parent.stdout.readline().split())
    assert nice == 19
    assert cores == 1
    parent.kill()
    parent.wait()
    parent.stdout.close()
    _until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)


STARTS_ONE = """
import os, subprocess, sys
from compilot.serve.bounding import bound_myself
from compilot.serve.records import Bounds
from compilot.trials.processes import apart
bound_myself(Bounds(nice=int(sys.argv[1]), idle=sys.argv[2] == "idle"), os.getppid())
code = "import os; print(os.getsid(0), os.getpgid(0) == os.getpid(), os.sched_getscheduler(0), os.nice(0))"
subprocess.run([sys.executable, "-c", code], check=True, **apart())
"""


def _worker_of_a_child(nice: int, how: str) -> list[str]:
    command = [sys.executable, "-c", STARTS_ONE, str(nice), how]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="the idle class is Linux's")
def test_workers_of_the_child_give_way_as_it_does_in_the_servers_own_session() -> None:
    ours = str(os.getsid(0))
    usual = os.nice(0)
    assert _worker_of_a_child(19, "idle") == [ours, "True", str(os.SCHED_IDLE), "19"]
    assert _worker_of_a_child(5, "nice") == [ours, "True", str(os.SCHED_OTHER), str(min(19, usual + 5))]
    if usual == 0:
        assert _worker_of_a_child(0, "nice")[0] != ours  # where nothing yields, Ctrl-C is kept away by a session


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def _work(seconds: float) -> None:
    """CPU time of this process, in a thread that does not look."""

    def count() -> None:
        while time.thread_time() < seconds:
            pass

    thread = threading.Thread(target=count)
    thread.start()
    thread.join()


def test_while_the_server_works_what_computes_in_the_child_pauses_in_turns() -> None:
    busy, waits = (
        subprocess.Popen(
            [sys.executable, "-c", f"print(1, flush=True)\n{code}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for code in ("while True: pass", "input()")
    )
    try:
        for one in (busy, waits):
            assert one.stdout is not None
            one.stdout.readline()
        tree = [psutil.Process(one.pid) for one in (busy, waits)]
        brake = Brake(0.25)
        look = lambda: brake.look(processes.usages(one.pid for one in tree))  # noqa: E731
        look()
        _work(0.5)
        look()
        assert brake.is_on
        with brake.paused():
            _until(lambda: tree[0].status() == psutil.STATUS_STOPPED)
            assert tree[1].status() != psutil.STATUS_STOPPED
        _until(lambda: tree[0].status() != psutil.STATUS_STOPPED)
        time.sleep(0.3)
        look()
        assert not brake.is_on  # nobody asks anything
        _work(0.2)
        busy.kill()
        busy.wait()
        with brake.paused():  # who has ended is no error
            pass
        brake.close()
        assert not Brake(1.0).is_on
        young = Brake(0.25)  # one that is new and has computed for long is none that cleans up
        young.look({waits.pid: processes.Usage(0.0, 0.1, 0), os.getpid(): processes.Usage(0.0, 5.0, 0)})
        assert list(young._busy) == [os.getpid()]
        young.close()
    finally:
        for one in (busy, waits):
            one.kill()
            one.communicate()


def test_free_memory_is_what_the_cgroup_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from compilot.serve import bounding

    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("1000\n")
    (tmp_path / "memory" / "memory.usage_in_bytes").write_text("400\n")
    monkeypatch.setattr(bounding, "CGROUP", tmp_path)
    assert free_bytes() == 600
    (tmp_path / "memory" / "memory.stat").write_text("total_active_file 200\ntotal_inactive_file 100\n")
    assert free_bytes() == 700  # files that were read once are no memory in use


# ------------------------------------------------------------------------------------------------- one build for all


def test_many_threads_build_once_and_the_rest_load_it(tmp_path: Path) -> None:
    folder = shared_folder(("key",))
    builds: list[Path] = []

    def build(work: Path, out: Path, result: Path) -> Ran:
        builds.append(work)
        time.sleep(0.05)
        out.write_bytes(b"bundle")
        return DONE

    found: list[shared.SharedBundle] = []
    threads = [
        threading.Thread(target=lambda: found.append(built_once(folder, build, wait_s=30, stop=threading.Event())))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(builds) == 1
    assert [one.result.digest for one in found] == ["d"] * 8
    assert sum(one.spent is not None for one in found) == 1
    assert not list(folder.glob("job-*"))


def test_bundles_that_nobody_used_for_long_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(work: Path, out: Path, result: Path) -> Ran:
        out.write_bytes(b"bundle")
        return DONE

    def use(name: str) -> Path:
        folder = shared_folder((name,))
        built_once(folder, build, wait_s=30, stop=threading.Event())
        return folder

    monkeypatch.setattr(shared, "MOST_KEPT", 3)
    first, second, third = use("first"), use("second"), use("third")
    for age, folder in ((30, first), (20, second), (10, third)):
        os.utime(folder, (time.time() - age,) * 2)
    use("first")  # used again
    fourth = use("fourth")
    assert [folder.exists() for folder in (first, second, third, fourth)] == [True, False, True, True]


def test_what_a_killed_process_left_is_removed_and_it_is_built_again() -> None:
    folder = shared_folder(("key",))
    (folder / "job-99-0").mkdir()
    (folder / "job-99-0" / "weights.bin").write_bytes(b"secret")
    (folder / "result.json").write_bytes(b'{"ok": tr')

    def build(work: Path, out: Path, result: Path) -> Ran:
        assert not (folder / "job-99-0").exists()
        out.write_bytes(b"bundle")
        return DONE

    assert built_once(folder, build, wait_s=30, stop=threading.Event()).spent is not None


def test_a_failure_is_believed_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = shared_folder(("key",))
    failed = Ran(BuildResult(ok=False, reason="none"), Spent(1.0, 1.0, 1))
    for _ in range(2):
        with pytest.raises(Refused, match="none"):
            built_once(folder, lambda *_: failed, wait_s=30, stop=threading.Event())
    monkeypatch.setattr(shared, "FAILURE_LASTS_S", -1.0)

    def build(work: Path, out: Path, result: Path) -> Ran:
        out.write_bytes(b"bundle")
        return DONE

    assert built_once(folder, build, wait_s=30, stop=threading.Event()).result.ok


def test_what_may_work_later() -> None:
    assert builder.may_work_later(OSError(errno.ENOSPC, "full"))
    assert builder.may_work_later(StoreError("away"))
    assert not builder.may_work_later(OSError(errno.ENOENT, "gone"))
    assert not builder.may_work_later(ValueError("no"))


@pytest.mark.slow
def test_forked_before_the_first_call_it_works_in_the_child(model: nn.Module, engine: Faulty, tmp_path: Path) -> None:
    program = f"""
import os, sys, torch
sys.path[:0] = [{str(Path(__file__).parents[2] / "data")!r}]
from pathlib import Path
from swapping import Faulty, Serving, plan_of, registered, small_model
from compilot.serve import SwapState
registered(Faulty())
model = small_model()
served = Serving(model, plan_of(model), Path({str(tmp_path / "events.jsonl")!r}))
if os.fork() == 0:
    served.until(SwapState.LIVE)
    os._exit(0 if served.wrong == 0 else 1)
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_a_promoted_plan_that_cannot_be_brought_leaves_the_live_one(
    model: nn.Module, engine: Faulty, serving: Make, tmp_path: Path
) -> None:
    served = serving(model)
    served.until(SwapState.LIVE)
    served.swap.promote(tmp_path / "none.json")
    served.when(lambda: "the new plan is not used" in served.reasons)
    assert served.swap.state is SwapState.LIVE
    other = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2)).eval()
    served.swap.promote(plan_of(other))
    served.when(lambda: "out of date" in served.reasons)
    served.ask(10)
    assert served.wrong == 0
    assert torch.equal(served.swap.model[0].weight, model[0].weight)  # type: ignore[index]


@pytest.mark.parametrize(
    ("state", "reason", "later"),
    [
        ("timed-out", "building took longer than 900 s and was ended", True),
        ("infeasible", "killed by SIGKILL while building: most likely the machine ran out of memory", True),
        ("crashed", "OSError: [Errno 28] No space left on device", True),
        ("infeasible", "no working C++ compiler: g++ is missing", True),
        ("infeasible", "an operator has no ONNX form", False),
        ("wrong", "relative error 0.3", False),
    ],
)
def test_what_a_trial_lacked_may_be_there_later(state: str, reason: str, later: bool) -> None:
    assert builder.passes(Tried(label="aoti", state=state, reason=reason)) is later


def test_a_damaged_bundle_is_removed_and_built_again(model: nn.Module, serving: Make, child: Any) -> None:
    def build(job: BuildJob) -> Ran:
        Path(job.out).write_bytes(b"torn")
        return DONE

    child.act = build
    first = serving(model, None)  # what it built is no bundle: a disk lost a part of it
    first.when(lambda: first.swap._standing.settled)
    assert len(child.jobs) == 1
    second = serving(model, None)
    second.when(lambda: len(child.jobs) == 2)
    assert "is damaged, and is built again" in second.reasons
    assert second.wrong == 0
