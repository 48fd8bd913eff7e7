"""Python's garbage collector, kept out where it would cost. In: a body of code. Out: the same, without collections.

Both planes use it: a full collection takes 100 ms once torch is imported, longer than most batches and half a start.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collector() -> Iterator[None]:
    """No collection while the body runs; none is made before or after it either."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
