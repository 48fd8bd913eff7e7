"""Any value as a token: equal in every process for equal values, and another one when a part of it changed.

In: attributes of a model, and what its code reads. Out: tokens, and what could not be read (`Reader.uncovered`).
Covered: plain values; containers and subclasses of them; objects by their class and state (`__dict__`, `__slots__`, or
what they hand to pickle); functions, methods and partials; tensors and arrays by their values; weights and submodules
of the model by their names. Values that hold themselves are fine. By kind only: loggers and locks, which decide
nothing; absolute paths count by their last part, so that a moved folder is the same model.
Not covered: iterators, open files, and what hides its state in C without a way to pickle it.
"""

from __future__ import annotations

import collections
import contextvars
import ctypes
import enum
import functools
import io
import logging
import pathlib
import re
import threading
import types
import typing
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

from compilot._torch import machinery
from compilot.identity.bytecode import read_code
from compilot.identity.layout import hides_state, members
from compilot.identity.reach import Units
from compilot.identity.tensors import array_token, is_array, tensor_token
from compilot.identity.tokens import SCALARS, joined, text

# what transformers notes in models and configurations: where they came from, and a hash salted by each process
NOTES = frozenset({"name_or_path", "_name_or_path", "_original_object_hash"})
_INERT = (logging.Logger, type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Event,
          threading.Semaphore, contextvars.ContextVar)  # fmt: skip
_NAMED = (torch.dtype, torch.device, torch.memory_format, torch.layout, torch.finfo, torch.iinfo, torch.qscheme)
_RUNNING = (threading.Thread, ctypes.CDLL)
_SYSTEM = frozenset({"socket", "subprocess", "multiprocessing", "concurrent", "asyncio", "ssl", "sqlite3", "mmap"})
_BY_VALUE = (int, float, complex, str, bytes, bytearray)


MAX_DEPTH = 64  # about 450 calls deep, of the 1,000 that Python allows by itself


class Uncovered(NamedTuple):
    """Something that a model holds and that is no part of its fingerprint, since nobody can read it."""

    path: str  # "layer.3.table", "global TABLE", "Block.cache"
    owner: Any  # owner[key] for dicts, lists and tuples; getattr(owner, key) for others; key None: somewhere in a set
    key: Any
    value: Any  # the object itself
    why: str  # in plain words


class Reader:
    """Reads the values of one model."""

    def __init__(self, model: nn.Module, apart: Iterable[tuple[Any, str]] = ()) -> None:
        """apart: owners and names of settings that are read as if they were None; they count elsewhere."""
        self.units = Units(self.part)
        self._apart = {(id(owner), name) for owner, name in apart}
        self.uncovered: list[Uncovered] = []
        self._unread: dict[int, str] = {}  # why, by id
        self._known = _known(model)
        self._storages = _storages(model)
        self._tokens: dict[int, bytes] = {}
        self._alive: list[Any] = []  # what was read, so that no id is given twice
        self._open: dict[int, int] = {}  # what is being read, outermost first
        self._trail: list[tuple[Any, Any, str]] = []

    def part(self, owner: Any, key: Any, where: str, value: Any) -> bytes:
        """The token of a value that lies in another; where: how it is reached from there, for people."""
        plain = SCALARS.get(type(value))
        if plain is not None:
            return plain(value)
        self._trail.append((owner, key, where))
        try:
            return self._token(value)
        finally:
            self._trail.pop()

    def _token(self, value: Any) -> bytes:
        here = id(value)
        done = self._known.get(here) or self._tokens.get(here)
        if done is not None:
            if here in self._unread:  # every place that holds it is noted
                self._note(value, self._unread[here])
            return done
        if here in self._open:  # it holds itself: how far up is all there is to say
            return b"up %d" % (len(self._open) - self._open[here])
        if len(self._open) >= MAX_DEPTH:
            return self._opaque(value, "it is nested too deeply to be read")
        self._open[here] = len(self._open)
        try:
            found = self._read(value)
        except Exception as problem:
            found = self._opaque(value, f"it cannot be read ({type(problem).__name__}: {problem})")
        finally:
            del self._open[here]
        self._alive.append(value)
        self._tokens[here] = found
        return found

    def _opaque(self, value: Any, why: str) -> bytes:
        self._unread[id(value)] = why
        self._note(value, why)
        return joined("unread", [self.units.ref(type(value))])

    def _note(self, value: Any, why: str) -> None:
        owner, key, _ = self._trail[-1]
        path = "".join(where for _, _, where in self._trail).lstrip(".")
        self.uncovered.append(Uncovered(path, owner, key, value, why))

    def _read(self, value: Any) -> bytes:
        kind: Any = type(value)
        read = _reader(kind)
        if read is not None:
            return read(self, value)
        why = _unreadable(kind)
        return self._object(value) if why is None else self._opaque(value, why)

    def _object(self, value: Any) -> bytes:
        """An object by its class, what it is a container of, and its state."""
        kind: Any = type(value)
        content = self._content(value)
        parts = [self.units.ref(kind), *(content or ()), b"", *self._state(value)]
        if content is None and hides_state(kind):
            parts.append(self._pickled(value))
        return joined("object", parts)

    def _content(self, value: Any) -> list[bytes] | None:
        """What a subclass of a plain type or container holds; None: it is neither."""
        kind = type(value)
        for base in _BY_VALUE:
            if issubclass(kind, base):
                return [SCALARS[base](base(value) if base is not str else str.__str__(value))]
        if issubclass(kind, collections.deque):
            return [text(f"maxlen {value.maxlen}"), *self._items(value)]
        if issubclass(kind, list | tuple):
            return self._items(value)
        if issubclass(kind, dict | types.MappingProxyType):
            factory = value.default_factory if issubclass(kind, collections.defaultdict) else None
            return [self.part(value, None, ".default_factory", factory), *self._pairs(value)]
        if issubclass(kind, set | frozenset):
            return sorted(self.part(value, None, "{...}", one) for one in value)
        return None

    def _items(self, value: Iterable[Any]) -> list[bytes]:
        return [self.part(value, number, f"[{number}]", one) for number, one in enumerate(value)]

    def _pairs(self, value: Mapping[Any, Any]) -> list[bytes]:
        """In their order: who goes through a dict meets them so."""
        found = []
        for key, one in value.items():
            where = f"[{key!r}]" if type(key) in SCALARS else "[...]"
            found += [self.part(value, None, ".keys()", key), self.part(value, key, where, one)]
        return found

    def _state(self, value: Any) -> list[bytes]:
        found = []
        for owner, key, one in _state_of(value):
            kept = None if (id(value), key) in self._apart else one
            found += [text(key), self.part(owner, key, f".{key}", kept)]
        return found

    def _pickled(self, value: Any) -> bytes:
        """What an object written in C hands to pickle."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                reduced = value.__reduce_ex__(2)
            except Exception as problem:
                why = f"its state is hidden in compiled code ({type(problem).__name__}: {problem})"
                return self._opaque(value, why)
        if isinstance(reduced, str):
            return text(reduced)
        parts = [[*part] if isinstance(part, Iterator) else part for part in reduced]
        return joined("pickled", self._items(parts))

    def _module(self, value: nn.Module) -> bytes:
        """A module that is no submodule of the model: hidden in a list, say."""
        held = [(vars(value), key, vars(value)[key]) for key in ("_parameters", "_buffers", "_modules")]
        parts = [self.part(owner, key, "", one) for owner, key, one in held]
        return joined("module", [self.units.ref(type(value)), *parts, *self.attributes(value)])

    def attributes(self, module: nn.Module) -> list[bytes]:
        """Names and tokens of what a module holds besides parameters, buffers and submodules."""
        pairs = [(key, self.part(vars(module), key, f".{key}", value)) for key, value in own_attributes(module)]
        return [token for key, value in pairs for token in (text(key), value)]

    def _tensor(self, value: torch.Tensor) -> bytes:
        if value.layout is torch.strided and not value.is_meta and not value.is_nested:
            weight = self._storages.get(value.untyped_storage().data_ptr())
            if weight is not None:  # a view of a weight: which values it has is up to the weight
                place = (value.storage_offset(), tuple(value.shape), value.stride(), value.dtype)
                return joined("view", [text(weight), repr(place).encode()])
        return joined("tensor", [tensor_token(value), self.units.ref(type(value))])

    def _method(self, value: types.MethodType) -> bytes:
        target = self.part(value, "__self__", ".__self__", value.__self__)
        return joined("method", [self.part(value, "__func__", "", value.__func__), target])

    def _builtin(self, value: Any) -> bytes:
        owner = getattr(value, "__self__", None)
        if owner is not None and not isinstance(owner, types.ModuleType):
            return joined("method", [text(value.__name__), self.part(value, "__self__", ".__self__", owner)])
        return joined("builtin", [text(f"{value.__module__}.{value.__qualname__}")])

    def _slot(self, value: Any) -> bytes:
        return joined("slot", [text(value.__name__), self.units.ref(value.__objclass__)])

    def _partial(self, value: functools.partial[Any]) -> bytes:
        parts = [self.part(value, "func", "", value.func), joined("args", self._items(value.args))]
        for space in (value.keywords, vars(value)):
            parts.append(joined("keywords", self._sorted(space)))
        return joined("partial", parts)

    def _sorted(self, space: Mapping[str, Any]) -> list[bytes]:
        """By name, where their order says nothing."""
        found = [(name, self.part(space, name, f".{name}", space[name])) for name in sorted(space)]
        return [token for name, value in found for token in (text(name), value)]

    def _cached(self, value: Any) -> bytes:
        return joined("cached", [self.part(value, "__wrapped__", "", value.__wrapped__)])

    def _weak(self, value: Any) -> bytes:
        return joined("weak", [self.part(value, None, "()", value())])

    def _enum(self, value: enum.Enum) -> bytes:
        return joined("enum", [self.units.ref(type(value)), text(str(value._name_)), self._value_of(value)])

    def _value_of(self, member: enum.Enum) -> bytes:
        return self.part(member, "_value_", "", member._value_)

    def _path(self, value: pathlib.PurePath) -> bytes:
        return joined("path", [text(value.name if value.is_absolute() else value.as_posix())])

    def _generator(self, value: torch.Generator) -> bytes:
        return joined("generator", [text(str(value.device)), tensor_token(value.get_state())])

    def _operator(self, value: Any) -> bytes:
        return joined("operator", [self.part(value, "_init_fn", "", machinery.custom_function(value))])

    def _pattern(self, value: re.Pattern[Any]) -> bytes:
        return joined("pattern", self._items([value.pattern, value.flags]))

    def _array(self, value: Any) -> bytes:
        token = array_token(value, functools.partial(self.part, value, None, "[...]"))
        return joined("array", [token, self.units.ref(type(value)), *self._state(value)])

    def _script(self, value: Any) -> bytes:
        held = (
            [] if isinstance(value, torch.jit.ScriptFunction) else [*value.named_parameters(), *value.named_buffers()]
        )
        weights = [self.part(value, name, f".{name}", tensor) for name, tensor in held]
        return joined("script", [text(getattr(value, "code", "")), text(type(value).__name__), *weights])

    def _memory(self, value: memoryview) -> bytes:
        return joined("memory", [text(value.format), value.tobytes()])

    def _by_name(self, value: Any) -> bytes:
        return joined("named", [text(type(value).__name__), text(str(value))])

    def _by_kind(self, value: Any) -> bytes:
        return joined("kind", [text(type(value).__name__)])

    def _code(self, value: types.CodeType) -> bytes:
        return read_code(value).token

    def _span(self, value: slice) -> bytes:
        return joined("slice", self._items([value.start, value.stop, value.step]))

    def _plain_tuple(self, value: tuple[Any, ...]) -> bytes:
        return joined("tuple", self._items(value)) if type(value) is tuple else self._object(value)

    def _unit(self, value: Any) -> bytes:
        return self.units.ref(value)


def own_attributes(module: nn.Module) -> list[tuple[str, Any]]:
    """What a module holds besides parameters, buffers and submodules: its attributes, and hooks where there are any."""
    if isinstance(module, torch.jit.ScriptModule):
        return [("code", getattr(module, "code", "")), ("training", module.training)]
    own = [(key, value) for key, value in vars(module).items() if key not in _INTERNALS and key not in NOTES]
    if isinstance(module, torch.fx.GraphModule):
        own = [(key, value) for key, value in own if key != "meta"]  # notes of torch; the code is the class's
    hooks = [(key, value) for key, value in vars(module).items() if key.endswith("_hooks") and key in _INTERNALS]
    own += [(key, [*value.values()]) for key, value in hooks if value]
    return sorted(own, key=lambda pair: pair[0])


def _state_of(value: Any) -> Iterator[tuple[Any, str, Any]]:
    """Where the parts of an object lie, what they are called, and what they are."""
    space = getattr(value, "__dict__", None)
    if type(space) is dict:
        for key in sorted(space, key=str):
            if key not in NOTES:
                yield space, str(key), space[key]
    for name, one in members(value):
        yield value, name, one


def settings_of(value: Any) -> list[tuple[str, Any]]:
    """The plain values that an object holds by name, as a configuration does; none of what is no such object."""
    kind: Any = type(value)
    if kind in SCALARS or _reader(kind) is not None or _unreadable(kind) is not None:
        return []
    try:
        return [(key, one) for _, key, one in _state_of(value) if type(one) in SCALARS]
    except Exception:  # whatever an odd object does when it is looked at; it is noted where it is read
        return []


def _known(model: nn.Module) -> dict[int, bytes]:
    """Submodules and weights: wherever else they are held, their name says which one it is."""
    found: dict[int, bytes] = {}
    for name, module in model.named_modules():
        found[id(module)] = joined("submodule", [text(name)])
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        found.setdefault(id(tensor), joined("weight", [text(name)]))
    return found


def _storages(model: nn.Module) -> dict[int, str]:
    found: dict[int, str] = {}
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.layout is torch.strided and not tensor.is_meta and tensor.numel() and not tensor.is_nested:
            found.setdefault(tensor.untyped_storage().data_ptr(), name)
    return found


@functools.lru_cache(maxsize=4096)
def _reader(kind: type) -> Callable[[Reader, Any], bytes] | None:
    """How values of a class are read; None: as objects, if at all."""
    if is_array(kind):
        return Reader._array
    if machinery.is_operator(kind):
        return Reader._by_name
    if machinery.is_custom(kind):
        return Reader._operator
    if machinery.is_machinery(kind) and not issubclass(kind, nn.Module):
        return Reader._by_kind
    return next((read for kinds, read in _READERS if issubclass(kind, kinds)), None)


def _unreadable(kind: type) -> str | None:
    """Why there is no point in reading an object of that class; None: there is."""
    if issubclass(kind, io.IOBase):
        return "it is an open file"
    if any(base.__module__.partition(".")[0] in _SYSTEM for base in kind.__mro__) or issubclass(kind, _RUNNING):
        return "it stands for something outside of Python: a thread, a process, a connection or a C library"
    if hasattr(kind, "__next__"):
        return "it is an iterator, whose position nobody can read"
    return None


# of every nn.Module: parameters and buffers are counted apart, the others change with use, not with the model
_INTERNALS = frozenset(vars(nn.Module())) - {"training"}
_Kinds = type | tuple[type, ...]
# the first that fits; what fits none is an object, or a container by what it holds
_READERS: tuple[tuple[_Kinds, Callable[[Reader, Any], bytes]], ...] = (
    ((types.FunctionType, type, types.ModuleType), Reader._unit),
    (torch.Tensor, Reader._tensor),
    ((torch.jit.ScriptModule, torch.jit.ScriptFunction), Reader._script),
    (nn.Module, Reader._module),
    (enum.Enum, Reader._enum),
    (tuple, Reader._plain_tuple),
    (_NAMED, Reader._by_name),
    (_INERT, Reader._by_kind),
    (types.MethodType, Reader._method),
    (functools.partial, Reader._partial),
    (functools._lru_cache_wrapper, Reader._cached),
    ((types.BuiltinFunctionType, types.MethodWrapperType), Reader._builtin),
    ((types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType), Reader._slot),
    ((types.GetSetDescriptorType, types.MemberDescriptorType), Reader._slot),
    (weakref.ref, Reader._weak),
    (pathlib.PurePath, Reader._path),
    (re.Pattern, Reader._pattern),
    (torch.Generator, Reader._generator),
    (memoryview, Reader._memory),
    (types.CodeType, Reader._code),
    (slice, Reader._span),
    ((types.GenericAlias, types.UnionType, typing.TypeVar), Reader._by_kind),
)
