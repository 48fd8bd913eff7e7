"""Engines whose worker does not survive, or nearly not, each in another way."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from compilot.engines import registry
from compilot.engines.protocol import Availability, BuildRequest, Loaded, LoadRequest
from compilot.engines.space import Seed, Space
from compilot.engines.traits import EngineTraits
from compilot.records import ArtifactFile, Diagnosis, Settings

ILLEGAL = {"x86_64": b"\x0f\x0b", "aarch64": b"\x00\x00\x00\x00"}  # ud2, udf
SLEEPER = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]


def illegal_instruction() -> None:
    """What code does that was built for another CPU: the processor itself refuses."""
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(ILLEGAL[platform.machine()])
    ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()


def killed() -> None:
    """The signal that the system sends when the machine has no memory left; a program it started lives on."""
    program = subprocess.Popen(SLEEPER, start_new_session=True)
    Path(os.environ["DYING_PID_FILE"]).write_text(str(program.pid))
    print("allocating the last page", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def refused_memory() -> None:
    """A process that may not have more memory, as in a container with a limit of its own."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
    try:
        bytearray(1 << 32)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


class Engine:
    """Both halves; what is done while it is built and while it answers."""

    TRAITS = EngineTraits(version="1")
    __name__ = __name__  # the module that a worker imports to know it

    def __init__(self, name: str, building: Callable[[], Any], answering: Callable[[], Any]) -> None:
        self.name, self.building, self.answering = name, building, answering

    def available(self) -> Availability:
        return Availability(ok=True, version=str(self.TRAITS.version))

    def space(self, diagnosis: Diagnosis) -> Space:
        return Space(seeds=(Seed("", "to see what happens"),))

    def validate(self, settings: Settings) -> str | None:
        return None

    def build(self, request: BuildRequest) -> Sequence[ArtifactFile]:
        self.building()
        return ()

    def load(self, request: LoadRequest) -> Loaded:
        model = request.model

        def call(*args: Any) -> Any:
            self.answering()
            return model(*args)

        return Loaded(call=call, frozen_weights=False)


def nothing() -> None:
    """As it should be."""


ENGINES = [
    Engine("illegal-build", illegal_instruction, nothing),
    Engine("illegal-call", nothing, illegal_instruction),
    Engine("killed-build", killed, nothing),
    Engine("refused-build", refused_memory, nothing),
]
for _engine in ENGINES:
    registry.register(_engine.name, _engine, _engine)
