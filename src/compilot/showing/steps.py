"""The steps of a job without trials, one after the other. In: a text per step. Out: a line that changes, or lines.

On stderr, as all progress.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from compilot import showing


@contextmanager
def steps(*, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Who hears of the steps: nobody, a line that changes, or plain lines."""
    if quiet:
        yield lambda text: None
    elif not showing.is_terminal():
        yield _say
    else:
        from rich.console import Console

        with Console(stderr=True).status("starting") as status:
            yield lambda text: status.update(text)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
