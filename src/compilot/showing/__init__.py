"""Showing: a run while it works. In: its events. Out: lines, or a picture that changes, on stderr; never on stdout.

`watching` chooses: plain.py for logs and pipes, live.py in a terminal. Light to import: what draws loads on use.
"""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, nullcontext

from compilot.progress import Observer


def watching(budget_s: float, *, quiet: bool = False) -> AbstractContextManager[Observer]:
    """Who shows the progress: nobody, a drawing, or plain lines."""
    if quiet:
        return nullcontext(Observer())
    if is_terminal():
        from compilot.showing.live import LiveObserver

        return LiveObserver(budget_s)
    from compilot.showing.plain import PlainObserver

    return nullcontext(PlainObserver())


def is_terminal() -> bool:
    """May the progress be drawn? It goes to stderr, the result to stdout."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
