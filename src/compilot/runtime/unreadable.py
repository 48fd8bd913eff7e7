"""What a model holds and nobody can read: compared at every call, by identity and a tensor's version.

In: a model. Out: `Unreadable`, with one question for every call and the names for people. Covered: whatever the
fingerprint of the model does not cover (identity/uncovered.py), in every place that holds it. InputError: it cannot be
found again where it was met, so nothing could be compared. Not covered: a change inside of such a thing: by nature
nobody sees it; another list or object around it, which is the attributes' watch to see.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import nn

from compilot.errors import InputError
from compilot.identity.uncovered import Uncovered, everywhere
from compilot.identity.wording import told

_BY_KEY = (dict, list, tuple, MappingProxyType)


class _Holding(NamedTuple):
    owner: Any
    read: Callable[[Any], Any]
    value: Any
    version: int | None  # of a tensor

    def is_other(self) -> bool:
        try:
            now = self.read(self.owner)
        except Exception:  # gone
            return True
        return now is not self.value or (self.version is not None and now._version != self.version)


class Unreadable:
    """All such things of one model, at one moment."""

    def __init__(self, things: Sequence[Uncovered]) -> None:
        places = [(thing, _place(thing)) for thing in things]
        found = [(thing, place) for thing, place in places if not place.is_other()]
        watched = {id(thing.value) for thing, _ in found}
        self._things = [thing for thing, _ in found]
        self._places = [place for _, place in found]
        self.names = [thing.path for thing in self._things]
        for thing in things:
            if id(thing.value) not in watched:
                raise InputError(
                    f"the model uses {thing.path}, which cannot be read ({thing.why}) and cannot be found again to be "
                    "compared at each call; hold it as an attribute of the model."
                )

    def __bool__(self) -> bool:
        return bool(self._places)

    def changed(self) -> bool:
        """True when another object is in the place of one of them, or a tensor was written to."""
        return any(place.is_other() for place in self._places)

    def which(self) -> list[str]:
        """The names of those."""
        return [name for name, place in zip(self.names, self._places, strict=True) if place.is_other()]

    def sentence(self) -> str:
        """What they are and what follows, for people."""
        return (
            "the plan cannot tell whether these are what they were when it was made, since their state cannot be read: "
            f"{told(self._things)}. From now on each call checks that they are still the same objects; "
            "run 'compilot tune' again whenever what is in them changes."
        )


def unreadable_in(model: nn.Module) -> Unreadable:
    """The things that the model's fingerprint does not cover."""
    return Unreadable(everywhere(model))


def _place(thing: Uncovered) -> _Holding:
    value = thing.value
    version = value._version if isinstance(value, torch.Tensor) and not value.is_inference() else None
    return _Holding(thing.owner, _reader(thing), value, version)


def _reader(thing: Uncovered) -> Callable[[Any], Any]:
    if thing.key is None:  # somewhere in a set
        return lambda owner: next(one for one in owner if one is thing.value)
    return itemgetter(thing.key) if isinstance(thing.owner, _BY_KEY) else attrgetter(thing.key)
