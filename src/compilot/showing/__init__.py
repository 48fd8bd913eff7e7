"""Showing: a run while it works. In: its events. Out: lines or a picture on stderr, or below a notebook's cell.

`watching` chooses: plain.py for logs and pipes, live.py in a terminal, notebook.py in Jupyter. Nothing goes to stdout,
which belongs to results. Light to import: what draws loads on use.
"""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, nullcontext

from compilot.progress import Observer


def watching(budget_s: float | None, *, quiet: bool = False, result: bool = False) -> AbstractContextManager[Observer]:
    """Who shows the progress: nobody, a drawing, or plain lines. result: the drawing ends with the decision.

    budget_s: None where there is none.
    """
    from compilot.showing.notebook import NotebookObserver, in_notebook
    from compilot.showing.plain import PlainObserver

    if quiet:
        return nullcontext(Observer())
    if in_notebook() and budget_s is not None:
        return nullcontext(NotebookObserver(budget_s))
    if not is_terminal():
        return nullcontext(PlainObserver())
    from compilot.showing.live import LiveObserver

    return LiveObserver(budget_s, result=result)


def is_terminal() -> bool:
    """May the progress be drawn? It goes to stderr, the result to stdout."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
