"""Whether dicts were written to since the last look, without reading what is in them. Checked on torch 2.13.0.

In: dicts. Out: a number for each one, which is another after any write that changes it; reading it touches the dict
itself and none of its keys and values. None where it cannot be told: another torch, or a kind of dict with an order of
its own. Not covered: what the values hold inside of them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any


def of_class(kind: type) -> dict[str, Any] | None:
    """The dict in which a class keeps what it defines, to be looked at and never written to; None: not to be had."""
    found = gc.get_referents(vars(kind))
    return found[0] if len(found) == 1 and type(found[0]) is dict else None


def writes(dicts: Sequence[dict[str, Any]]) -> Callable[[], list[int]] | None:
    """A function that gives the numbers of these dicts; None: compare them value by value."""
    if any(type(one) is not dict for one in dicts):
        return None
    try:
        from torch._C._dynamo.guards import dict_version

        dict_version({})
    except Exception:  # not there, or not for this Python
        return None
    return lambda: [*map(dict_version, dicts)]
