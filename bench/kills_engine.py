"""Two engines for bench/kills.py: traces of the model that pause for less long than eager does.

`quick` leads eager six times and `middling` three times, whatever else the machine does. Their builds take a second and
start two programs, as a compiler would: one in the worker's process group and one in a session of its own, as
Inductor's compile workers are. Both would run for minutes; a build that comes to its end stops them. Each build leaves
a line in the file KILLS_BUILDS: a candidate that was tried twice is seen there.

Imported by the process that tunes. `shorten` there makes a whole run, with all its stages, take about 15 s on an idle
machine; `slow_disk` makes every fsync and rename last, and a write to a file take several pieces, so that a kill can
come between any two of them.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from compilot.candidates import guided
from compilot.engines import registry
from compilot.engines.protocol import Availability, BuildRequest, Loaded, LoadRequest
from compilot.engines.space import Seed, Space
from compilot.engines.traits import EngineTraits
from compilot.records import ArtifactFile, Diagnosis, Settings
from compilot.trials import attempt
from compilot.trials.limits import Limits
from compilot.tuning import budget, final, pipeline

PAUSES_S = {"quick": 0.001, "middling": 0.002}  # per call; eager's is in kills_model.py
BUILD_S = 1.0
PROGRAM = [sys.executable, "-S", "-c", "import time; time.sleep(300)"]  # what a compiler could run for
TRACE = "model.ts"


class Engine:
    """Both halves of an engine of this name."""

    TRAITS = EngineTraits(version="1")
    __name__ = "kills_engine"  # the module that a worker imports to know it

    def __init__(self, name: str) -> None:
        self.name = name

    def available(self) -> Availability:
        return Availability(ok=True, version=str(self.TRAITS.version))

    def space(self, diagnosis: Diagnosis) -> Space:
        return Space(seeds=(Seed("", "to be interrupted"),))

    def validate(self, settings: Settings) -> str | None:
        return None

    def build(self, request: BuildRequest) -> Sequence[ArtifactFile]:
        with Path(os.environ["KILLS_BUILDS"]).open("a") as builds:
            builds.write(f"{self.name}\n")
        programs = [subprocess.Popen(PROGRAM, start_new_session=apart) for apart in (False, True)]
        time.sleep(BUILD_S)
        path = request.workspace / TRACE
        with torch.no_grad():
            torch.jit.freeze(torch.jit.trace(request.model, request.call.args)).save(str(path))
        for program in programs:
            program.kill()
            program.wait()
        data = path.read_bytes()
        return [ArtifactFile(name=path.name, sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data))]

    def load(self, request: LoadRequest) -> Loaded:
        traced = torch.jit.load(str(request.artifacts / TRACE))  # type: ignore[operator]
        pause_s = PAUSES_S[self.name]

        def call(x: torch.Tensor) -> torch.Tensor:
            time.sleep(pause_s)
            return traced(x)  # type: ignore[no-any-return]

        return Loaded(call=call, frozen_weights=True)


def shorten(*, doctor: bool, sets: int) -> None:
    """The same stages with less in them: who sleeps six times as long needs no long look."""
    pipeline.PREPARE_FROM_S = 0.0 if doctor else math.inf
    pipeline.Limits = functools.partial(Limits, warm_s=0.3)  # type: ignore[assignment,misc]
    attempt.SCREENING_TAIL_S = budget.TAIL_S = 0.2
    final.RACE_PAIRS = budget.CONFIRM_PAIRS = 20
    guided.turns = lambda candidate, knobs: []  # a third and a fourth candidate would show nothing new
    budget.CONFIRM_PROCESSES = budget.MOST_CONFIRM_PROCESSES = sets


def slow_disk(seconds: float) -> None:
    """Files of this process are written in pieces, and every step towards the disk lasts."""

    def late(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            time.sleep(seconds)
            result = real(*arguments, **named)
            time.sleep(seconds)
            return result

        return call

    write = os.write

    def in_pieces(fd: int, data: bytes) -> int:
        if not stat.S_ISREG(os.fstat(fd).st_mode) or len(data) < 2:
            return write(fd, data)
        written = write(fd, bytes(data)[: len(data) // 2 + 1])
        time.sleep(seconds if len(data) > 100 else 0.0)  # the first piece: the rest of a line goes by halves
        return written

    os.fsync, os.replace, os.write = late(os.fsync), late(os.replace), in_pieces


for _name in PAUSES_S:
    registry.register(_name, Engine(_name), Engine(_name))
