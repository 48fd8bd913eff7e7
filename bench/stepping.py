"""What the long benches share: steps that are counted, journals of lines, and which machine and code a line is of.

In: a file, a number of steps. Out: whole lines as records; exit codes. Each finished step is one line on disk before
the next begins: a bench that is started again goes on after the last one. A line that was cut off is passed over, one
that is whole and of another form is refused in one sentence. Not covered: what the steps are.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from compilot._version import __version__
from compilot.identity.machine import machine_fingerprint
from compilot.records import MachineFingerprint, Record

DONE, MORE = 0, 75  # exit codes: nothing is left to do; EX_TEMPFAIL: call again
SOURCES = Path(__file__).resolve().parents[1] / "src"

L = TypeVar("L", bound=Record)


class MoreToDo(Exception):
    """The steps that were allowed are used up, and something is left."""


class Steps:
    """How many steps may still be taken."""

    def __init__(self, most: int | None = None) -> None:
        """most: None: as many as there are."""
        self._left = most
        self.taken = 0

    def take(self) -> None:
        """Before each step; raises MoreToDo where it may not begin."""
        if self._left is not None and self.taken >= self._left:
            raise MoreToDo
        self.taken += 1


def append_line(path: Path, line: Record) -> None:
    """Write one line so that it survives whatever comes next; one that was cut off before it is closed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torn = path.exists() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
    with path.open("ab") as file:
        file.write((b"\n" if torn else b"") + msgspec.json.encode(line) + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read_lines(path: Path, kind: Any) -> list[Any]:
    """Every whole line of a journal; SystemExit where one is whole and none of this bench's."""
    found = []
    for number, text in enumerate(path.read_bytes().splitlines() if path.exists() else (), 1):
        try:
            found.append(msgspec.json.decode(text, type=kind))
        except msgspec.ValidationError as problem:
            raise SystemExit(
                f"{path} cannot be read: line {number} was written by another version of this bench ({problem}); "
                "name another folder with --out, or read it with the code that wrote it."
            ) from None
        except msgspec.DecodeError:
            continue  # cut off by a kill: that step is run again
    return found


class StampedLines(Generic[L]):
    """The lines of a journal, each with the time and the code that it is from."""

    def __init__(self, path: Path, kind: Any, code: str | None = None) -> None:
        """kind: the union of the lines' records. code: of the code that writes; None: looked up at the first line."""
        self.path = path
        self.lines: list[L] = read_lines(path, kind)
        self._code = code

    @property
    def code(self) -> str:
        """Of the code that writes."""
        self._code = self._code or code_of()
        return self._code

    def append(self, line: L) -> None:
        """Write one line, stamped."""
        stamped = msgspec.structs.replace(line, at=now(), code=self.code)
        append_line(self.path, stamped)
        self.lines.append(stamped)


def machine_key(machine: MachineFingerprint) -> str:
    """Short name of a kind of machine: results of two kinds are never put together.

    Virtual machines share a model's name ("AMD EPYC") over several kinds; their instructions tell them apart.
    """
    facts = (machine.cpu_model, machine.cpu_isa, machine.cores, machine.torch)
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:10]


def this_machine() -> MachineFingerprint:
    """Without asking for a compiler and for versions of engines."""
    return machine_fingerprint(compiler=False, engines=())


def code_of(sources: Path = SOURCES) -> str:
    """Which code a line is of: the commit, with a + where files differ from it; the version where git cannot say."""
    try:
        commit = _git(sources, "rev-parse", "--short=10", "HEAD")
        return f"{commit}{'+' if _git(sources, 'status', '--porcelain', '--', '.') else ''}"
    except (OSError, subprocess.CalledProcessError):
        return __version__ if sources == SOURCES else "unknown"


def _git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, text=True).stdout.strip()


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def chosen_models(only: str | None, known: Sequence[str]) -> list[str]:
    """The models that were asked for, in the known order's place where none were; SystemExit for an unknown one."""
    models = only.split(",") if only else list(known)
    if unknown := [name for name in models if name not in known]:
        raise SystemExit(f"unknown models: {', '.join(unknown)}; there are {', '.join(known)}")
    return models


def say(what: str, text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {what}: {text}", flush=True)
