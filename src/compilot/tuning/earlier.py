"""Earlier runs of this user, to learn from. In: the list of runs (artifacts/state.py). Out: what each has to teach.

A run keeps a small summary of itself beside its journal (learned.json); where there is none that fits the journal, the
journal is read once and the summary is made then. Covered: the newest 200 runs, about a second of reading at the most;
what is gone, damaged, unfinished or of another version is counted and passed over: nothing here can stop a run, since
it only orders one. Deleting a run's folder makes it forgotten. Not covered: what a run teaches (candidates/past.py).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable

import msgspec

from compilot.artifacts import state
from compilot.artifacts.rundir import RunDir
from compilot.artifacts.state import Ending, KnownRun
from compilot.candidates.past import PAST_SCHEMA, PastRun, past_run
from compilot.candidates.prior import Recalled
from compilot.errors import CompilotError
from compilot.files import atomic
from compilot.records import Record, encode

MOST_RUNS = 200  # newest ones; what is older was mostly another version of something
LONG_ENOUGH_S = 1.0  # of reading, before a run that has better things to do; summaries take about 0.1 ms each
LARGEST_BYTES = 32 << 20  # of a journal; usual ones have 0.1 MB


class Summary(Record, frozen=True, kw_only=True):
    """What lies beside a journal."""

    schema: int
    journal_bytes: int  # of the journal that it was made from: a run that went on has another
    run: PastRun | None  # None: there is nothing to learn from it


def recalled(but: RunDir | None = None, clock: Callable[[], float] = time.monotonic) -> Recalled:
    """The finished runs that can be read, newest first; but: the run that asks."""
    begin, runs, unreadable = clock(), [], 0
    own = None if but is None else os.path.abspath(but.path)
    for known in itertools.islice(state.runs(), MOST_RUNS):
        if os.path.abspath(known.run_dir.path) == own:
            continue
        if clock() - begin > LONG_ENOUGH_S:
            break
        found = _read(known)
        runs += [] if found is None else [found]
        unreadable += found is None
    return Recalled(runs, unreadable)


def keep(run_dir: RunDir) -> PastRun | None:
    """Write the summary of a finished run, and return what is to be learned from it; a full disk is no problem."""
    size = run_dir.journal.stat().st_size
    found = past_run(run_dir.lines())
    with contextlib.suppress(OSError):
        atomic.write_bytes(
            run_dir.learned, encode(Summary(schema=PAST_SCHEMA, journal_bytes=size, run=found)), atomic.PRIVATE
        )
    return found


def _read(known: KnownRun) -> PastRun | None:
    """What a run has to teach; None: nothing, or it cannot be read."""
    if known.gone or known.how is not Ending.PLAN:
        return None
    try:
        size = known.run_dir.journal.stat().st_size
        summary = _summary(known.run_dir)
        if summary is not None and summary.journal_bytes == size:
            return summary.run
        return keep(known.run_dir) if size <= LARGEST_BYTES else None
    except (OSError, ValueError, CompilotError):  # ValueError: JSON that is none, or not ours
        return None


def _summary(run_dir: RunDir) -> Summary | None:
    try:
        found = msgspec.json.decode(run_dir.learned.read_bytes(), type=Summary)
    except (OSError, ValueError):
        return None
    return found if found.schema == PAST_SCHEMA else None
