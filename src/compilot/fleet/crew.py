"""Who does the work: nodes, and a way to call a function on one of them.

In: a function of ours by name, and bytes. Out: bytes, sooner or later. `Crew` is what running.py needs of a cluster
(compilot.cluster.nodes.Cluster is one); `LocalCrew` is this machine alone, which does one thing after the other, each
in a process of its own, so that no job leaves anything behind for the next.
Covered: a child that dies (an error, not a hang), Ctrl-C (the child is ended). Not covered: what the function does.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol

import msgspec

from compilot.errors import CompilotError, EnvironmentProblem
from compilot.fleet.child import Answer
from compilot.records import MachineFingerprint

HERE = "this machine"
END_S = 10.0  # that a child has to end after it was interrupted


class CrewNode(Protocol):
    """One node, as far as a fleet asks."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def labels(self) -> dict[str, str]: ...
    @property
    def fingerprint(self) -> MachineFingerprint: ...


class Crew(Protocol):
    """Who calls functions on nodes."""

    def nodes(self) -> tuple[CrewNode, ...]:
        """Those that are alive."""
        ...

    def call(self, node_id: str, function: str, payload: bytes) -> Future[bytes]:
        """Call "module:function" on a node; the future raises what it raises, or NodeLost."""
        ...

    def close(self) -> None: ...


class LocalNode(NamedTuple):
    """This machine."""

    id: str
    name: str  # for people
    host: str
    labels: dict[str, str]
    fingerprint: MachineFingerprint


class LocalCrew:
    """This machine alone: one call after the other, each in a fresh process that starts in the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="compilot-fleet")
        self._children: list[subprocess.Popen[bytes]] = []
        self._node: LocalNode | None = None

    def nodes(self) -> tuple[CrewNode, ...]:
        """The one node, with the fingerprint that a process of its own has."""
        if self._node is None:
            told = self.call(HERE, "compilot.fleet.on_node:fingerprint", b"").result()
            self._node = LocalNode(
                HERE, HERE, os.uname().nodename, {}, msgspec.json.decode(told, type=MachineFingerprint)
            )
        return (self._node,)

    def call(self, node_id: str, function: str, payload: bytes) -> Future[bytes]:
        """The answer of a child process."""
        return self._pool.submit(self._called, function, payload)

    def close(self) -> None:
        """End what is under way."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for child in self._children:
            end(child)
        self._pool.shutdown(wait=True)

    def __enter__(self) -> LocalCrew:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _called(self, function: str, payload: bytes) -> bytes:
        return called_in_child(function, payload, self.folder, self.command(), self._children.append)

    def command(self) -> list[str]:
        """The interpreter; a test may pin it to some cores."""
        return [sys.executable]


def called_in_child(
    function: str,
    payload: bytes,
    folder: Path,
    command: Sequence[str] = (sys.executable,),
    started: Callable[[subprocess.Popen[bytes]], None] = lambda child: None,
) -> bytes:
    """What a function gives back in a fresh process that starts in the folder; started: hears of the process."""
    with tempfile.TemporaryDirectory(prefix="compilot-fleet-") as between:
        question, answer = Path(between) / "question", Path(between) / "answer"
        question.write_bytes(payload)
        words = [*command, "-m", "compilot.fleet.child", function, str(question), str(answer)]
        with _started(words, folder) as child:
            started(child)
            code = child.wait()
        if not answer.is_file():
            raise EnvironmentProblem(f"the process of {function} ended without an answer ({_how(code)}).")
        return answered(answer.read_bytes())


def answered(data: bytes) -> bytes:
    """What the function gave back, or its error as one of ours."""
    answer = msgspec.json.decode(data, type=Answer)
    if answer.error:
        raise CompilotError(answer.error)
    return answer.result


@contextmanager
def _started(command: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A child whose stdout is our stderr: what a model prints is no result."""
    child = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno())
    try:
        yield child
    finally:
        end(child)


def end(child: subprocess.Popen[bytes]) -> None:
    """Interrupt a child, as Ctrl-C does, so that it ends its workers; then without asking."""
    if child.poll() is not None:
        return
    child.send_signal(signal.SIGINT)
    try:
        child.wait(END_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _how(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
