"""Why a plan does not come: for good, later, or because nobody waits. Raised by what brings plans, heard by a Swap.

In: nothing. Out: exceptions and their fixed reasons. Light: a Swap knows them without what brings plans.
"""

from __future__ import annotations

import os

from compilot.records import Plan

Source = Plan | str | os.PathLike[str] | None
SUPERSEDED = "another plan is wanted in its place"


class Stays(Exception):
    """Eager goes on; the reason."""


class NeedsExample(Stays):
    """Eager goes on until the program gives a call to build with."""


class Disproved(Stays):
    """The plan itself is at fault: it failed, or its answers are not eager's."""


class Later(Exception):
    """It did not work now and may work later; the reason."""


class Closing(Exception):
    """Nobody waits for it any more."""
