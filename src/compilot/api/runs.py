"""`compilot.history`, `compilot.show`, `compilot.compare`: runs that were made before, found again.

In: nothing, or a run by its id, directory or label. Out: `History`, `ShownRun`, `ComparedRuns`. Journals are the truth;
an index beside the list of your runs makes it quick (ledger/). No torch is imported. Not covered: printing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from compilot.errors import InputError
from compilot.records import Plan

if TYPE_CHECKING:
    from compilot.artifacts.rundir import RunDir
    from compilot.ledger.changes import ComparedRuns
    from compilot.ledger.entries import RunEntry
    from compilot.ledger.history import History
    from compilot.ledger.shown import ShownRun

USUAL_LIMIT = 30
AnyRun = Plan | str | os.PathLike[str]


def history(
    *,
    model: str | None = None,
    scan: str | os.PathLike[str] | None = None,
    store: str | os.PathLike[str] | None = None,
    limit: int = USUAL_LIMIT,
) -> History:
    """Your runs, newest first; what `compilot history` does.

    model keeps those whose model, target or folder has this text in it. scan adds every run directory below a folder
    to the list of your runs, for good. store lists the runs that a team has pushed to this URL, instead of your own.
    limit is the largest number of runs; 0 for all.
    """
    from compilot.ledger import history as ledger

    if limit < 0:
        raise InputError("the limit is a number of runs; 0 for all of them.")
    if store is not None:
        from compilot.ledger import sharing

        found = sharing.listing(os.fspath(store))
        shared = ledger.chosen(found.runs, model, limit)
        return ledger.History(runs=shared, known=len(found.runs), problems=found.problems)
    problems = () if scan is None else ledger.scan(Path(scan))
    runs, known = ledger.entries(model, limit)
    return ledger.History(runs=tuple(runs), known=known, problems=problems)


def show(run: AnyRun, *, store: str | os.PathLike[str] | None = None) -> ShownRun:
    """One run in full: what was asked for, every candidate, the result; what `compilot show` does.

    run is a run directory, the beginning of an id that `history` lists, or the name of a model: then its newest run.
    store: take it from this URL.
    """
    from compilot.ledger.shown import shown

    with _found(run, store) as (entry, run_dir):
        return shown(entry, run_dir)


def compare(run: AnyRun, other: AnyRun, *, store: str | os.PathLike[str] | None = None) -> ComparedRuns:
    """What changed from one run to another in code, versions, machine, options and numbers; as `compilot compare`.

    Both are named as in `show`. store: take what is not known here from this URL.
    """
    from compilot.ledger.changes import compare_runs, read

    with _either(run, store) as old, _either(other, store) as new:
        return compare_runs(read(*old), read(*new))


@contextmanager
def _found(run: AnyRun, store: str | os.PathLike[str] | None) -> Iterator[tuple[RunEntry, RunDir]]:
    """A run that can be read, of this user or of a store."""
    from compilot.ledger.history import readable
    from compilot.ledger.sharing import fetched

    if store is None:
        yield readable(named(run))
        return
    with fetched(os.fspath(store), os.fspath(named(run))) as there:
        yield there


@contextmanager
def _either(run: AnyRun, store: str | os.PathLike[str] | None) -> Iterator[tuple[RunEntry, RunDir]]:
    """The user's own run of this name, else the store's."""
    from compilot.ledger.history import readable

    try:
        own = readable(named(run))
    except InputError:
        if store is None:
            raise
        with _found(run, store) as there:
            yield there
        return
    yield own


def named(run: AnyRun) -> str | os.PathLike[str]:
    """What the ledger finds a run by."""
    if not isinstance(run, Plan):
        return run
    from compilot.api.reading import run_dir_of

    return run_dir_of(run)
