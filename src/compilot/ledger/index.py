"""The index: what was read from journals before. In: a directory and its journal's stamp. Out: its entry, its lessons.

A cache and no record: a SQLite file (runs.sqlite) beside the list of runs, with mode 0600. What is wrong with it never
changes an answer: a damaged file or row is thrown away and made again from the journals, and where no such file can be
used (network file systems, no WAL, read-only disks, folders of others) the index lives in memory.
Covered: many processes at once (WAL, short transactions), kills (SQLite rolls back), other versions of the index,
damaged rows (each has a checksum). Not covered: which runs there are (artifacts/state.py).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from compilot.artifacts import state
from compilot.artifacts.rundir import RunDir
from compilot.errors import CompilotError
from compilot.files.locks import file_lock
from compilot.ledger.entries import RunEntry
from compilot.records import encode

INDEX_SCHEMA = 4  # raised when a row means something else: the old rows are made again
FILE_NAME = "runs.sqlite"
WAIT_S = 5.0  # for another process's transaction, which takes milliseconds
_TABLES = ("runs", "lessons")
_BESIDE = ("-wal", "-shm")
_NETWORK = ("nfs", "cifs", "smb", "fuse.sshfs", "9p", "afs", "lustre", "gpfs", "ceph", "gluster", "beegfs", "virtiofs")
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)  # the last: not our tables
_decoder = msgspec.json.Decoder(RunEntry)


class Row(NamedTuple):
    """What is kept of one run."""

    directory: str
    stamp: str  # of the journal when it was read
    entry: RunEntry


def stamp_of(run_dir: RunDir) -> str:
    """The same as long as the journal is; "": there is none."""
    try:
        found = os.stat(run_dir.journal)
    except OSError:
        return ""
    return f"{found.st_mtime_ns}:{found.st_size}:{found.st_ino}"


class Index:
    """An open index; use `opened`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        if not _is_new(connection):
            return
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            if _is_new(connection):  # nobody was quicker
                for name in _TABLES:
                    columns = "directory TEXT PRIMARY KEY, stamp TEXT, sum INTEGER, entry BLOB"
                    connection.execute(f"DROP TABLE IF EXISTS {name}")
                    connection.execute(f"CREATE TABLE {name} ({columns}) WITHOUT ROWID")
                connection.execute(f"PRAGMA user_version = {INDEX_SCHEMA}")

    def rows(self) -> dict[str, Row]:
        """Every row that is whole, by directory."""
        return {row.directory: row for row in self._whole("SELECT directory, stamp, sum, entry FROM runs")}

    def row(self, directory: str) -> Row | None:
        """One row; None: there is none that is whole."""
        query = "SELECT directory, stamp, sum, entry FROM runs WHERE directory = ?"
        return next(self._whole(query, directory), None)

    def keep(self, rows: Iterable[Row]) -> None:
        """Write these rows in the place of what is there for their directories."""
        made = [_fields(row.directory, row.stamp, encode(row.entry)) for row in rows]
        if made:
            with self._connection:
                self._connection.executemany("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?)", made)

    def forget(self, directories: Iterable[str]) -> None:
        """Remove rows."""
        gone = [(directory,) for directory in directories]
        if gone:
            with self._connection:
                for name in _TABLES:
                    self._connection.executemany(f"DELETE FROM {name} WHERE directory = ?", gone)

    def lesson(self, directory: str, stamp: str) -> bytes | None:
        """What a later search learns from this very journal; None: nobody has read it yet."""
        query = "SELECT sum, entry FROM lessons WHERE directory = ? AND stamp = ?"
        for total, data in self._connection.execute(query, (directory, stamp)):
            if isinstance(data, bytes) and _sum(directory, stamp, data) == total:
                return data
        return None

    def keep_lesson(self, directory: str, stamp: str, data: bytes) -> None:
        """Write it in the place of an older one."""
        with self._connection:
            values = _fields(directory, stamp, data)
            self._connection.execute("INSERT OR REPLACE INTO lessons VALUES (?, ?, ?, ?)", values)

    def _whole(self, query: str, *values: str) -> Iterator[Row]:
        for directory, stamp, total, data in self._connection.execute(query, values):
            try:
                row = Row(directory, stamp, _decoder.decode(data)) if _sum(directory, stamp, data) == total else None
            except (msgspec.DecodeError, UnicodeDecodeError, TypeError):
                continue  # the journal is read again
            if row is not None:
                yield row


@contextlib.contextmanager
def opened() -> Iterator[Index]:
    """The user's index, else one in memory. What is damaged is thrown away and begun again."""
    connection = _on_disk() or _in_memory()
    try:
        yield Index(connection)
    finally:
        connection.close()


def is_damage(problem: sqlite3.Error) -> bool:
    """Whether an error means that the file itself is of no use; others may be over in a second."""
    return (getattr(problem, "sqlite_errorcode", 0) & 0xFF) in _DAMAGED


def throw_away() -> None:
    """Remove a damaged index; one that another process has made again meanwhile stays."""
    with contextlib.suppress(OSError, CompilotError):
        path = state.private_file(FILE_NAME)
        with file_lock(path.with_suffix(".lock"), WAIT_S):
            if _why_unusable(path):
                for name in (path.name, *(path.name + suffix for suffix in _BESIDE)):
                    path.with_name(name).unlink(missing_ok=True)


def _on_disk() -> sqlite3.Connection | None:
    """None: there is no place for a file that many processes can share."""
    for _ in range(2):  # the second time after a damaged one was thrown away
        try:
            path = state.private_file(FILE_NAME)
            if is_on_network(path):
                return None
            return _connected(path)
        except sqlite3.Error as problem:
            if not is_damage(problem):
                return None
            throw_away()
        except (OSError, CompilotError):
            return None
    return None


def _connected(path: Path) -> sqlite3.Connection | None:
    connection = sqlite3.connect(path, timeout=WAIT_S)
    try:
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode == "wal":
            connection.execute("PRAGMA synchronous = NORMAL")  # what power loss takes is read again from journals
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            return connection
    except BaseException:
        connection.close()
        raise
    connection.close()
    return None


def _in_memory() -> sqlite3.Connection:
    return sqlite3.connect(":memory:")


def _is_new(connection: sqlite3.Connection) -> bool:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return bool(version != INDEX_SCHEMA)


def _fields(directory: str, stamp: str, data: bytes) -> tuple[str, str, int, bytes]:
    return directory, stamp, _sum(directory, stamp, data), data


def _sum(directory: str, stamp: str, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(f"{directory}\0{stamp}".encode()))


def _why_unusable(path: Path) -> str:
    try:
        connection = sqlite3.connect(path, timeout=WAIT_S)
        try:
            found = connection.execute("PRAGMA quick_check").fetchone()[0]
            for name in _TABLES:
                connection.execute(f"SELECT directory, stamp, sum, entry FROM {name} LIMIT 1").fetchall()
        finally:
            connection.close()
    except sqlite3.Error as problem:
        return str(problem) if is_damage(problem) else ""
    return "" if found == "ok" else str(found)


def is_on_network(path: Path, mounts: Path = Path("/proc/self/mounts")) -> bool:
    """Whether other machines may have the file open, where WAL cannot work; False where nobody can tell."""
    place, longest, kind = os.path.realpath(path), "", ""
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return False
    for fields in (line.split() for line in lines):
        if len(fields) < 3:
            continue
        folder = fields[1].replace("\\040", " ")
        inside = folder == "/" or place == folder or place.startswith(folder.rstrip("/") + "/")
        if inside and len(folder) >= len(longest):
            longest, kind = folder, fields[2]
    return kind.startswith(_NETWORK)
