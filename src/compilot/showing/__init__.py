"""Showing: a run while it works. In: its events. Out: lines or a picture on stderr, or below a notebook's cell.

`watching` chooses: plain.py for logs and pipes, live.py in a terminal, notebook.py in Jupyter. Nothing goes to stdout,
which belongs to results. Light to import: what draws loads on use.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

from compilot.progress import Observer

# Whether a command says afterwards how the run ended: its functions are those of Python, where nobody would.
_SAID_LATER: ContextVar[bool] = ContextVar("said later", default=False)


@contextmanager
def ending_said_later() -> Iterator[None]:
    """Progress that is shown in this block leaves out how the run ended: the caller prints that itself."""
    before = _SAID_LATER.set(True)
    try:
        yield
    finally:
        _SAID_LATER.reset(before)


def watching(budget_s: float | None, *, quiet: bool = False) -> AbstractContextManager[Observer]:
    """Who shows the progress: nobody, a drawing, or plain lines; it ends with the result, or how to go on.

    budget_s: None where there is none.
    """
    from compilot.showing.notebook import NotebookObserver, in_notebook
    from compilot.showing.plain import PlainObserver

    if quiet:
        return nullcontext(Observer())
    if in_notebook() and budget_s is not None:
        return nullcontext(NotebookObserver(budget_s))
    if not is_terminal():
        return nullcontext(PlainObserver(result=not _SAID_LATER.get()))
    from compilot.showing.live import LiveObserver

    return LiveObserver(budget_s, result=not _SAID_LATER.get())


def is_terminal() -> bool:
    """May the progress be drawn? It goes to stderr, the result to stdout."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
