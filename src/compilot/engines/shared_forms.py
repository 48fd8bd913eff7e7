"""A form of the model that several candidates of one engine start from, made once per run.

In: how to make it, and what it depends on. Out: its files in each candidate's workspace, and what making them took:
a cold start has to make them, whoever made them first in this run. Covered: a form that was left half-made (it is made
again), a form that cannot be made (each candidate says so), two that make it at once (the later one stays unused).
Not covered: weights that differ between processes (the structure beside the files knows their digest).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from compilot.records import Guard, Record

DONE = "made.json"  # written last


class Cost(Record, frozen=True, kw_only=True):
    """What making a form took."""

    wall_s: float = 0.0
    cpu_s: float = 0.0


class SharedForms:
    """The forms of one run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reused = Cost()
        self._made = Cost()
        self._parts: list[SharedForms] = []

    @property
    def reused(self) -> Cost:
        """Of the forms that were made before, as far as they were."""
        return _sum([self._reused, *(part.reused for part in self._parts)])

    @property
    def made(self) -> Cost:
        """Of the forms that were made now, as far as they were."""
        return _sum([self._made, *(part.made for part in self._parts)])

    def of(self, path: str) -> SharedForms:
        """The forms of one submodule."""
        part = SharedForms(self._folder / f"of-{path}")
        self._parts.append(part)
        return part

    def once(self, name: str, guard: Guard, workspace: Path, make: Callable[[Path], None]) -> None:
        """Have the form's files in the workspace; `make` writes them into an empty folder where nobody has yet."""
        form = self._folder / f"{name}-{_digest(guard)}"
        if (cost := _made(form)) is None:
            form = self._make(form, make)
        else:
            self._reused = cost
        for file in sorted(form.iterdir()):
            if file.name != DONE:
                shutil.copyfile(file, workspace / file.name)  # no link: onnx refuses weights that have two names

    def _make(self, form: Path, make: Callable[[Path], None]) -> Path:
        self._folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix="half-", dir=self._folder))
        place.chmod(0o755)  # as a workspace: no umask lets others change what will be loaded
        try:
            wall, cpu = time.perf_counter(), _cpu_s()
            make(place)
            cost = Cost(wall_s=time.perf_counter() - wall, cpu_s=_cpu_s() - cpu)
            (place / DONE).write_bytes(msgspec.json.encode(cost))
            self._made = cost
            if form.exists():  # half-made by one that died after the rename, or another was quicker
                return place
            place.rename(form)
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
        return form


def _sum(costs: Sequence[Cost]) -> Cost:
    return Cost(wall_s=sum(cost.wall_s for cost in costs), cpu_s=sum(cost.cpu_s for cost in costs))


def _digest(guard: Guard) -> str:
    return hashlib.sha256(msgspec.json.encode(guard, order="sorted")).hexdigest()[:16]


def _made(form: Path) -> Cost | None:
    """What it took; None: it is not there, or not whole."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode((form / DONE).read_bytes(), type=Cost)
    return None


def _cpu_s() -> float:
    """Of this process and of children that have ended."""
    return sum(os.times()[:4])
