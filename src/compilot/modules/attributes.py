"""What a model holds besides parameters, buffers and submodules: the attributes and the code of its modules.

In: a model, or its modules. Out: `attribute_tensors`, for digests; `Attributes`, which says whether anything that the
modules reach through attributes is not what it was: values of every kind that contents.py reads, the classes with all
they define, modules that are hidden in lists and objects, new attributes. What bakes weights in bakes these in as well.
Each object is looked at once, however many hold it, and what holds nothing but a dict only when it was written to.
Not covered: more than 10,000 objects (the rest counts by identity), globals; an attribute or container that running the
model itself changes (a cache made at the first call) is left out once that was seen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from operator import attrgetter, is_
from types import CellType, FunctionType, MethodType
from typing import Any, NamedTuple

import torch
from torch import nn

from compilot.modules.contents import (
    Parts,
    Reader,
    dict_of,
    means_what_it_holds,
    own_attributes,
    parts_of,
    plain_key,
    tensors_in,
)

MAX_OBJECTS = 10_000  # a model that holds its data set is still watched quickly
_GONE = object()
_COLLECTIONS = frozenset({list, set, deque})
_STEADY = _COLLECTIONS | {  # hold for life what they hold, or are looked at in a way of their own
    *(tuple, frozenset, partial, staticmethod, classmethod, property, MethodType, FunctionType, CellType)
}
_CODE, _DEFAULTS, _KEYWORDS = map(attrgetter, ("__code__", "__defaults__", "__kwdefaults__"))
_CONTENTS, _BASES = attrgetter("cell_contents"), attrgetter("__bases__")
Keys = dict[Any, Any]  # by name of a part: what it is compared by, of a plain one its value, of any other its id


def attribute_tensors(model: nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Tensors that are plain attributes, by name; such as are parameters or buffers as well are left out."""
    known = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
    return [
        (f"{path}.{key}{where}", tensor)
        for path, module in model.named_modules()
        for key, value in own_attributes(module).items()
        for where, tensor in tensors_in(value)
        if id(tensor) not in known
    ]


class _Held(NamedTuple):
    """One object, and what it held when it was first looked at."""

    value: Any  # kept alive, so that no id is given twice
    read: Reader
    keys: Keys
    left_out: frozenset[Any]  # names that are not looked at: the model itself changes them
    parts: Parts  # kept alive as well

    def now(self) -> Keys:
        found = {name: _key(part) for name, part in self.read(self.value).items()}
        return {name: key for name, key in found.items() if name not in self.left_out} if self.left_out else found

    @property
    def has_names(self) -> bool:
        """Whether its parts can be left out one by one: modules, classes and objects; a container counts as a whole."""
        return "__class__" in self.keys or "__bases__" in self.keys


Graph = dict[int, _Held]
Look = dict[int, Keys]


class _Swift(NamedTuple):
    """What is looked at without a reader of its own: that would run code that is in no cache when its time comes."""

    functions: list[Any]
    cells: list[Any]  # of closures
    classes: list[Any]
    objects: list[Any]  # all they hold is in their dicts, but for their class
    collections: list[Any]  # lists, sets and deques


class _State(NamedTuple):
    """All that was reached, and what is read of it where no write can be counted."""

    graph: Graph
    swift: _Swift
    facts: list[Any]
    sizes: list[int]  # of the collections
    others: list[_Held]


class Attributes:
    """The attributes of some modules, and all that is reached through them, at one moment."""

    def __init__(self, modules: Sequence[nn.Module], left_out: Iterable[tuple[Any, str]] = ()) -> None:
        """left_out: owners and names of attributes that may change."""
        self.modules = list(modules)  # and those that are hidden in attributes
        self.tensors: list[torch.Tensor] = []
        graph = _reach(self.modules, self.tensors)
        for owner, name in left_out:
            if id(owner) in graph:
                graph[id(owner)] = _blind_to({name}, graph[id(owner)])
        self._adopt(graph)

    def _adopt(self, graph: Graph) -> None:
        """Exchanged as a whole: another thread may be looking."""
        holders = {number: dict_of(held.value) for number, held in graph.items()}
        self.dicts = [one for one in holders.values() if one is not None]  # a write to one of these can be counted
        owned = [graph[n].value for n, one in holders.items() if one is not None and type(graph[n].value) is not dict]
        values = [held.value for held in graph.values()]
        swift = _Swift(
            [value for value in values if type(value) is FunctionType],
            [held.value for held in graph.values() if type(held.value) is CellType and held.keys],  # not the empty ones
            [value for value in owned if isinstance(value, type)],
            [value for value in owned if not isinstance(value, type)],
            [value for value in values if type(value) in _COLLECTIONS],
        )
        others = [h for n, h in graph.items() if holders[n] is None and type(h.value) not in _STEADY]
        self._state = _State(graph, swift, _facts(swift), [*map(len, swift.collections)], others)

    def changed(self) -> bool:
        """True when anything is not what it was, or there is a new attribute."""
        return any(True for _ in self._differing())

    def changed_inside(self) -> bool:
        """The same for what can change without a write to a dict: lists, arrays, slots, the code of functions."""
        state = self._state
        try:
            same = [*map(len, state.swift.collections)] == state.sizes
            same = same and all(map(is_, _facts(state.swift), state.facts))
        except (ValueError, RuntimeError):  # a closure's cell was emptied; another thread writes to a set
            same = False
        return not (same and all(held.now() == held.keys for held in state.others)) and self.changed()

    def which(self) -> list[str]:
        """The names of attributes that are not what they were."""
        return sorted({str(name) for name in self._differing()})

    def _differing(self) -> Iterator[Any]:
        graph = self._state.graph
        for held in [*graph.values()]:
            now = held.now()
            if now != held.keys:
                yield from _names_of_changes(held, now, graph)

    def look(self) -> Look:
        """Everything as it is now, for `forgive`."""
        return {number: held.now() for number, held in self._state.graph.items()}

    def forgive(self, before: Look) -> None:
        """What is not as it was before, when only the model itself ran since, is of its own making: watched no more."""
        graph, now = self._state.graph, self.look()
        own = [number for number, keys in now.items() if keys != before.get(number, keys)]
        if own:
            kept = {n: _without(graph[n], before[n], now[n]) for n in own if graph[n].has_names}
            self._adopt({n: kept.get(n, held) for n, held in graph.items() if n in kept or n not in own})


def _reach(modules: list[nn.Module], tensors: list[torch.Tensor]) -> Graph:
    """Every object that the modules reach; modules and tensors that are met on the way are added to the lists."""
    graph: Graph = {}
    known = {*map(id, modules)}
    waiting: list[Any] = list(reversed(modules))
    while waiting:
        value = waiting.pop()
        if isinstance(value, nn.Module) and id(value) not in known:
            hidden = [module for module in value.modules() if id(module) not in known]
            modules += hidden
            known.update(map(id, hidden))
            waiting += hidden
        if isinstance(value, torch.Tensor):
            tensors.append(value)
        elif id(value) not in graph and len(graph) < MAX_OBJECTS and (read := parts_of(value)) is not None:
            parts = read(value)
            keys = {name: _key(part) for name, part in parts.items()}
            graph[id(value)] = _Held(value, read, keys, frozenset(), parts)
            waiting += [part for name, part in parts.items() if type(keys[name]) is int]
    return graph


def _key(part: Any) -> Any:
    return plain_key(part) or id(part)


def _facts(swift: _Swift) -> list[Any]:
    """What can change of these without a write to a dict; compared by identity."""
    functions = swift.functions
    code = (*map(_CODE, functions), *map(_DEFAULTS, functions), *map(_KEYWORDS, functions))
    kinds = (*map(_BASES, swift.classes), *map(type, swift.objects))
    return [*code, *map(_CONTENTS, swift.cells), *kinds, *chain.from_iterable(swift.collections)]


def _names_of_changes(held: _Held, now: Keys, graph: Graph) -> Iterator[Any]:
    parts = held.read(held.value)
    for name, key in held.keys.items():
        if name not in now or (now[name] != key and not _is_as_good(key, parts.get(name, _GONE), graph, set())):
            yield name
    for name in now.keys() - held.keys.keys():
        if not held.has_names or _counts_as_new(held.value, name, parts.get(name)):
            yield name


def _is_as_good(old: Any, value: Any, graph: Graph, seen: set[tuple[int, int]]) -> bool:
    """Whether another object holds what the old one held when it was first looked at."""
    if old == _key(value) or (type(old) is int and (old, id(value)) in seen):
        return True
    held = graph.get(old) if type(old) is int else None
    if held is None or type(held.value) is not type(value) or not means_what_it_holds(value):
        return False
    seen.add((old, id(value)))
    read = parts_of(value)
    parts = {} if read is None else read(value)
    if read is None or parts.keys() != held.keys.keys():
        return False
    return all(_is_as_good(key, parts[name], graph, seen) for name, key in held.keys.items())


def _counts_as_new(owner: Any, name: Any, value: Any) -> bool:
    """A new attribute: code asks for it only where it hides what the class has, or where it may be there or not."""
    if isinstance(owner, type):
        return True
    if isinstance(name, str) and name.startswith("_"):
        return False
    covers = isinstance(name, str) and hasattr(type(owner), name)
    return covers or callable(value) or plain_key(value) is not None or next(tensors_in(value), None) is not None


def _without(held: _Held, before: Keys, now: Keys) -> _Held:
    """The same without the names whose parts the model has changed."""
    own = {name for name in before.keys() | now.keys() if before.get(name, _GONE) != now.get(name, _GONE)}
    return _blind_to(own, held)


def _blind_to(names: set[Any], held: _Held) -> _Held:
    keys = {name: key for name, key in held.keys.items() if name not in names}
    return held._replace(keys=keys, left_out=held.left_out | names)
