"""One small process beside the workers, which ends what they leave when this process dies before it can.

In: leases, one per worker. Out: the mark for the worker's environment; when the last lease is given back, or this
process is gone however it went, no worker and nothing that a worker started is left. The kernel ends a worker with its
parent (worker.py), but not the compilers and compile workers that it started.
Covered: SIGKILL, several runs in the threads of one process, a fork of it (which starts with no leases). Not covered:
how the processes are found (marks.py).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading

from compilot.trials import marks

END_LIMIT_S = 5.0  # for the keeper's own end: it looks at every process of the machine once, which takes milliseconds


class Lease:
    """One worker's claim on the keeper."""

    def __init__(self, keeper: _Keeper, number: int) -> None:
        self._keeper = keeper
        self._pid: int | None = None
        self.value = f"{keeper.value}{number}."
        self.env = {marks.MARK: self.value}

    def watch(self, pid: int) -> None:
        """The worker has started; it leads a process group."""
        self._pid = pid
        self._keeper.tell(f"+{pid}")

    def end_strays(self) -> None:
        """End whatever carries this worker's mark, wherever it went."""
        marks.end_marked(self.value)

    def give_back(self) -> None:
        """The worker is gone; safe to call twice."""
        if self._pid is not None:
            self._keeper.tell(f"-{self._pid}")
        self._pid = None
        _give_back(self)


class _Keeper:
    """The process and the pipe to it."""

    def __init__(self) -> None:
        self.value = f"{os.urandom(8).hex()}."
        self.leases: set[Lease] = set()
        self.numbers = 0
        read, self._fd = os.pipe()  # neither end goes to programs that others start: it ends with this process
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", marks.__file__, str(read), self.value],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(read,),
                start_new_session=True,  # Ctrl-C goes to the group of the terminal
                cwd="/",
            )
        except BaseException:
            os.close(self._fd)
            raise
        finally:
            os.close(read)

    def tell(self, text: str) -> None:
        with contextlib.suppress(OSError):  # somebody ended it: the workers still die with this process
            os.write(self._fd, f"{text}\n".encode())

    def close(self) -> None:
        self.drop()
        try:
            self._process.wait(timeout=END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def drop(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


_lock = threading.Lock()
_current: _Keeper | None = None


def lease() -> Lease:
    """A claim for one more worker; the first one starts the keeper."""
    global _current
    with _lock:
        if _current is None:
            _current = _Keeper()
        _current.numbers += 1
        made = Lease(_current, _current.numbers)
        _current.leases.add(made)
        return made


def _give_back(one: Lease) -> None:
    global _current
    with _lock:
        keeper = one._keeper
        keeper.leases.discard(one)
        if keeper is not _current or keeper.leases:
            return
        _current = None
    keeper.close()


def _forked() -> None:
    """A fork has no workers: the pipe is its parent's, and must not outlive it."""
    global _current, _lock
    _lock = threading.Lock()
    if _current is not None:
        _current.drop()
        _current = None


os.register_at_fork(after_in_child=_forked)
