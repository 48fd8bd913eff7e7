"""The worker on a node, as Ray runs it: one process per node and run.

In: names of methods with arguments. Out: `Answer`s: a value, or what went wrong as plain text, so that no error class
has to travel. What is to be done is done in one thread, one after another, which lives as long as the worker: the
processes that it starts end with it. Files, events and a sign of life are answered beside that.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from compilot._version import __version__
from compilot.cluster import node_env
from compilot.cluster.events import Event, Events
from compilot.cluster.facts import NODE_PROTOCOL, Hello
from compilot.cluster.node_work import NodeWork
from compilot.errors import CompilotError, first_cause
from compilot.trials import lease
from compilot.trials.runner import ArmLost

FINGERPRINT_LIMIT_S = 50.0  # importing torch from a cold disk; a node has a minute for all of its start
FINGERPRINT = (
    "import sys; from compilot.identity.machine import machine_fingerprint; from compilot.records import encode; "
    "sys.stdout.buffer.write(encode(machine_fingerprint()))"
)
NODE = "COMPILOT_NODE"
LOST_ARM, FAILED, BUG = "arm", "failed", "bug"


class Answer(NamedTuple):
    """What came of something."""

    value: Any = None
    kind: str = ""  # "": it went well
    words: tuple[str, ...] = ()


class NodeWorker:
    """Ray makes one of it on a node."""

    def __init__(self, name: str, driver_env: Mapping[str, str]) -> None:
        self._name = name
        os.environ[NODE] = name  # programs of the user's may want to know where they are
        self._notes = node_env.apply(driver_env)
        self._events = Events()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="compilot-node")
        self._work: NodeWork | None = None

    def hello(self) -> Hello:
        """Who it is; nothing is opened yet."""
        command = [sys.executable, "-c", FINGERPRINT]
        try:
            machine = subprocess.run(command, capture_output=True, timeout=FINGERPRINT_LIMIT_S, check=True).stdout
        except (OSError, subprocess.SubprocessError) as problem:
            return Hello(NODE_PROTOCOL, __version__, lease.host(), b"", first_cause(problem), self._notes)
        return Hello(NODE_PROTOCOL, __version__, lease.host(), machine, "", self._notes)

    def do(self, method: str, args: tuple[Any, ...]) -> Answer:
        """One thing after another."""
        return self._pool.submit(self._answer, method, args).result()

    def now(self, method: str, args: tuple[Any, ...]) -> Answer:
        """Beside it."""
        return self._answer(method, args)

    def since(self, number: int, wait_s: float) -> list[Event]:
        """What happened after an event."""
        return self._events.since(number, wait_s)

    def _answer(self, method: str, args: tuple[Any, ...]) -> Answer:
        try:
            return Answer(self._method(method)(*args))
        except ArmLost as lost:
            return Answer(None, LOST_ARM, (lost.owner, lost.state.value, lost.reason))
        except CompilotError as problem:
            return Answer(None, FAILED, (type(problem).__name__, str(problem)))
        except Exception as problem:
            return Answer(None, BUG, (f"{type(problem).__name__}: {problem}", traceback.format_exc()))

    def _method(self, name: str) -> Callable[..., Any]:
        if name == "ping":
            return lambda: True
        if name == "call":
            return self._call
        if name == "close":
            return self._close
        if self._work is None:
            self._work = NodeWork(self._name, self._events)
        method: Callable[..., Any] = getattr(self._work, name)
        return method

    def _call(self, function: str, payload: bytes, folder: tuple[str, str] | None) -> bytes:
        """A function of ours with its bytes; folder: root and place of files that were brought, to work in."""
        if folder is not None:
            assert self._work is not None  # it has taken them
            place = self._work.place_of(*folder)
            os.chdir(place)
            sys.path.insert(0, str(place))
        module, _, name = function.partition(":")
        try:
            answer: bytes = getattr(importlib.import_module(module), name)(payload)
        finally:
            if folder is not None:
                sys.path.remove(str(place))
                os.chdir(Path("/"))
        return answer

    def _close(self) -> None:
        work, self._work = self._work, None
        if work is not None:
            work.close()
