"""Where workers come from: forked from a process that has imported everything, or fresh interpreters.

In: what a worker is given, and what the target imports. Out: its process. Covered: servers that have imported more
(`learn`, and the compiler beside it); whatever stands against a fork (threads, another environment, a server that
died, a system without /proc) gives a fresh interpreter instead, and `why_not` says what it was. Not covered: the
server itself (forkserver.py), what a worker does (worker.py).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from compilot.trials import blas, keeper, marks
from compilot.trials.forkserver import Answer, Branch, Fork, receive, send
from compilot.trials.limits import shared_env
from compilot.trials.processes import Ends, Process, Start, apart, fresh

CACHE = "TORCHINDUCTOR_CACHE_DIR"  # importing torch's compiler makes this folder, in the system's own place without it
OWN = frozenset({CACHE, marks.MARK, blas.COUNT})  # read when they are needed, not at an import
ANSWER_LIMIT_S = 60.0  # importing torch and a large package from a cold disk
COMPILER = "torch._dynamo"
OFF = "COMPILOT_FRESH_WORKERS"  # set to anything: no forks


class Kind(NamedTuple):
    """What is forked."""

    entry: str = "compilot.trials.worker"
    imports: tuple[str, ...] = ("compilot.trials.steps",)  # and so torch
    own: frozenset[str] = OWN  # variables that may differ between the server and its workers
    launch: tuple[str, ...] = ("-m", "compilot.trials.forkserver")
    fresh: Start = fresh  # the same without a server


class Lost(Exception):
    """The server cannot be used; the text says why."""


class Forked:
    """A worker's process; its server says how it ended."""

    def __init__(self, pid: int, exits: int) -> None:
        self.pid = pid
        self._exits = exits
        self._code: int | None = None

    def poll(self) -> int | None:
        """Its exit code, None while it lives."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0.0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code; a server that died took it along, by SIGKILL."""
        if self._code is not None:
            return self._code
        ready, _, _ = select.select([self._exits], [], [], timeout)
        if not ready:
            raise subprocess.TimeoutExpired("worker", timeout or 0.0)
        text = os.read(self._exits, 64)
        self._code = int(text) if text else -signal.SIGKILL
        os.close(self._exits)
        self._exits = -1
        return self._code

    def __del__(self) -> None:
        if self._exits >= 0:
            os.close(self._exits)


class _Server:
    """One server and the socket to it."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._link.settimeout(ANSWER_LIMIT_S)
        self._unread = 1  # answers that nobody has read yet; the first says that everything is imported

    def fork(self, ends: Ends, env: Mapping[str, str], entry: str) -> Forked:
        """A worker with these ends."""
        exits, told = os.pipe()
        try:
            self.wait_until_ready()
            self._send(Fork(env=dict(env), entry=entry), [*ends, told])
            pid = self._answer().pid
        except BaseException:
            os.close(exits)
            raise
        finally:
            os.close(told)
        return Forked(pid, exits)

    def branch(self, modules: Sequence[str]) -> _Server:
        """A server that imports these, too. Nobody waits for it, nor for this one's own imports."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._send(Branch(modules=tuple(modules)), [theirs.fileno()])
            except BaseException:
                ours.close()
                raise
        self._unread += 1
        return _Server(ours)

    def wait_until_ready(self) -> None:
        """Until everything is imported, and every branch is off. Lost: it cannot be forked."""
        while self._unread:
            self._answer()
            self._unread -= 1

    def _send(self, request: Fork | Branch, descriptors: Sequence[int]) -> None:
        try:
            send(self._link, request, descriptors)
        except OSError as problem:
            raise Lost(f"the fork server is gone ({problem})") from problem

    def _answer(self) -> Answer:
        try:
            answer = msgspec.json.decode(receive(self._link), type=Answer)
        except (OSError, EOFError, msgspec.DecodeError) as problem:
            raise Lost(f"the fork server is gone ({problem or type(problem).__name__})") from problem
        if answer.problem:
            raise Lost(answer.problem)
        return answer

    def close(self) -> None:
        self._link.close()


class Nursery:
    """Starts workers. `start` is for those that load files, `start_compiling` for those that also build."""

    def __init__(self, log: Path, kind: Kind | None = None) -> None:
        self.why_not = ""  # why workers are fresh interpreters; "": they are forked
        self._log, self._kind = log, kind or Kind()
        self._env: dict[str, str] = {}
        self._servers: list[_Server] = []  # each has imported more than the one before
        self._compiling: _Server | None = None
        self._wants_compiler = False
        self._process: subprocess.Popen[bytes] | None = None
        self._lease: keeper.Lease | None = None

    @property
    def forks(self) -> bool:
        """Whether workers that compile are forked, with the compiler imported."""
        return self._compiling is not None or (bool(self._servers) and not self._wants_compiler)

    def open(self) -> None:
        """Start the first server; it imports while others work. Safe to call again."""
        if self._process is not None or self.why_not:
            return
        if sys.platform != "linux" or os.environ.get(OFF):
            self.why_not = f"{OFF} is set" if os.environ.get(OFF) else "this system is not Linux"
            return
        try:
            self._begin()
        except OSError as problem:
            self._give_up(f"the fork server did not start ({problem})")

    def _begin(self) -> None:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._env = shared_env()
        self._lease = keeper.lease()
        ours, theirs = socket.socketpair()
        with theirs, self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *self._kind.launch, str(theirs.fileno()), *self._kind.imports],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(),),
                env={**self._env, CACHE: str(self._log.with_suffix("")), **blas.ALONE, **self._lease.env},
                **apart(),
            )
        self._lease.watch(self._process.pid)
        self._servers = [_Server(ours)]

    def learn(self, modules: Sequence[str]) -> None:
        """What the target imported in eager's worker: the next workers have it from the start."""
        if not self._servers:
            return
        try:
            if modules:
                self._servers.append(self._servers[-1].branch(modules))
            self._wants_compiler = COMPILER not in modules
            if self._wants_compiler:
                self._compiling = self._servers[-1].branch([COMPILER])
        except Lost as lost:
            self._give_up(str(lost))

    def settle(self) -> None:
        """Wait until every server has imported what it should; those that cannot be forked are let go."""
        for server in (*self._servers, *([self._compiling] if self._compiling else [])):
            try:
                server.wait_until_ready()
            except Lost as lost:
                self._forget(server, str(lost))
        if self._compiling is None and self._servers and self._wants_compiler:  # it was a branch of one that is lost
            self._wants_compiler = False
            self._compiling = self._servers[-1].branch([COMPILER])
            self.settle()

    def start(self, ends: Ends, env: Mapping[str, str]) -> Process:
        """A worker that loads files, or runs eager."""
        return self._start(None, ends, env)

    def start_compiling(self, ends: Ends, env: Mapping[str, str]) -> Process:
        """A worker that needs torch's compiler or an exporter."""
        return self._start(self._compiling, ends, env)

    def choose(self, *, compiles: bool) -> Start:
        """One of the two."""
        return self.start_compiling if compiles else self.start

    def _start(self, first: _Server | None, ends: Ends, env: Mapping[str, str]) -> Process:
        self.open()
        if self._servers and not self._differs(env):
            for server in [*([first] if first else []), *reversed(self._servers)]:
                try:
                    return server.fork(ends, env, self._kind.entry)
                except Lost as lost:
                    self._forget(server, str(lost))
        return self._kind.fresh(ends, env)

    def _differs(self, env: Mapping[str, str]) -> bool:
        """Whether the environment is another one than what the server's imports have seen."""
        return any(self._env.get(name) != env.get(name) for name in {*self._env, *env} - self._kind.own)

    def _forget(self, server: _Server, why: str) -> None:
        server.close()
        self._compiling = None if server is self._compiling else self._compiling
        self._servers = [one for one in self._servers if one is not server]
        if not self._servers:
            self._give_up(why)

    def _give_up(self, why: str) -> None:
        self.why_not = why
        self.close()

    def close(self) -> None:
        """End the servers; workers of theirs end with them."""
        for server in (*self._servers, *([self._compiling] if self._compiling else [])):
            server.close()
        self._servers, self._compiling = [], None
        process, self._process = self._process, None
        if process is not None:
            self._end(process)
        if self._lease is not None:
            self._lease.end_strays()
            self._lease.give_back()
            self._lease = None

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + 1.0
        while process.poll() is None and time.monotonic() < end:
            time.sleep(0.005)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
