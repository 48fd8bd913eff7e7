"""The journal: what a run found out, one JSON line per record, written at once and for good.

In: journal records. Out: an append-only file whose first line is the RunHeader; on disk when append() returns.
A kill at any moment loses at most the line under way: such a torn last line is ignored by read() and cut off by open();
before the first line is whole there is no journal.
Covered: one writer at a time (locked), full disk (the file stays whole). Not covered: editing, merging.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import time
from pathlib import Path

import msgspec

from compilot.errors import EnvironmentProblem, RunDirError, cannot_write
from compilot.files.atomic import partial_name, sync_folder
from compilot.records import JOURNAL_SCHEMA, JournalLine, RunHeader, encode

LOOKED_AT_S = 0.2  # a list of runs looks whether a journal is locked, for less than this

_decoder = msgspec.json.Decoder(JournalLine)


class Journal:
    """A journal open for appending; use create() or open()."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd

    @classmethod
    def create(cls, path: Path, header: RunHeader) -> Journal:
        """Start a new journal, there with its first line or not at all; a directory that holds one is refused."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = partial_name(path)
            fd = os.open(partial, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
        except OSError as problem:
            raise _problem(path, problem) from problem
        journal = cls(path, fd)
        try:
            journal._lock()
            journal.append(header)
            _take_place(partial, path)
        except BaseException:
            journal.close()
            raise
        finally:
            partial.unlink(missing_ok=True)
        sync_folder(path.parent)
        return journal

    @classmethod
    def open(cls, path: Path) -> Journal:
        """Go on with an existing journal; a torn last line is cut off first."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_APPEND)
        except FileNotFoundError:
            raise RunDirError(f"{path.parent} holds no run to resume (no {path.name}); check the directory.") from None
        except OSError as problem:
            raise _problem(path, problem) from problem
        journal = cls(path, fd)
        try:
            journal._lock()
            os.ftruncate(fd, _scan(path)[1])
        except BaseException:
            journal.close()
            raise
        return journal

    def append(self, line: JournalLine) -> None:
        """Write one record; it is on disk when this returns."""
        data = encode(line)
        if not _survives(line, data):
            raise ValueError(
                f"{type(line).__name__} cannot be written as JSON: it holds a value that JSON does not have."
            )
        size = os.fstat(self._fd).st_size
        try:
            self._write(data + b"\n")
            os.fsync(self._fd)
        except OSError as problem:
            os.ftruncate(self._fd, size)  # half a line would spoil every line after it
            raise _problem(self.path, problem) from problem

    def close(self) -> None:
        """Close the file; also gives up the lock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._fd, data) :]

    def _lock(self) -> None:
        end = time.monotonic() + LOOKED_AT_S
        while True:
            try:
                return fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > end:
                    raise RunDirError(
                        f"another compilot run is writing to {self.path.parent}; wait for it or choose another folder."
                    ) from None
            except OSError:
                return None  # a file system without locks: one writer is then the user's care
            time.sleep(0.01)


def resume_command(folder: Path) -> str:
    """How to go on with the run in a folder, to be copied into a shell."""
    return f"'compilot tune --resume {shlex.quote(str(folder))}' (in Python: resume=)"


def _take_place(partial: Path, path: Path) -> None:
    """Give the file its name unless another one has it."""
    try:
        os.link(partial, path)
    except OSError:
        if path.exists():
            hint = f"continue it with {resume_command(path.parent)}, or choose another folder"
            raise RunDirError(f"{path.parent} already holds a run; {hint}.") from None
        partial.rename(path)  # a file system without hard links


def _survives(line: JournalLine, data: bytes) -> bool:
    """NaN and infinity become null, which the resume would refuse: better to know now."""
    try:
        return bool(_decoder.decode(data) == line)
    except msgspec.ValidationError:
        return False


def read(path: Path) -> list[JournalLine]:
    """The records of a journal; only a torn last line is forgiven."""
    return _scan(path)[0]


def _scan(path: Path) -> tuple[list[JournalLine], int]:
    """The records and the number of bytes they take."""
    lines: list[JournalLine] = []
    good = 0
    bad: RunDirError | None = None
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                if bad is not None:
                    raise bad  # something follows: the bad line was not the last one
                bad = _torn(path, number, raw)
                if bad is None:
                    _check_schema(path, raw) if number == 1 else None
                    lines.append(_decode(path, number, raw))
                    good += len(raw)
    except FileNotFoundError:
        raise RunDirError(f"there is no journal {path}; check the run directory.") from None
    except OSError as problem:
        raise _problem(path, problem) from problem
    _check_header(path, lines)
    return lines, good


def _torn(path: Path, number: int, raw: bytes) -> RunDirError | None:
    """The error to raise unless this is the last line; None for a whole line."""
    whole = raw.endswith(b"\n")
    try:
        msgspec.json.decode(raw, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        return RunDirError(f"{path} line {number} is damaged ({problem}); start a new run in another folder.")
    return None if whole else RunDirError(f"{path} line {number} does not end.")


def _decode(path: Path, number: int, raw: bytes) -> JournalLine:
    try:
        return _decoder.decode(raw)  # type: ignore[no-any-return]
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise RunDirError(
            f"{path} line {number} cannot be read: {problem}; was it written by another version of compilot?"
        ) from problem


def _check_schema(path: Path, raw: bytes) -> None:
    """Before anything else of it is read: the lines of another schema may mean something else."""
    try:
        schema = msgspec.json.decode(raw, type=_Schema).schema
    except msgspec.ValidationError:
        return  # no header: said in its own words
    if schema != JOURNAL_SCHEMA:
        told = f"{path} has journal schema {schema}, this compilot reads {JOURNAL_SCHEMA}"
        raise RunDirError(f"{told}; tune again into another folder, or use the compilot that wrote it.")


class _Schema(msgspec.Struct):
    schema: int


def _check_header(path: Path, lines: list[JournalLine]) -> None:
    if not lines:
        raise RunDirError(f"{path} is empty: the run ended before it began; start a new one in another folder.")
    if not isinstance(lines[0], RunHeader):
        raise RunDirError(f"{path} line 1 is not a run header; this is not a journal of compilot.")


def _problem(path: Path, problem: OSError) -> RunDirError | EnvironmentProblem:
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return EnvironmentProblem(f"the disk that holds {path.parent} is full; free some space, then resume the run.")
    return cannot_write(path, problem.strerror)
