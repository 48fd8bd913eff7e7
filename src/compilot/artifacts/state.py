"""Where this user's runs are: a small file to which each run adds a line when it begins and when it ends.

In: a run directory and what became of it, or one that was found (`history --scan`). Out: runs.jsonl in
$COMPILOT_STATE, else $XDG_STATE_HOME/compilot, else ~/.local/state/compilot; and every run in it, newest first. It is a
help and no record: the journals are the truth, and nothing that is wrong with this file stops a run; what is wrong
comes back as one sentence.
Covered: many writers (locked, one write per line, torn lines closed off), damaged lines and those of other versions
(skipped), files and folders of others (left alone), no HOME, full and read-only disks, size (old lines go).
Not covered: runs that were moved or copied, until somebody finds them; a run that was killed has begun and not ended.
"""

from __future__ import annotations

import contextlib
import enum
import os
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from compilot._version import __version__
from compilot.artifacts.rundir import RunDir
from compilot.errors import CompilotError, EnvironmentProblem
from compilot.files import atomic
from compilot.files.locks import file_lock
from compilot.files.private import others_can_change, private_directory, user_folder
from compilot.records import Record, encode

STATE_SCHEMA = 1
STATE_VARIABLE = "COMPILOT_STATE"
FILE_NAME = "runs.jsonl"
MAX_BYTES = 16 << 20  # about 30,000 runs: what leaves the list leaves the history, too
KEPT_BYTES = MAX_BYTES // 2  # so that not every line pays for a new file
LOCK_WAIT_S = 2.0  # writers are done in milliseconds; without the lock a line may be lost, a run must not wait for it


class Ending(enum.StrEnum):
    """How a run ended."""

    PLAN = "plan"  # decided, its files written
    INTERRUPTED = "interrupted"
    ERROR = "error"


class Event(enum.StrEnum):
    """What a line is about."""

    BEGUN = "begun"  # or resumed
    ENDED = "ended"
    FOUND = "found"  # a run that another user, machine or place began


class RunEvent(Record, frozen=True, kw_only=True):
    """One line."""

    schema: int
    at: str  # ISO 8601, UTC; of a run that was found: when it began
    event: Event
    directory: str  # absolute
    compilot: str  # version
    label: str = ""  # the model's, for people; when it begins or is found
    how: Ending | None = None  # when it ends; of a run that was found: None where that is not known


class KnownRun(NamedTuple):
    """A run of this user, as far as the file tells."""

    run_dir: RunDir
    label: str = ""  # "": it began before the lines that are kept
    begun_at: str = ""  # the last time, if it was resumed
    ended_at: str = ""
    how: Ending | None = None  # None: still at work, or killed
    gone: bool = False  # the directory is no longer there


def begun(run_dir: RunDir, label: str) -> str:
    """Note that a run begins, or goes on; returns why that was not possible, "": it was."""
    return _note(Event.BEGUN, run_dir, label=label)


def ended(run_dir: RunDir, how: Ending) -> str:
    """Note how a run ended; returns why that was not possible, "": it was."""
    return _note(Event.ENDED, run_dir, how=how)


def found(run_dir: RunDir, label: str, began_at: str, how: Ending | None) -> str:
    """Note a run that nobody began here; returns why that was not possible, "": it was."""
    return _note(Event.FOUND, run_dir, label=label, how=how, at=began_at)


def private_file(name: str) -> Path:
    """A file of ours beside the list, this user's alone; made where it is missing. Raises OSError, CompilotError."""
    path = private_directory(_folder()) / name
    os.close(_open(path, os.O_RDWR | os.O_CREAT))
    return path


def runs() -> tuple[KnownRun, ...]:
    """Every run that is known here, the one that began last first; none where the file cannot be used."""
    try:
        events = _events(_read(_folder() / FILE_NAME))
    except (OSError, CompilotError):
        return ()
    known: dict[str, KnownRun] = {}
    for event in events:
        run = known.get(event.directory) or KnownRun(RunDir(Path(event.directory)))
        if event.event is Event.BEGUN:
            known.pop(event.directory, None)  # the dict's order is that of the last beginnings
            run = KnownRun(run.run_dir, event.label, event.at)
        elif event.event is Event.FOUND:
            run = KnownRun(run.run_dir, event.label, event.at, how=event.how)
        else:
            run = run._replace(ended_at=event.at, how=event.how)
        known[event.directory] = run
    return tuple(run._replace(gone=not os.path.isdir(run.run_dir.path)) for run in reversed(known.values()))


def _folder() -> Path:
    return user_folder(STATE_VARIABLE, "XDG_STATE_HOME", ".local/state")


def _note(event: Event, run_dir: RunDir, label: str = "", how: Ending | None = None, at: str = "") -> str:
    try:
        line = RunEvent(
            schema=STATE_SCHEMA,
            at=at or datetime.now(UTC).isoformat(timespec="seconds"),
            event=event,
            directory=os.path.abspath(run_dir.path),
            compilot=__version__,
            label=label,
            how=how,
        )
        _append(private_directory(_folder()) / FILE_NAME, encode(line) + b"\n")
    except (OSError, ValueError, CompilotError) as problem:  # ValueError: a path that JSON has no text for
        return f"this run is missing in the list of your runs: {str(problem).removesuffix('.')}."
    return ""


def _append(path: Path, line: bytes) -> None:
    with file_lock(path.with_suffix(".lock"), LOCK_WAIT_S) as lock:
        fd = _open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                line = b"\n" + line  # the last writer was killed, or its disk was full
            if os.write(fd, line) < len(line):
                raise OSError("the disk took half a line")
        finally:
            os.close(fd)
        if lock.held and size + len(line) > MAX_BYTES:
            with contextlib.suppress(OSError):  # the next run tries again
                _, _, kept = _read(path)[-KEPT_BYTES:].partition(b"\n")
                atomic.write_bytes(path, kept, atomic.PRIVATE)


def _open(path: Path, flags: int) -> int:
    """The open file; OSError for what is not a plain file, EnvironmentProblem for what others can change."""
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, atomic.PRIVATE)
    try:
        opened = os.fstat(fd)
        if not stat.S_ISREG(opened.st_mode):
            raise OSError(f"{path} is not a plain file")
        if why := others_can_change(Path(os.path.realpath(path.parent)) / path.name, opened):
            raise EnvironmentProblem(f"{path} is not used: {why}.")
    except BaseException:
        os.close(fd)
        raise
    return fd


def _read(path: Path) -> bytes:
    """The newest lines; however long the file is (where there are no locks nobody shortens it)."""
    with os.fdopen(_open(path, os.O_RDONLY), "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - 2 * MAX_BYTES))
        return file.read()


def _events(data: bytes) -> list[RunEvent]:
    """The lines that can be read: one may be torn, damaged, or of another version of compilot."""
    readable, decoder = [], msgspec.json.Decoder(RunEvent)
    for raw in data.splitlines():
        try:
            event = decoder.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        if event.schema == STATE_SCHEMA:
            readable.append(event)
    return readable
