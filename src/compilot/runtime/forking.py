"""Forks: torch's worker threads do not survive them, so a child of a process that has made parallel calls would hang.

In: dispatchers of this process. Out: in a forked child, `after_fork()` is called on each of them; the hot path pays
nothing.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

FORKED = (
    "this process was forked after the compiled model had been called, and torch's threads do not survive a fork: "
    "use the 'spawn' start method, or fork before the first call."
)


class Forkable(Protocol):
    """Something that must know that it is in a child now."""

    def after_fork(self) -> None:
        """Called in the child."""
        ...


_known: weakref.WeakSet[Forkable] = weakref.WeakSet()


def tell_after_fork(one: Forkable) -> None:
    """Have `after_fork` called in every child forked from now on."""
    _known.add(one)


def _in_child() -> None:
    for one in list(_known):
        one.after_fork()


os.register_at_fork(after_in_child=_in_child)
