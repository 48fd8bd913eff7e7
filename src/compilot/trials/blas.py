"""How many threads numpy's OpenBLAS has. In: a count. Out: the library has it.

OpenBLAS starts its threads when it is imported, and a process with threads cannot be forked safely. So the fork server
imports it with one thread (`ALONE`), and each worker gets the count back that a fresh interpreter would have.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path

COUNT = "OPENBLAS_NUM_THREADS"
ALONE = {COUNT: "1"}
_ASKED = (COUNT, "GOTO_NUM_THREADS", "OMP_NUM_THREADS")  # in OpenBLAS's own order
_NAMES = [f"{head}openblas_set_num_threads{tail}" for head, tail in product(("scipy_", ""), ("64_", "", "_64"))]


def usual_threads(env: Mapping[str, str]) -> int:
    """The count that OpenBLAS would choose in this environment."""
    asked = (env.get(name, "").strip() for name in _ASKED)
    return next((int(text) for text in asked if text.isdigit() and int(text) > 0), len(os.sched_getaffinity(0)))


def set_threads(count: int) -> None:
    """Give every OpenBLAS of this process so many threads."""
    for setter in setters():
        setter(count)


def setters() -> list[Callable[[int], None]]:
    """One function for each OpenBLAS that is loaded; LookupError where one has none that is known."""
    return [_setter(path) for path in _loaded()]


def _loaded() -> list[str]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = {line.split(maxsplit=5)[5] for line in lines if "openblas" in line and line.count(" ") >= 5}
    return sorted(path for path in paths if "openblas" in os.path.basename(path))


def _setter(path: str) -> Callable[[int], None]:
    library = ctypes.CDLL(path)
    for name in _NAMES:
        if (found := getattr(library, name, None)) is not None:
            found.argtypes, found.restype = [ctypes.c_int], None
            return found  # type: ignore[no-any-return]
    raise LookupError(f"{path} has no known way to set its threads")
