"""The runs of this user, newest first, and one run by name. In: the list of runs. Out: a `RunEntry` for each.

A journal is read once; after that its entry comes from the index until the journal changes. Covered: runs that are
gone, damaged, under way; run directories elsewhere (`scan`), which join the list. Not covered: printing.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path

from compilot.artifacts import state
from compilot.artifacts.rundir import RunDir
from compilot.artifacts.state import Ending, KnownRun
from compilot.errors import CompilotError, InputError, RunDirError
from compilot.ledger import index
from compilot.ledger.entries import RunEntry, RunState, as_it_stands, read_entry, without_journal
from compilot.ledger.index import Index, Row, stamp_of
from compilot.records import Record

SHORTEST_ID = 4  # digits that are taken for an id
KEEP_AT_ONCE = 500  # journals read before their rows are written: a kill loses that much reading at the most
_NOT_ENTERED = ("work", "node_modules", "__pycache__")  # where no run directories lie


class History(Record, frozen=True, kw_only=True, omit_defaults=False):
    """Runs, newest first."""

    runs: tuple[RunEntry, ...]
    known: int  # runs that were looked at or could have been, whatever their model
    problems: tuple[str, ...] = ()  # what could not be read or noted, a sentence each


def entries(model: str | None = None, limit: int = 0) -> tuple[list[RunEntry], int]:
    """The runs in the list, the one that began last first, and how many the list has.

    model: those whose model, target or folder has this text in it. limit: no more than that many; 0: all.
    """
    known = sorted(state.runs(), key=lambda run: run.begun_at, reverse=True)
    for _ in range(2):
        try:
            with (
                index.opened() as opened,
                contextlib.closing(_synced(opened, known, one_by_one=bool(limit))) as found,
            ):
                return list(_wanted(found, model, limit)), len(known)
        except sqlite3.Error as problem:
            if index.is_damage(problem):
                index.throw_away()
    return list(_wanted(map(_read, known), model, limit)), len(known)


def note(run_dir: RunDir) -> None:
    """Bring one run's row up to date; nothing that goes wrong matters, since the next reader does it."""
    with contextlib.suppress(sqlite3.Error, OSError, ValueError, CompilotError), index.opened() as opened:
        stamp = stamp_of(run_dir)
        directory = os.path.abspath(run_dir.path)
        if stamp:
            opened.keep([Row(directory, stamp, read_entry(RunDir(Path(directory))))])


def chosen(found: Sequence[RunEntry], model: str | None, limit: int) -> tuple[RunEntry, ...]:
    """The same of runs that are at hand."""
    return tuple(_wanted(found, model, limit))


def _wanted(found: Iterable[RunEntry], model: str | None, limit: int) -> Iterator[RunEntry]:
    about = (one for one in found if model is None or _is_about(one, model))
    return itertools.islice(about, limit or None)


def _is_about(entry: RunEntry, text: str) -> bool:
    return text.lower() in f"{entry.model}\n{entry.target or ''}\n{os.path.basename(entry.run_dir)}".lower()


# ------------------------------------------------------------------------------------------------------ journals


def _synced(opened: Index, known: Sequence[KnownRun], *, one_by_one: bool) -> Generator[RunEntry, None, None]:
    """The entry of each run; what changed is read, and kept. one_by_one: few are wanted, so each row is asked for."""
    rows = {} if one_by_one else opened.rows()
    news: list[Row] = []
    unseen = set(rows)
    try:
        for run in known:
            directory, stamp = str(run.run_dir.path), stamp_of(run.run_dir)
            if not stamp:
                yield without_journal(run)
                continue
            unseen.discard(directory)
            row = opened.row(directory) if one_by_one else rows.get(directory)
            if row is None or row.stamp != stamp:
                row = Row(directory, stamp, read_entry(run.run_dir))
                news.append(row)
            yield as_it_stands(row.entry, run)
            if len(news) >= KEEP_AT_ONCE:
                _kept(opened, news)
                news = []
    finally:
        _kept(opened, news)
    with contextlib.suppress(sqlite3.OperationalError):  # runs that joined the list meanwhile stay
        opened.forget(directory for directory in unseen if not stamp_of(RunDir(Path(directory))))


def _kept(opened: Index, news: Sequence[Row]) -> None:
    """A writer that holds the index for long, or a full disk: these are read again next time."""
    with contextlib.suppress(sqlite3.OperationalError):
        opened.keep(news)


def _read(run: KnownRun) -> RunEntry:
    """The same without any index."""
    return as_it_stands(read_entry(run.run_dir), run) if stamp_of(run.run_dir) else without_journal(run)


# ---------------------------------------------------------------------------------------------------------- scan


def scan(folder: Path) -> tuple[str, ...]:
    """Add every run directory below a folder to the list; returns what could not be added, a sentence each."""
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder} to look for runs in; check the path.")
    known = {os.path.abspath(run.run_dir.path) for run in state.runs()}
    problems = []
    for run_dir in run_dirs_below(folder.absolute()):
        if str(run_dir.path) in known:
            continue
        entry = read_entry(run_dir)
        if entry.state is RunState.UNREADABLE:
            problems.append(entry.problem)
            continue
        how = Ending.PLAN if run_dir.is_finished or entry.state is RunState.DECIDED else None
        if trouble := state.found(run_dir, entry.target or entry.model, entry.created, how):
            problems.append(trouble)
    return tuple(problems)


def run_dirs_below(folder: Path) -> Iterator[RunDir]:
    """Every directory with a journal; nothing inside of one is another run."""
    for place, folders, files in os.walk(folder):
        run_dir = RunDir(Path(place))
        if run_dir.journal.name in files:
            folders.clear()
            yield run_dir
        folders[:] = sorted(name for name in folders if name not in _NOT_ENTERED and not name.startswith("."))


# ----------------------------------------------------------------------------------------------------------- one


def find(name: str | os.PathLike[str]) -> RunEntry:
    """The run of this directory, id or label; of several with a label the newest. InputError where there is none."""
    path = Path(name)
    if RunDir(path).holds_run:
        return _of_directory(RunDir(path.absolute()))
    text, known = os.fspath(name), entries()[0]
    same_id = [one for one in known if len(text) >= SHORTEST_ID and one.id.startswith(text)]
    if len({one.id for one in same_id}) > 1:
        several = ", ".join(f"{one.id} ({one.model})" for one in same_id)
        raise InputError(f"'{text}' may be any of {several}; write more of the id.")
    named = [one for one in known if text in (one.run_dir, os.path.basename(one.run_dir), one.model, _factory(one))]
    here = [one for one in (*same_id, *named) if one.state is not RunState.GONE]
    if found := here or [*same_id, *named]:
        return found[0]
    raise InputError(f"there is no run '{text}'; 'compilot history' lists what is known, by id, directory and model.")


def readable(name: str | os.PathLike[str]) -> tuple[RunEntry, RunDir]:
    """The same, if its journal can be read; InputError or RunDirError otherwise."""
    entry = find(name)
    run_dir = RunDir(Path(entry.run_dir))
    if entry.state is RunState.GONE:
        raise InputError(f"the directory of that run, {run_dir}, is gone; nothing but its name is left.")
    if entry.state is RunState.UNREADABLE:
        raise RunDirError(entry.problem)
    return entry, run_dir


def _of_directory(run_dir: RunDir) -> RunEntry:
    known = next((run for run in state.runs() if os.path.abspath(run.run_dir.path) == str(run_dir.path)), None)
    return as_it_stands(read_entry(run_dir), known or KnownRun(run_dir))


def _factory(entry: RunEntry) -> str:
    return (entry.target or "").rpartition(":")[2]
