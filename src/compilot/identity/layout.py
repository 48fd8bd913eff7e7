"""Where objects keep their state, as far as their classes say.

In: a class or an object. Out: the values in its slots, and whether there is more that only compiled code can see.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any

_POINTER = object.__basicsize__ // 2  # an empty object is a count of references and a type
_ELSEWHERE = frozenset({"__dict__", "__weakref__"})  # two more pointers, which lead elsewhere


def members(value: Any) -> Iterator[tuple[str, Any]]:
    """Names and values of the slots that are filled."""
    kind: Any = type(value)
    for name, slot in _slots(kind):
        try:
            yield name, slot.__get__(value)
        except AttributeError:
            continue  # an empty slot


@functools.lru_cache(maxsize=4096)
def hides_state(kind: type) -> bool:
    """True when objects of a class are larger than its slots explain: compiled code keeps something there."""
    if kind.__itemsize__:
        return True
    names = {name for base in kind.__mro__ for name in vars(base)}
    explained = len(_slots(kind)) + len(_ELSEWHERE & names)
    return kind.__basicsize__ > object.__basicsize__ + _POINTER * explained


@functools.lru_cache(maxsize=4096)
def _slots(kind: type) -> tuple[tuple[str, Any], ...]:
    """Those of Python's own classes; members of compiled ones may be addresses."""
    owners = [base for base in kind.__mro__ if "__slots__" in vars(base)]
    found = [(name, slot) for base in owners for name, slot in sorted(vars(base).items())]
    return tuple((name, slot) for name, slot in found if isinstance(slot, types.MemberDescriptorType))
