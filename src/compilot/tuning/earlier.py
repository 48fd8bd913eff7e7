"""Earlier runs of this user, to learn from. In: the list of runs (artifacts/state.py). Out: what each has to teach.

What a journal teaches is kept in the index of the ledger (ledger/index.py), so that each journal is read once; without
an index the answers are the same and take longer. Covered: the newest 200 runs, about a second of reading at the most;
what is gone, damaged, unfinished or of another version is counted and passed over: nothing here can stop a run, since
it only orders one. Deleting a run's folder makes it forgotten. Not covered: what a run teaches (candidates/past.py).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
import time
from collections.abc import Callable

import msgspec

from compilot.artifacts import state
from compilot.artifacts.rundir import RunDir
from compilot.artifacts.state import Ending, KnownRun
from compilot.candidates.past import PAST_SCHEMA, PastRun, past_run
from compilot.candidates.prior import Recalled
from compilot.errors import CompilotError
from compilot.ledger import index
from compilot.ledger.index import Index, stamp_of
from compilot.records import Record, encode

MOST_RUNS = 200  # newest ones; what is older was mostly another version of something
LONG_ENOUGH_S = 1.0  # of reading, before a run that has better things to do; what the index has takes about 0.1 ms each
LARGEST_BYTES = 32 << 20  # of a journal; usual ones have 0.1 MB


class Lesson(Record, frozen=True, kw_only=True):
    """What the index keeps of a journal."""

    schema: int
    run: PastRun | None  # None: there is nothing to learn from it


def recalled(but: RunDir | None = None, clock: Callable[[], float] = time.monotonic) -> Recalled:
    """The finished runs that can be read, newest first; but: the run that asks."""
    try:
        with index.opened() as opened:
            return _recalled(opened, but, clock)
    except sqlite3.Error as problem:
        if index.is_damage(problem):
            index.throw_away()
        return _recalled(None, but, clock)


def _recalled(opened: Index | None, but: RunDir | None, clock: Callable[[], float]) -> Recalled:
    begin, runs, unreadable = clock(), [], 0
    own = None if but is None else os.path.abspath(but.path)
    for known in itertools.islice(state.runs(), MOST_RUNS):
        if os.path.abspath(known.run_dir.path) == own:
            continue
        if clock() - begin > LONG_ENOUGH_S:
            break
        found = _read(opened, known)
        runs += [] if found is None else [found]
        unreadable += found is None
    return Recalled(runs, unreadable)


def keep(run_dir: RunDir) -> None:
    """Note what a finished run teaches; nothing that goes wrong matters, since the next run does it."""
    with contextlib.suppress(sqlite3.Error, OSError, ValueError, CompilotError), index.opened() as opened:
        _lesson(opened, run_dir, stamp_of(run_dir))


def _read(opened: Index | None, known: KnownRun) -> PastRun | None:
    """What a run has to teach; None: nothing, or it cannot be read."""
    if known.gone or known.how is not Ending.PLAN:
        return None
    try:
        stamp = stamp_of(known.run_dir)
        data = opened.lesson(os.path.abspath(known.run_dir.path), stamp) if opened is not None else None
        lesson = msgspec.json.decode(data, type=Lesson) if data is not None else None
        if lesson is not None and lesson.schema == PAST_SCHEMA:
            return lesson.run
        size = known.run_dir.journal.stat().st_size
        return _lesson(opened, known.run_dir, stamp) if size <= LARGEST_BYTES else None
    except (OSError, ValueError, CompilotError):  # ValueError: JSON that is none, or not ours
        return None


def _lesson(opened: Index | None, run_dir: RunDir, stamp: str) -> PastRun | None:
    """From the journal; kept, if there is an index that can be written to."""
    found = past_run(run_dir.lines())
    if opened is not None and stamp:
        with contextlib.suppress(sqlite3.OperationalError):  # a full disk, a writer that holds it for long
            opened.keep_lesson(os.path.abspath(run_dir.path), stamp, encode(Lesson(schema=PAST_SCHEMA, run=found)))
    return found
