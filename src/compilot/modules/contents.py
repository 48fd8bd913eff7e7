"""What one value holds: its parts, so that a change inside of it can be told.

In: a value that a module, a class or another value holds. Out: `parts_of`, a function that gives its parts by name, or
None for a value that counts by identity alone; `plain_key`, by which plain values are compared. Covered: lists, tuples,
dicts, sets and deques up to 10,000 items; partials, bound methods, functions of the user's code (byte code, defaults,
closure), static and class methods, properties; numpy arrays by a digest; namespaces, dataclasses and other objects with
`__dict__` or `__slots__`; classes by all they define. By identity: objects and functions of torch, numpy and Python's
own library, whose code goes by version; larger containers. Not covered: globals, and what C code keeps to itself.
"""

from __future__ import annotations

import array
import collections.abc
import enum
import functools
import hashlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from compilot._torch import dicts

Parts = dict[Any, Any]
Reader = Callable[[Any], Parts]

MAX_ITEMS = 10_000  # of one container; larger ones are data: reading them would take longer than most calls
_OF_EVERY_MODULE = frozenset(vars(nn.Module()))
_PLAIN = frozenset({bool, int, str, bytes, type(None), type(...), torch.dtype, torch.device, torch.Size, range, slice})
_FLOATS = frozenset({float, complex})
_PYTHONS_OWN = frozenset(sys.stdlib_module_names)
_LIBRARIES = _PYTHONS_OWN | {"torch", "numpy"}
_HOLDERS = (types.SimpleNamespace, collections.UserDict, collections.UserList)  # Python's own, no more than they hold
_NOT_CODE = frozenset(  # of a class: written by Python itself, some of it later (pickling, abc, typing)
    {
        *("__doc__", "__module__", "__qualname__", "__dict__", "__weakref__", "__slotnames__", "__parameters__"),
        *("__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__", "__abstractmethods__"),
        *("_abc_impl", "__orig_bases__", "__firstlineno__", "__static_attributes__", "__type_params__"),
        *("__match_args__", "__dataclass_fields__", "__dataclass_params__"),
    }
)
_DESCRIPTORS = frozenset({staticmethod, classmethod, property, tuple})  # and the tuple of the bases
_BUFFERS = frozenset({bytearray, array.array})
_ROOTS = frozenset({object, nn.Module})


def plain_key(value: Any) -> tuple[Any, ...] | None:
    """Something that is equal for plain values that mean the same; None: the value is not plain."""
    kind = type(value)
    if kind in _PLAIN:
        return kind, value
    if kind in _FLOATS or isinstance(value, np.generic):
        return kind, repr(value)  # NaN is itself, and -0.0 is not 0.0
    return None


def parts_of(value: Any) -> Reader | None:
    """The function that reads the value's parts; None: it counts by identity."""
    kind = type(value)
    if kind in _BY_TYPE:
        return _BY_TYPE[kind] if _is_readable(value) else None
    if isinstance(value, nn.Module):
        return _module
    if isinstance(value, type):
        return None if value in _ROOTS or issubclass(value, enum.Enum) else _class_reader(value)
    if isinstance(value, np.ndarray):
        return _array
    return _of_object(value)


def dict_of(value: Any) -> dict[Any, Any] | None:
    """The dict in which all of the value's parts are, besides its class and bases; None: there is more to it."""
    if type(value) is dict:
        return value
    if isinstance(value, type):
        return dicts.of_class(value)
    plain = isinstance(value, nn.Module) or parts_of(value) is _object
    state = getattr(value, "__dict__", None) if plain and not _slots(type(value)) else None
    return state if type(state) is dict else None


def means_what_it_holds(value: Any) -> bool:
    """Whether another value of the same kind with the same parts is as good: true of containers, not of objects."""
    return type(value) in _BY_TYPE or isinstance(value, np.ndarray)


def _is_readable(value: Any) -> bool:
    if isinstance(value, types.FunctionType):
        return not _comes_from(value, _LIBRARIES)
    return not isinstance(value, collections.abc.Collection) or type(value) in _BUFFERS or len(value) <= MAX_ITEMS


def _of_object(value: Any) -> Reader | None:
    """How an object of some class is read: what it holds as a container, and its attributes."""
    kind = type(value)
    if isinstance(value, torch.Tensor | enum.Enum | types.ModuleType):
        return None
    base = next((reader for container, reader in _CONTAINERS if isinstance(value, container)), None)
    if base is not None:
        return (lambda held: {**base(held), **_object(held)}) if _is_readable(value) else None
    if _comes_from(kind, _PYTHONS_OWN) and not isinstance(value, _HOLDERS):
        return None
    return _object if hasattr(value, "__dict__") or _slots(kind) else None


def _comes_from(value: Any, packages: frozenset[str]) -> bool:
    module = getattr(value, "__module__", None)
    return not isinstance(module, str) or module.partition(".")[0] in packages


def own_attributes(module: nn.Module) -> Parts:
    """What a module holds besides parameters, buffers, submodules and hooks."""
    return {key: value for key, value in [*vars(module).items()] if key not in _OF_EVERY_MODULE}


def _module(module: nn.Module) -> Parts:
    return {"__class__": type(module), **own_attributes(module)}


def _class(kind: type) -> Parts:
    own = {key: value for key, value in [*vars(kind).items()] if key not in _NOT_CODE}
    return {**own, "__bases__": kind.__bases__}


def _class_reader(kind: type) -> Reader:
    """Of a library's class the methods count, and no tables: they go by its version."""
    return _methods if _comes_from(kind, _LIBRARIES) else _class


def _methods(kind: type) -> Parts:
    return {name: part for name, part in _class(kind).items() if callable(part) or type(part) in _DESCRIPTORS}


def _object(value: Any) -> Parts:
    own = {} if (state := getattr(value, "__dict__", None)) is None else dict(state)
    for name in _slots(type(value)):
        if name not in own and hasattr(value, name):
            own[name] = getattr(value, name)
    return {**own, "__class__": type(value)}


def _slots(kind: type) -> tuple[str, ...]:
    """Slots as members of the classes, so that private ones have the name they are found by."""
    found = (key for base in kind.__mro__ for key, value in vars(base).items() if _is_slot(value))
    return tuple(key for key in found if key not in ("__dict__", "__weakref__"))


def _is_slot(value: Any) -> bool:
    return isinstance(value, types.MemberDescriptorType)


def _array(value: np.ndarray[Any, Any]) -> Parts:
    if value.dtype.hasobject:
        return {"kind": str(value.shape), **dict(enumerate(value.ravel().tolist()))}
    return {"kind": f"{value.shape} {value.dtype}", "digest": hashlib.sha256(value.tobytes()).digest()}


def _buffer(value: Any) -> Parts:
    return {"digest": hashlib.sha256(value).digest()}


def _set(value: Any) -> Parts:
    return {plain_key(item) or id(item): item for item in [*value]}


def _sequence(value: Any) -> Parts:
    return dict(enumerate([*value]))


def _partial(value: functools.partial[Any]) -> Parts:
    return {"func": value.func, "args": value.args, "keywords": value.keywords}


def _method(value: types.MethodType) -> Parts:
    return {"function": value.__func__, "of": value.__self__}


def _function(value: types.FunctionType) -> Parts:
    found = {"code": value.__code__, "defaults": value.__defaults__, "keywords": value.__kwdefaults__}
    return found | {f"closure {number}": cell for number, cell in enumerate(value.__closure__ or ())}


def _cell(value: types.CellType) -> Parts:
    try:
        return {"cell": value.cell_contents}
    except ValueError:  # empty
        return {}


def _wrapped(value: Any) -> Parts:
    return {"function": value.__func__}


def _property(value: property) -> Parts:
    return {"get": value.fget}


_CONTAINERS: tuple[tuple[type, Reader], ...] = (
    (dict, dict),
    (list, _sequence),
    (tuple, _sequence),
    (collections.deque, _sequence),
    (set, _set),
    (frozenset, _set),
)
_BY_TYPE: dict[type, Reader] = {
    **dict(_CONTAINERS),
    collections.OrderedDict: dict,
    collections.defaultdict: dict,
    functools.partial: _partial,
    types.MethodType: _method,
    types.FunctionType: _function,
    types.CellType: _cell,
    bytearray: _buffer,
    array.array: _buffer,
    staticmethod: _wrapped,
    classmethod: _wrapped,
    property: _property,
}


def tensors_in(value: Any, depth: int = 4) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors in lists, tuples and dicts, with their place; deeper than four containers there is data, not settings."""
    if isinstance(value, torch.Tensor):
        yield "", value
    elif depth and isinstance(value, list | tuple | dict):
        parts = value.values() if isinstance(value, dict) else value
        for number, part in enumerate(parts):
            for where, tensor in tensors_in(part, depth - 1):
                yield f"[{number}]{where}", tensor
