"""Code and structure that were baked into a callable: notice when the model is not built as it was.

In: a model. Out: `CodeWatch`, for engines that follow nothing of it by themselves, and `MethodWatch`, for
torch.compile, whose own guards see everything but a method that was replaced in a class. Covered: submodules,
parameters and buffers by identity, train and eval of submodules, attributes of every kind, classes and what they define
(attributes.py). Not covered: the values of weights (weight_watch.py), hooks (gate.py), globals of the user's modules.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from operator import is_, itemgetter, methodcaller
from types import FunctionType
from typing import Any, Protocol

from torch import nn

from compilot._torch import dicts
from compilot.modules.attributes import Attributes

_VALUES, _TRAINING = methodcaller("values"), itemgetter("training")
_METHODS = (FunctionType, staticmethod, classmethod, property)


class Watch(Protocol):
    """What the gate needs of everything that watches a model."""

    def begin(self) -> None: ...

    def glance(self) -> bool:
        """A change of what is looked at in every call."""
        ...

    def changed(self) -> bool:
        """A full look."""
        ...

    def changed_elsewhere(self) -> bool:
        """A full look without what has a turn of its own between two of them."""
        ...

    def running(self, run: Callable[[], Any]) -> Any: ...

    def which(self) -> list[str]: ...


class CodeWatch:
    """How a model is built, at one moment."""

    def __init__(self, model: nn.Module, left_out: Iterable[tuple[Any, str]] = ()) -> None:
        """left_out: owners and names of attributes that may change."""
        self.attributes = Attributes([*model.modules()], left_out)
        self.modules = self.attributes.modules
        self.owners = [owner for m in self.modules for owner in (m._parameters, m._buffers, m._modules) if owner]
        self._submodules = [m._modules for m in self.modules if m._modules]
        self._states = [m.__dict__ for m in self.modules]
        self._kept = self._owned_now()  # objects stay alive, so that no id is given twice
        self._children = self._children_now()
        self._modes = self._modes_now()
        self._count_writes()

    def _count_writes(self) -> None:
        self._watched_dicts = self.attributes.dicts
        distinct = {id(one): one for one in (*self._states, *self.owners, *self._watched_dicts)}
        self._writes = dicts.writes([*distinct.values()])
        self._written: list[int] | None = None  # up to where the dicts are known to hold what they held

    def _owned_now(self) -> list[Any]:
        return [*itertools.chain.from_iterable(map(_VALUES, self.owners))]

    def _children_now(self) -> list[Any]:
        return [*itertools.chain.from_iterable(map(_VALUES, self._submodules))]

    def _modes_now(self) -> list[bool]:
        return [*map(_TRAINING, self._states)]

    def begin(self) -> None:
        """Nothing tells of such changes: they are looked for."""

    def glance(self) -> bool:
        """What every call must see is part of the hot path's own checks."""
        return False

    def changed(self) -> bool:
        """True when any module, parameter, buffer, attribute or method is not the one it was; all unless written to."""
        if self._watched_dicts is not self.attributes.dicts:  # attributes were forgiven: others are left to count
            self._count_writes()
        written = None if self._writes is None else self._writes()
        if written is not None and written == self._written:
            return self.attributes.changed_inside()
        if not _are_same(self._owned_now(), self._kept) or self._rebuilt():
            return True
        self._written = written
        return False

    changed_elsewhere = changed

    def rebuilt(self) -> bool:
        """The same without the identity of parameters and buffers, whose values may be compared instead."""
        return self._rebuilt()

    def _rebuilt(self) -> bool:
        same = _are_same(self._children_now(), self._children) and not self._modes_changed()
        return not same or self.attributes.changed()

    def _modes_changed(self) -> bool:
        """Submodules that were switched on their own; the guard sees when the model as a whole is."""
        now = self._modes_now()
        return now != self._modes and now[0] == self._modes[0]

    def running(self, run: Callable[[], Any]) -> Any:
        """Run the model itself; attributes that it changes by that are not watched any more."""
        before = self.attributes.look()
        try:
            return run()
        finally:
            self.attributes.forgive(before)

    def which(self) -> list[str]:
        """The names of attributes and methods that are not what they were."""
        return self.attributes.which()


class MethodWatch:
    """The methods of a model's classes, at one moment."""

    def __init__(self, model: nn.Module) -> None:
        kinds = {kind: None for module in model.modules() for kind in type(module).__mro__}
        self._classes = [kind for kind in kinds if kind not in (object, nn.Module)]
        self._methods = self._methods_now()
        held = [dicts.of_class(kind) for kind in self._classes]
        self._writes = dicts.writes([one for one in held if one is not None]) if None not in held else None
        self._written: list[int] | None = None

    def _methods_now(self) -> list[dict[str, Any]]:
        return [{k: v for k, v in [*vars(kind).items()] if isinstance(v, _METHODS)} for kind in self._classes]

    def begin(self) -> None:
        """Nothing tells of such changes: they are looked for."""

    def glance(self) -> bool:
        """torch.compile's own guards see the model's forward and class in every call."""
        return False

    def changed(self) -> bool:
        """True when a class has another method than it had."""
        written = None if self._writes is None else self._writes()
        if written is not None and written == self._written:
            return False
        if self._differing():
            return True
        self._written = written
        return False

    changed_elsewhere = changed

    def running(self, run: Callable[[], Any]) -> Any:
        """Run the model itself."""
        return run()

    def which(self) -> list[str]:
        """The names of methods that are not what they were."""
        return sorted({*self._differing()})

    def _differing(self) -> list[str]:
        rows = zip(self._methods, self._methods_now(), strict=True)
        return [key for old, new in rows for key in old.keys() | new.keys() if old.get(key) is not new.get(key)]


def _are_same(now: list[Any], then: list[Any]) -> bool:
    return len(now) == len(then) and all(map(is_, now, then))
