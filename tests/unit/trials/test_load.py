"""Who else uses the machine: readings of our own making, and one real process that does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from compilot.artifacts.rundir import RunDir
from compilot.progress import Observer
from compilot.records import BusyProcess, Diagnosis, MachineLoad, Shipment
from compilot.trials import load as loading
from compilot.trials import local
from compilot.trials.limits import Limits
from compilot.trials.load import LoadLook, Reading, Seen, machine_load, own_family, read_machine
from compilot.trials.local import LocalRunner
from compilot.verdict.busy import is_busy

HOG, CRON = (812, 1.0), (900, 2.0)


def reading(
    at_s: float,
    *,
    busy_s: float = 0.0,
    ours_s: float = 0.0,
    steal_s: float = 0.0,
    seen: Mapping[tuple[int, float], float] = {},
    all_cores: bool = True,
) -> Reading:
    names = {HOG: "hog", CRON: "cron"}
    others = {key: Seen(names[key], cpu_s) for key, cpu_s in seen.items()}
    return Reading(at_s, busy_s, steal_s, ours_s, others, all_cores)


def test_a_process_that_is_busy_all_the_time_is_seen_and_named() -> None:
    looks = [reading(t, busy_s=1.5 * t, ours_s=0.6 * t, seen={HOG: 5.0 + 0.9 * t}) for t in (0.0, 0.5, 1.0)]
    found = machine_load(looks)
    assert found.others == pytest.approx(0.9)
    assert found.processes == (BusyProcess(name="hog", pid=812, share=pytest.approx(0.9)),)


def test_what_we_use_ourselves_is_not_others() -> None:
    looks = [reading(t, busy_s=1.98 * t, ours_s=1.96 * t) for t in (0.0, 0.5, 1.0)]
    assert machine_load(looks).others == pytest.approx(0.02)
    assert not is_busy(machine_load(looks))


def test_a_job_that_passes_in_one_half_of_the_look_is_no_busy_machine() -> None:
    passing = [reading(0.0), reading(0.5, busy_s=0.4, seen={CRON: 0.4}), reading(1.0, busy_s=0.4, seen={CRON: 0.4})]
    assert machine_load(passing).others == 0.0


def test_processes_that_cannot_be_seen_count_by_what_the_machine_says() -> None:
    found = machine_load([reading(t, busy_s=1.2 * t, ours_s=0.2 * t) for t in (0.0, 0.5, 1.0)])
    assert found.others == pytest.approx(1.0)
    assert found.processes == ()


def test_a_machine_that_counts_nothing_is_judged_by_the_processes_that_can_be_seen() -> None:
    looks = [reading(t, ours_s=0.5 * t, seen={HOG: 0.8 * t}) for t in (0.0, 0.5, 1.0)]
    assert machine_load(looks).others == pytest.approx(0.8)


def test_on_some_of_the_cores_only_what_those_cores_did_counts() -> None:
    looks = [reading(t, busy_s=0.3 * t, ours_s=0.28 * t, seen={HOG: 9.0 * t}, all_cores=False) for t in (0.0, 0.5, 1.0)]
    found = machine_load(looks)
    assert found.others == pytest.approx(0.02)
    assert found.processes == ()


def test_time_that_the_hypervisor_took_is_known_where_the_machine_knows_it() -> None:
    assert machine_load([reading(t, steal_s=0.2 * t) for t in (0.0, 0.5, 1.0)]).steal == pytest.approx(0.2)


def test_a_number_that_a_new_process_has_taken_over_is_not_the_old_process() -> None:
    again = (HOG[0], 77.0)
    late = Reading(1.0, 0.1, 0.0, 0.0, {again: Seen("new", 0.1)})
    looks = [reading(0.0, seen={HOG: 50.0}), reading(0.5, seen={HOG: 50.0}), late]
    assert machine_load(looks).processes == (BusyProcess(name="new", pid=812, share=pytest.approx(0.1)),)


def test_our_family_is_all_below_and_all_above_us() -> None:
    parents = {1: 0, 10: 1, 20: 10, 30: 20, 31: 20, 40: 30, 50: 10, 60: None}
    assert own_family(20, parents) == ({20, 30, 31, 40}, {10, 1})


def test_a_machine_whose_processes_may_not_be_read_gives_no_answer() -> None:
    def refused() -> Reading:
        raise psutil.AccessDenied

    assert LoadLook(refused, half_s=0.0).result() is None


def test_a_look_reads_three_times() -> None:
    looks = iter([reading(t, busy_s=t) for t in (0.0, 0.5, 1.0)])
    found = LoadLook(lambda: next(looks), half_s=0.0).result()
    assert found is not None
    assert found.others == pytest.approx(1.0)


def test_one_reading_takes_what_it_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without steal and nice, a process that may not be read, one without a name, and our parent."""
    core = SimpleNamespace(user=3.0, system=1.0)
    times = SimpleNamespace(user=2.0, system=0.5, children_user=0.25, children_system=0.0)

    def process(pid: int, ppid: int, *, name: str | None, cpu: Any = times) -> SimpleNamespace:
        info = {"pid": pid, "ppid": ppid, "name": name, "cpu_times": cpu, "create_time": 1.0}
        return SimpleNamespace(pid=pid, info=info)

    mine = os.getpid()
    found = [
        process(mine, 7, name="us"),
        process(7, 1, name="shell"),
        process(91, mine, name="worker"),
        process(92, 1, name=None),
        process(93, 1, name="secret", cpu=None),
    ]
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: [core] * 2)
    monkeypatch.setattr(psutil, "process_iter", lambda attrs: found)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1}, raising=False)
    one = read_machine()
    assert (one.busy_s, one.steal_s, one.all_cores) == (4.0, 0.0, False)
    assert one.others == {(92, 1.0): Seen("?", 2.5)}
    assert one.ours_s == pytest.approx(2.75 + 2.75 + 2.5)  # children that are gone count, our shell's do not


@pytest.fixture
def hog() -> Iterator[int]:
    """A process that is not of our family, as far as a reading can tell: its parent ends at once."""
    script = "import os, sys, time\npid = os.fork()\nif pid: print(pid, flush=True); sys.exit()\nos.closerange(0, 3)\n"
    script += "end = time.time() + 60\nwhile time.time() < end: pass"
    started = subprocess.run([sys.executable, "-S", "-c", script], capture_output=True, text=True, check=True)
    pid = int(started.stdout)
    try:
        yield pid
    finally:
        psutil.Process(pid).kill()


@pytest.mark.measures
def test_a_real_process_that_takes_a_core_is_found(hog: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "NAMED", 1000)  # others may be busier still
    found = LoadLook().result()
    assert found is not None
    assert found.others > loading.BUSY_SHARE
    assert hog in [one.pid for one in found.processes]


@pytest.mark.measures
def test_a_child_of_ours_that_takes_a_core_is_not_among_the_others() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) as child:
        try:
            found = LoadLook().result()
        finally:
            child.kill()
    assert found is not None
    assert child.pid not in [one.pid for one in found.processes]


# ------------------------------------------------------------------------------------------------------- the runner


class Notes(Observer):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def opened(folder: Path, load: MachineLoad | None, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[str]]:
    """The notes of a runner that opens a workload on such a machine, and what happened in which order."""
    happened: list[str] = []

    def look() -> SimpleNamespace:
        happened.append("look")
        return SimpleNamespace(result=lambda: load)

    monkeypatch.setattr(local, "LoadLook", look)
    monkeypatch.setattr(LocalRunner, "_start_eager", lambda self: (happened.append("eager"), _Opened())[1])
    inspected = SimpleNamespace(reference=None, diagnosis=Diagnosis(cores=2), fingerprint=None)
    monkeypatch.setattr(LocalRunner, "_inspect_eager", lambda self: inspected)
    heard = Notes()
    runner = LocalRunner(RunDir.make(folder / "run"), limits=Limits(), observer=heard)
    runner.open(Shipment(sys_path=(), cwd="", target="nowhere.py:nothing"))
    assert runner.inspect().diagnosis.load == load  # quiet or busy: the journal has it
    return heard.notes, happened


class _Opened:
    ref = None
    notes = ()
    imports = ()


def test_a_busy_machine_is_said_when_eager_has_started_and_not_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes, happened = opened(tmp_path, MachineLoad(others=1.4, cores=2), monkeypatch)
    assert len(notes) == 1
    assert notes[0].startswith("this machine is busy: other processes use 140 % of a core")
    assert happened == ["look", "eager"]  # the look goes on beside eager's start


@pytest.mark.parametrize("load", [None, MachineLoad(others=0.1, cores=2)])
def test_a_quiet_machine_is_not_mentioned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: MachineLoad | None
) -> None:
    assert opened(tmp_path, load, monkeypatch)[0] == []
