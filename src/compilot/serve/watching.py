"""The building child, seen from the server: started, kept within its bounds, ended.

In: a BuildJob. Out: its BuildResult and what it used; Later where it was killed, ran out of memory or time. It must be
run in a thread that lives as long as the server wants the child to: the kernel ends the child with that thread. No
module of the tuning plane is imported here.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from compilot.files import atomic
from compilot.records import encode
from compilot.serve import processes
from compilot.serve.bounding import ENVIRONMENT, free_bytes
from compilot.serve.braking import TURN_S, Brake
from compilot.serve.processes import Usage, memory_bytes, usages
from compilot.serve.records import Bounds, BuildJob, BuildResult, decode_result
from compilot.serve.staying import Closing, Later

LOOK_S = 0.5  # between looks at the child's process tree
FULL_LOOK = 4  # looks: pages that several processes have are told apart only then, it takes the kernel milliseconds
END_S = 5.0
LEAST_ROOM = 4 << 20  # bytes of a disk; with less, a build that ended without a word ended for that
QUOTED = 300  # characters of its last output
MODEL_COPIES = 3  # of the weights that a build has in memory: eager's, the candidate's, the export's


class Spent(NamedTuple):
    """What a child used."""

    seconds: float
    cpu_s: float
    peak_memory_bytes: int


class Ran(NamedTuple):
    """A child that came to its end."""

    result: BuildResult
    spent: Spent


class Child:
    """The one child that a server may have."""

    def __init__(self, bounds: Bounds, go_on: Callable[[], None] = lambda: None) -> None:
        """go_on: asked at every look; what it raises ends the child."""
        self._bounds = bounds
        self._go_on = go_on
        self.pid: int | None = None  # while there is one
        self.peak_memory_bytes = 0

    def run(self, job: BuildJob, model_bytes: int, stop: threading.Event) -> Ran:
        """Start it, watch it, read its result. Raises Later, Closing."""
        self._refuse_without_room(model_bytes)
        folder = Path(job.folder)
        job_file = folder.with_name(folder.name + ".job")
        begin = time.monotonic()
        try:
            atomic.write_bytes(job_file, encode(job))
            with _log(folder).open("wb") as log:
                process = _started(job_file, self._bounds, log.fileno())
        except OSError as problem:
            raise Later(f"a build cannot be started: {problem.strerror or problem}") from problem
        self.pid, self.peak_memory_bytes = process.pid, 0
        try:
            self._watch(process, job_file, stop, begin)
        finally:
            _end(process)
            self.pid = None
            job_file.unlink(missing_ok=True)
        result = _result(Path(job.result), process.returncode, folder)
        return Ran(result, Spent(time.monotonic() - begin, result.cpu_s, self.peak_memory_bytes))

    def _refuse_without_room(self, model_bytes: int) -> None:
        free, needed = free_bytes(), MODEL_COPIES * model_bytes + self._bounds.least_free_bytes
        if free < needed:
            mib = f"{free / 2**20:.0f} MiB of memory are free, a build wants {needed / 2**20:.0f} MiB"
            raise Later(f"memory is short: {mib}")

    def _watch(self, process: subprocess.Popen[bytes], job_file: Path, stop: threading.Event, begin: float) -> None:
        limit = int(free_bytes() * self._bounds.memory_share)
        with contextlib.closing(Brake(self._bounds.share)) as brake:
            for looks in itertools.count():
                if _ended(process, brake, stop):
                    return
                if stop.is_set():
                    raise Closing
                self._go_on()
                tree = usages(processes.tree(process.pid))
                if not job_file.exists():  # it has taken its job: from then on it ends with the server, stopped or not
                    brake.look(tree)
                self._refuse_too_much(tree, limit, full=not looks % FULL_LOOK)
                if time.monotonic() - begin > self._bounds.limit_s:
                    raise Later(f"the build took longer than {self._bounds.limit_s:.0f} s and was ended")

    def _refuse_too_much(self, tree: Mapping[int, Usage], limit: int, *, full: bool) -> None:
        """RSS is cheap, and never less than what is really used; full: pages that several have are told apart."""
        used = sum(one.rss_bytes for one in tree.values())
        if used > limit or full:
            used = sum(map(memory_bytes, tree))
            self.peak_memory_bytes = max(self.peak_memory_bytes, used)
        if used > limit:
            text = f"the build used {used / 2**20:.0f} MiB, more than its share of {limit / 2**20:.0f} MiB"
            raise Later(f"memory is short: {text}")


def _started(job_file: Path, bounds: Bounds, log: int) -> subprocess.Popen[bytes]:
    """In the server's own session, and so in its autogroup: only there it gives way to the server."""
    numbers = (os.getpid(), bounds.nice, bounds.one_core_from, int(bounds.idle))
    return subprocess.Popen(
        [sys.executable, "-m", "compilot.serve.builder", str(job_file), *map(str, numbers)],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        process_group=0,
        env={**os.environ, **ENVIRONMENT},
    )


def _ended(process: subprocess.Popen[bytes], brake: Brake, stop: threading.Event) -> bool:
    """Until the next look at the child's process tree: let it run, in turns where the brake is on."""
    if not brake.is_on:
        return _ended_within(process, LOOK_S)
    for _ in range(round(LOOK_S / TURN_S)):
        with brake.paused():
            stop.wait(brake.pauses_s)
        if stop.is_set() or _ended_within(process, brake.runs_s):
            break
    return process.poll() is not None


def _ended_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=seconds)
        return True
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """End its group; what it started in other sessions ends with it (trials/keeper.py)."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=END_S)


def _result(path: Path, code: int | None, folder: Path) -> BuildResult:
    try:
        return decode_result(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        pass
    how = f"was killed by {signal.Signals(-code).name}" if code and code < 0 else f"ended with exit code {code}"
    words = _last_words(_log(folder))
    what = f"the building process {how}" + (f"; its last output: {words}" if words else "")
    raise Later(f"{full}: {what}" if (full := _full_disk(folder)) else what)


def _full_disk(folder: Path) -> str:
    """That the disk is full, where it is: then the child could not even say so. "": it has room."""
    with contextlib.suppress(OSError):
        free = shutil.disk_usage(folder.parent).free
        if free < LEAST_ROOM:
            return f"{os.strerror(errno.ENOSPC)} ({free >> 10} KiB are left in {folder.parent})"
    return ""


def _log(folder: Path) -> Path:
    return folder.with_name(folder.name + ".log")


def _last_words(log: Path) -> str:
    with contextlib.suppress(OSError):
        lines = log.read_bytes()[-4096:].decode(errors="replace").split("\n")
        return " | ".join(line.strip() for line in lines if line.strip())[-QUOTED:]
    return ""
