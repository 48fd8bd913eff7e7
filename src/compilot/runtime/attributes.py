"""What modules hold besides parameters, buffers and submodules: tensors and plain values in their attributes.

In: a model, or its modules. Out: `attribute_tensors`, for digests; `Attributes`, which says whether any of them was
given another value. What bakes weights in bakes these in as well. Covered: tensors, also inside of lists, tuples and
dicts; numbers, strings, flags and None, also in tuples; new attributes of these kinds (a class's own value that is
covered by an instance's). Not covered: plain values inside of lists and dicts, attributes of other objects, modules
hidden in lists, globals and closures; an attribute that running the model itself changes (a cache made at the first
call) is left out once that was seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import is_
from typing import Any, NamedTuple

import torch
from torch import nn

_OF_EVERY_MODULE = frozenset(vars(nn.Module()))
_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device})
_DEPTH = 4  # of containers in containers; deeper ones are data, not settings
_GONE = object()


def attribute_tensors(model: nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Tensors that are plain attributes, by name; such as are parameters or buffers as well are left out."""
    known = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
    return [
        (f"{path}.{key}{where}", tensor)
        for path, module in model.named_modules()
        for key, value in _own(vars(module))
        for where, tensor in _tensors_in(value)
        if id(tensor) not in known
    ]


class _Watched(NamedTuple):
    """Attributes that are watched; exchanged as a whole, since another thread may be looking."""

    places: list[tuple[dict[str, Any], str]]
    objects: list[Any]  # kept alive, so that no id is given twice
    items: list[Any]
    containers: list[int]  # which of them can change inside


class Look(NamedTuple):
    """Attributes before the model is run, to be compared with afterwards."""

    items: dict[tuple[int, str], Any]  # of the watched ones
    keys: list[frozenset[str]]  # of all, by module


class Attributes:
    """The attributes of some modules at one moment."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self._states = [vars(module) for module in modules]
        self._keys = [frozenset(state) for state in self._states]
        self._lengths = [*map(len, self._keys)]
        self._watched = _watch([(state, key) for state in self._states for key, value in _own(state) if _counts(value)])
        self.tensors = [tensor for value in self._watched.objects for _, tensor in _tensors_in(value)]

    def changed(self) -> bool:
        """True when an attribute is not what it was, or there is a new one."""
        places, objects, items, _ = self._watched
        now = [state.get(key, _GONE) for state, key in places]
        if not all(map(is_, now, objects)) and [*map(_item, now)] != items:
            return True
        return self.changed_inside() or self._grown()

    def changed_inside(self) -> bool:
        """The same for what can change without a write to its module: lists and dicts."""
        places, _, items, containers = self._watched
        return any(_item(places[i][0].get(places[i][1], _GONE)) != items[i] for i in containers)

    def which(self) -> list[str]:
        """The names of attributes that are not what they were."""
        rows = zip(self._watched.places, self._watched.items, strict=True)
        return sorted({key for (state, key), item in rows if _item(state.get(key, _GONE)) != item})

    def _grown(self) -> bool:
        if [*map(len, self._states)] == self._lengths:
            return False
        pairs = zip(self._states, self._keys, strict=True)
        new = [state[key] for state, keys in pairs for key in state.keys() - keys if not key.startswith("_")]
        return any(map(_counts, new))

    def look(self) -> Look:
        """The attributes as they are now, for `forgive`."""
        items = {(id(state), key): _item(state.get(key, _GONE)) for state, key in self._watched.places}
        return Look(items, [frozenset(state) for state in self._states])

    def forgive(self, before: Look) -> None:
        """What is not as it was before, when only the model itself ran since, is of its own making: watched no more."""
        now = self.look()
        own = {place for place, item in now.items.items() if before.items.get(place, item) != item}
        if own:
            old = self._watched
            stays = [i for i, (state, key) in enumerate(old.places) if (id(state), key) not in own]
            self._watched = _Watched(
                [old.places[i] for i in stays],
                [old.objects[i] for i in stays],
                [old.items[i] for i in stays],
                [number for number, i in enumerate(stays) if i in old.containers],
            )
        rows = zip(self._keys, before.keys, now.keys, strict=True)
        self._keys = [known | (keys - had) for known, had, keys in rows]
        self._lengths = [*map(len, self._keys)]


def _watch(places: list[tuple[dict[str, Any], str]]) -> _Watched:
    objects = [state[key] for state, key in places]
    containers = [i for i, value in enumerate(objects) if isinstance(value, list | dict)]
    return _Watched(places, objects, [*map(_item, objects)], containers)


def _own(state: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(key, value) for key, value in [*state.items()] if key not in _OF_EVERY_MODULE]


def _is_plain(value: Any) -> bool:
    return type(value) in _PLAIN or (type(value) is tuple and all(map(_is_plain, value)))


def _counts(value: Any) -> bool:
    return _is_plain(value) or next(_tensors_in(value), None) is not None


def _item(value: Any) -> Any:
    """Something that equals itself as long as the value means the same."""
    if _is_plain(value):
        return type(value), value
    return [id(tensor) for _, tensor in _tensors_in(value)] if value is not _GONE else None


def _tensors_in(value: Any, depth: int = _DEPTH) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield "", value
    elif depth and isinstance(value, list | tuple | dict):
        parts = value.values() if isinstance(value, dict) else value
        for number, part in enumerate(parts):
            for where, tensor in _tensors_in(part, depth - 1):
                yield f"[{number}]{where}", tensor
