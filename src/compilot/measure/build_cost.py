"""What a build costs beside wall time.

In: nothing. Out: C++ compiler runs, CPU seconds and memory of this process and its children. Compiler runs are counted
with Python's audit hook, so no wrapper script has to stand in for the compiler (a wrapper's name would change the flags
and the cache key).
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Sequence
from pathlib import Path

_COMPILERS = ("g++", "gcc", "clang++", "clang", "c++", "cc")


def is_compiler_run(arguments: Sequence[str]) -> bool:
    """True when a command line makes the C++ compiler produce a file (not a version query or a preprocessor run)."""
    if not arguments:
        return False
    name = os.path.basename(arguments[0])
    known = any(name == c or name.startswith(f"{c}-") for c in _COMPILERS)
    return known and "-o" in arguments and "-E" not in arguments


class CompilerRuns:
    """Counts compiler processes started by this process since `install`."""

    def __init__(self) -> None:
        self.count = 0
        self.headers = 0  # of them, builds of a precompiled header

    def install(self) -> CompilerRuns:
        """Begin to count; audit hooks cannot be removed, so this is for worker processes only."""
        sys.addaudithook(self._heard)
        return self

    def _heard(self, event: str, args: tuple[object, ...]) -> None:
        if event != "subprocess.Popen":
            return
        command = args[1]
        words = command.split() if isinstance(command, str) else [str(word) for word in command]  # type: ignore[attr-defined]
        if is_compiler_run(words):
            self.count += 1
            self.headers += any(made.endswith((".gch", ".pch")) for made in words[words.index("-o") + 1 :][:1])


def cpu_seconds() -> float:
    """CPU seconds of this process and its ended children so far."""
    mine = resource.getrusage(resource.RUSAGE_SELF)
    theirs = resource.getrusage(resource.RUSAGE_CHILDREN)
    return mine.ru_utime + mine.ru_stime + theirs.ru_utime + theirs.ru_stime


def peak_rss_bytes() -> int:
    """Highest resident memory of this process so far: of its own program, not of the one that started it.

    Linux carries `ru_maxrss` over an exec: a child of a program that holds 1 GB says 1 GB before it has done anything.
    """
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) * 1024
