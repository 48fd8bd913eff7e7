"""The process that workers are forked from: it has imported torch and what the target needs, and has run nothing.

In: requests on a socket, with file descriptors. Out: workers; servers that have imported more; how workers ended.
Run as `python -m compilot.trials.forkserver SOCKET_FD MODULE...`; the modules are what it imports. A worker forked here
is ready in a tenth of the time of a fresh interpreter and is the same in all that is measured (bench/forking.py). Only
a process with one thread forks: locks of threads that a fork leaves behind stay locked for ever. Not covered: when to
use it (nursery.py).
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Sequence

import msgspec

from compilot.records import Record
from compilot.trials import blas, worker

LENGTH_BYTES = 4
NAME = "compilot forks"  # in `top`


class Fork(Record, frozen=True, kw_only=True, tag="fork"):
    """A worker; four descriptors come along: requests, replies, log, and where its exit code goes."""

    env: dict[str, str]
    entry: str = "compilot.trials.worker"  # the module whose `main` it runs


class Branch(Record, frozen=True, kw_only=True, tag="branch"):
    """A server that imports these as well; one descriptor comes along: the socket to it."""

    modules: tuple[str, ...]


class Answer(Record, frozen=True, kw_only=True):
    """The process that was made; or why none can be."""

    pid: int = 0
    problem: str = ""


_REQUESTS = msgspec.json.Decoder(Fork | Branch)
_DESCRIPTORS: dict[type[Fork] | type[Branch], int] = {Fork: 4, Branch: 1}


def send(to: socket.socket, message: Record, descriptors: Sequence[int] = ()) -> None:
    """One message, and the descriptors that belong to it."""
    data = msgspec.json.encode(message)
    to.sendall(len(data).to_bytes(LENGTH_BYTES, "big") + data)
    if descriptors:
        socket.send_fds(to, [b"."], list(descriptors))


def receive(source: socket.socket) -> bytes:
    """The next message; EOFError where there is none any more."""
    return _exactly(source, int.from_bytes(_exactly(source, LENGTH_BYTES), "big"))


def _exactly(source: socket.socket, count: int) -> bytes:
    """Not a byte more: the next one may have descriptors with it."""
    data = b""
    while len(data) < count:
        more = source.recv(count - len(data))
        if not more:
            raise EOFError
        data += more
    return data


class Server:
    """Forks on request, and says how its workers ended."""

    def __init__(self, link: socket.socket, import_s: float = 0.0) -> None:
        self._link = link
        self._import_s = import_s  # what its imports took, and those of the server that it was branched off
        self._problem = ""  # why this process cannot be forked
        self._exits: dict[int, int] = {}  # worker -> where its exit code goes
        self._wake, waker = os.pipe()
        for fd in (self._wake, waker):
            os.set_blocking(fd, False)
        self._waker = waker
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)

    def serve(self, modules: Sequence[str]) -> None:
        """Import, then answer until the other end is closed."""
        begin = time.perf_counter()
        self._problem = imported(modules)
        self._import_s += time.perf_counter() - begin
        send(self._link, Answer(pid=os.getpid(), problem=self._problem))
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                ready, _, _ = select.select([self._link.fileno(), self._wake], [], [])
                if self._wake in ready:
                    self._reap()
                if self._link.fileno() in ready:
                    self._answer()

    def _answer(self) -> None:
        request = _REQUESTS.decode(receive(self._link))
        _, fds, _, _ = socket.recv_fds(self._link, 1, _DESCRIPTORS[type(request)])
        pid = 0 if self._problem else self._forked(request, fds)
        if pid and isinstance(request, Fork):
            self._exits[pid] = fds.pop()
        for fd in fds:
            os.close(fd)
        send(self._link, Answer(pid=pid, problem=self._problem))

    def _forked(self, request: Fork | Branch, fds: list[int]) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            self._become(request, fds)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.setpgid(pid, pid)  # whoever comes first: it must lead its group before anybody ends that
        return pid

    def _become(self, request: Fork | Branch, fds: list[int]) -> None:
        """The child's life; it never returns."""
        try:
            os.setpgid(0, 0)
            self._forget()
            for fd in fds:
                os.set_inheritable(fd, False)
            if isinstance(request, Branch):
                worker.die_with_parent(NAME)
                Server(socket.socket(fileno=fds[0]), self._import_s).serve(request.modules)
            else:
                _work(request, self._import_s, *fds)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def _forget(self) -> None:
        """What is the server's own."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._link.close()
        for fd in (self._wake, self._waker, *self._exits.values()):
            os.close(fd)
        self._exits.clear()

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 4096)
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                self._tell_exit(pid, os.waitstatus_to_exitcode(status))

    def _tell_exit(self, pid: int, code: int) -> None:
        fd = self._exits.pop(pid, None)  # None: a server that was branched off
        if fd is not None:
            with contextlib.suppress(OSError):
                os.write(fd, f"{code}\n".encode())
            os.close(fd)


def _work(request: Fork, import_s: float, requests: int, replies: int, log: int, exits: int) -> None:
    """A worker, as `python -m ENTRY` would be; it is told how long its imports have taken."""
    os.close(exits)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.clear()
    os.environ.update(request.env)
    blas.set_threads(blas.usual_threads(request.env))
    importlib.import_module(request.entry).main([str(requests), str(replies), str(import_s)])


def imported(modules: Sequence[str]) -> str:
    """Import what can be; why the process cannot be forked afterwards, "" where it can."""
    for name in modules:
        with contextlib.suppress(Exception):  # the worker will meet it again, and say so
            importlib.import_module(name)
    try:
        blas.setters()
    except (LookupError, OSError) as problem:
        return str(problem)
    gc.collect()
    gc.freeze()  # what the workers share is not touched by their collectors
    threads = len(os.listdir("/proc/self/task"))
    return "" if threads == 1 else f"importing started {threads - 1} threads"


def main(argv: list[str]) -> int:
    """Serve until the other end of the socket is closed."""
    worker.die_with_parent(NAME)
    Server(socket.socket(fileno=int(argv[0]))).serve(argv[1:])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
