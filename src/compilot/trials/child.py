"""One worker process, seen from the parent. In: requests with deadlines. Out: replies, or the story of a death.

Covered: a pipe of its own, stderr kept in a file, a deadline per request, a memory limit over the process tree, the
whole process group and what left it ended on any exit, this process's own included (keeper.py). Not covered: what the
requests mean (steps/). The parent waits blocked: it
wakes only for the pipe, and a few times a second to look at memory.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
import psutil

from compilot import records
from compilot.errors import WorkerError
from compilot.records import State
from compilot.trials import keeper
from compilot.trials.processes import Ends, Process, Start, fresh
from compilot.trials.protocol import BatchTimed, Failed, Quit, Reply, Request, TimeBatch, decode_reply

MEMORY_LOOK_S = 0.25  # how often the process tree's memory is read while a long step runs
BATCH_LIMIT_S = 600.0  # many callers of a slow model share few cores: 256 of them take minutes for one call each
SETTLE_LIMIT_S = 0.25  # ONNX Runtime's threads spin for 36 ms after a call, libgomp's for 6 ms
SETTLE_LOOK_S = 0.002
QUOTED_LINES = 6

R = TypeVar("R", bound=Reply)


class Dead(Exception):
    """The worker is gone; carries whose it was, the trial state and a reason that quotes its last words."""

    def __init__(self, owner: str, state: State, reason: str) -> None:
        super().__init__(reason)
        self.owner = owner
        self.state = state
        self.reason = reason


class Child:
    """A worker process and the pipe to it."""

    def __init__(
        self,
        owner: str,
        *,
        log: Path,
        env: Mapping[str, str],
        memory_limit_bytes: int | None = None,
        start: Start = fresh,
    ) -> None:
        self.owner = owner  # id of the candidate
        self.log = log
        self.doing = "starting"
        self._memory_limit = memory_limit_bytes
        self._next_id = 0
        self._buffer = b""
        self._pending: int | None = None  # the request that was not answered yet
        self._ended = False
        self._start(env, start)

    def _start(self, env: Mapping[str, str], start: Start) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._lease = keeper.lease()
        child_in, self._out = os.pipe()
        self._in, child_out = os.pipe()
        try:
            with self.log.open("ab") as log:
                ends = Ends(child_in, child_out, log.fileno())
                self._process: Process = start(ends, {**env, **self._lease.env})
            self._lease.watch(self._process.pid)
        except BaseException as problem:
            self._lease.end_strays()  # Ctrl-C may come when the process has just begun
            self._close_pipes()
            self._lease.give_back()
            if isinstance(problem, OSError):
                raise WorkerError(f"cannot start a worker process: {problem}.") from problem
            raise
        finally:
            os.close(child_in)
            os.close(child_out)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, request: Request, expect: type[R], *, limit_s: float, doing: str = "") -> R | Failed:
        """Send a request and wait for its reply; a death, a time-out or too much memory raises Dead."""
        self.send(request, doing=doing)
        return self.receive(expect, limit_s=limit_s)

    def send(self, request: Request, *, doing: str = "") -> None:
        """Send a request without waiting."""
        self.doing = doing or self.doing
        self._next_id += 1
        self._pending = self._next_id
        line = records.encode(msgspec.structs.replace(request, id=self._next_id)) + b"\n"
        try:
            _write_all(self._out, line)
        except OSError:
            raise self._obituary() from None

    def receive(self, expect: type[R], *, limit_s: float) -> R | Failed:
        """Wait for the reply to the request that was sent."""
        if self._pending is None:
            raise WorkerError("no request is under way.")
        wanted = self._pending
        line = self._read_line(time.monotonic() + limit_s, limit_s)
        self._pending = None
        try:
            reply = decode_reply(line)
        except msgspec.DecodeError as problem:
            self.kill()
            raise Dead(
                self.owner, State.CRASHED, f"worker's answer while {self.doing} is unreadable: {problem}"
            ) from None
        if reply.id != wanted:
            raise WorkerError(f"worker answered request {reply.id} instead of {wanted}; see {self.log}.")
        if isinstance(reply, expect | Failed):
            return reply
        raise WorkerError(f"worker answered {type(reply).__name__} instead of {expect.__name__}; see {self.log}.")

    def _read_line(self, deadline: float, limit_s: float) -> bytes:
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0:
                self.kill()
                raise Dead(self.owner, State.TIMED_OUT, f"{self.doing} took longer than {limit_s:.0f} s and was ended")
            ready, _, _ = select.select([self._in], [], [], min(left, MEMORY_LOOK_S))
            if not ready:
                if not self.alive:  # a fork of the worker may hold the pipe open
                    raise self._obituary()
                self._watch_memory()
                continue
            data = os.read(self._in, 1 << 16)
            if not data:
                raise self._obituary()
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line

    def _watch_memory(self) -> None:
        if self._memory_limit is None:
            return
        used = tree_rss_bytes(self.pid)
        if used > self._memory_limit:
            self.kill()
            text = (
                f"{self.doing} used {used / 2**30:.1f} GiB, more than the limit of {self._memory_limit / 2**30:.1f} GiB"
            )
            raise Dead(self.owner, State.INFEASIBLE, text)

    def _obituary(self) -> Dead:
        """The reason of a death that was not our doing, with the worker's last words."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        code = self._process.poll()
        self.kill()
        words = last_lines(self.log)
        quoted = f"; its last output: {words}" if words else ""
        if code is not None and code < 0:
            return Dead(self.owner, *_signal_obituary(-code, self.doing, quoted))
        return Dead(self.owner, State.CRASHED, f"worker ended with exit code {code} while {self.doing}{quoted}")

    def time_batch(self) -> float:
        """Arm: seconds per call over one calibrated batch."""
        reply = self.ask(TimeBatch(), BatchTimed, limit_s=BATCH_LIMIT_S, doing="timing a batch")
        if isinstance(reply, Failed):
            raise Dead(self.owner, reply.state, reply.reason)
        return reply.per_call_s

    def settle(self) -> bool:
        """Arm: wait, mostly asleep, until no thread of the process tree wants a core."""
        end = time.monotonic() + SETTLE_LIMIT_S
        while time.monotonic() < end:
            if not tree_is_running(self.pid):
                return True
            time.sleep(SETTLE_LOOK_S)
        return False

    def quit(self) -> None:
        """End in order if it answers soon, otherwise by force."""
        with contextlib.suppress(OSError):
            _write_all(self._out, records.encode(Quit()) + b"\n")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1.0)
        self.kill()

    def kill(self) -> None:
        """End the whole process group and whatever left it; safe to call twice."""
        self.end()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        self._close_pipes()
        self._lease.give_back()

    def end(self) -> None:
        """The same, but the pipes stay open: another thread that waits for a reply is told of the death."""
        if self._ended:  # its number may be another process's by now
            return
        self._ended = True
        strays = _descendants(self.pid) if self.alive else []
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        for stray in strays:
            with contextlib.suppress(psutil.Error):
                stray.kill()
        self._lease.end_strays()  # also of a worker that was dead before: nobody is their parent any more

    def _close_pipes(self) -> None:
        for name in ("_in", "_out"):
            fd = getattr(self, name, -1)
            setattr(self, name, -1)
            if fd >= 0:
                os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _signal_obituary(number: int, doing: str, quoted: str) -> tuple[State, str]:
    name = signal.Signals(number).name if number in list(signal.Signals) else f"signal {number}"  # a real-time one
    if number == signal.SIGKILL:
        text = f"killed by SIGKILL while {doing}: most likely the machine ran out of memory{quoted}"
        return State.INFEASIBLE, text
    return State.CRASHED, f"died of {name} while {doing}{quoted}"


def _descendants(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return list(psutil.Process(pid).children(recursive=True))
    return []


def tree_rss_bytes(pid: int) -> int:
    """Resident memory of a process and everything it started."""
    total = 0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for member in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                total += member.memory_info().rss
    return total


def tree_is_running(pid: int) -> bool:
    """True when any thread of the process or its children is on a core or wants one."""
    try:
        if _any_thread_running(pid):
            return True
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return False
    return any(tree_is_running(int(child)) for child in children)


def _any_thread_running(pid: int) -> bool:
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/stat", "rb") as stat:
            state = stat.read().rpartition(b") ")[2][:1]
            if state == b"R":
                return True
    return False


def last_lines(log: Path, count: int = QUOTED_LINES) -> str:
    """The last lines of a log that say something, on one line."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 8192))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-count:])
