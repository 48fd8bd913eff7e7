"""Exporters talk: keep it out of the way of whoever reads our output.

In: nothing. Out: contexts in which prints go to stderr (the worker's log), Python warnings are not shown and, in
`quiet`, logs below errors are dropped. All of it is put back, also the handler that a bare `logging.warning` would
leave on the root logger. Not covered: what native code writes to the file descriptors.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def no_prints() -> Iterator[None]:
    """Prints to stderr, no warnings."""
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Neither prints nor warnings nor logs. Not around a compile whose structured trace somebody listens to."""
    before, handler = logging.root.manager.disable, logging.NullHandler()
    logging.root.addHandler(handler)
    logging.disable(logging.WARNING)
    try:
        with no_prints():
            yield
    finally:
        logging.disable(before)
        logging.root.removeHandler(handler)
