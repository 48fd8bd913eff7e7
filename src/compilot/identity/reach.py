"""The code that a model can reach: its classes, and every function and class of the user's that those lead to.

In: classes, functions and modules as they are met (`Units.ref`). Out: a label for each, and after `settle` what each
of them does: its byte code and what it reads (globals, attributes of modules, closures, defaults, base classes, class
attributes), in which others stand by their labels: so circles are no trouble, and one change shows in one place.
Library code is followed no further: it counts by name and by its package's version.
A label is a name without module and file; the second one of the same name is "scale~2", in the order they are met.
Not covered: names that are made up at run time (getattr with computed names, eval), and code that is imported so.
"""

from __future__ import annotations

import enum
import types
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from compilot.identity import origin
from compilot.identity.bytecode import Code, read_code
from compilot.identity.imports import imported_token
from compilot.identity.tokens import joined, text

Read = Callable[[Any, Any, str, Any], bytes]  # owner, key, where, value -> token
# what a class says of itself, or keeps for Python's use: nothing of it decides what its methods do
_ABOUT = frozenset(
    {
        "__module__", "__doc__", "__dict__", "__weakref__", "__qualname__", "__name__", "__slotnames__", "_abc_impl",
        "__annotations__", "__annotate__", "__annotate_func__", "__annotations_cache__", "__abstractmethods__",
        "__firstlineno__", "__static_attributes__", "__orig_bases__", "__parameters__", "__type_params__",
        "__dataclass_fields__", "__dataclass_params__",
    }
)  # fmt: skip
COMPILED = "_compilot_core"  # what only classes of compiled models have, beside the class they were made of
_UNIT = b"unit "
_WRAPPER_ID = "_torchdynamo_wrapper_id"  # an address, which torch notes in functions that it wraps
_PLACE = frozenset(
    {"__file__", "__name__", "__spec__", "__path__", "__package__", "__loader__", "__doc__", "__builtins__"}
)


def own_class(kind: type) -> type:
    """The class itself; of a model in whose place compilot.compile(inplace=True) put another one, that of before."""
    while COMPILED in vars(kind):
        kind = kind.__bases__[-1]
    return kind


class Units:
    """The pieces of code that were met, by label."""

    def __init__(self, read: Read) -> None:
        self.contents: dict[str, bytes] = {}  # the user's, after `settle`
        self.packages: set[str] = set()
        self._read = read
        self._refs: dict[int, bytes] = {}
        self._alive: list[Any] = []
        self._labels: dict[str, int] = {}  # how often a name was given
        self._queue: deque[tuple[str, Any]] = deque()
        self._modules: dict[str, types.ModuleType] = {}  # the user's that are held as values
        self._names: set[str] = set()  # all that is read anywhere: of such modules, what has one of them

    def ref(self, thing: Any) -> bytes:
        """The token that stands for a class, a function or a module."""
        thing = own_class(thing) if isinstance(thing, type) else thing
        found = self._refs.get(id(thing))
        if found is None:
            self._alive.append(thing)
            found = self._refs[id(thing)] = self._library(thing) or self._new(thing)
        return found

    def is_users(self, thing: Any) -> bool:
        """True for what is followed: the user's code, and what libraries made of it at run time."""
        return self.ref(thing).startswith(_UNIT)

    def settle(self) -> None:
        """Follow the code until nothing new turns up."""
        size = -1
        while self._queue or size != len(self._names) + len(self.contents):
            size = len(self._names) + len(self.contents)
            while self._queue:
                label, thing = self._queue.popleft()
                self.contents[label] = self._describe(label, thing)
            for label, module in [*self._modules.items()]:
                self.contents[label] = self._some_of(module, frozenset(self._names))

    def _library(self, thing: Any) -> bytes | None:
        """The name of what a library has under that name."""
        if isinstance(thing, types.ModuleType):
            package, name = origin.library_of_module(thing), thing.__name__
        elif isinstance(thing, type):
            package, name = origin.library_of_class(thing), f"{thing.__module__}.{thing.__qualname__}"
        else:
            package, name = origin.library_of_function(thing), f"{thing.__module__}.{thing.__qualname__}"
        if package is None:
            return None
        self.packages.add(package)
        return joined("library", [text(name)])

    def _new(self, thing: Any) -> bytes:
        is_module = isinstance(thing, types.ModuleType)
        name = "module" if is_module else thing.__qualname__.rpartition("<locals>.")[2]
        number = self._labels[name] = self._labels.get(name, 0) + 1
        label = name if number == 1 else f"{name}~{number}"
        if is_module:
            self._modules[label] = thing
        else:
            self._queue.append((label, thing))
        return _UNIT + text(label)

    def _describe(self, label: str, thing: Any) -> bytes:
        parts = self._class(label, thing) if isinstance(thing, type) else self._function(label, thing)
        return joined("content", parts)

    def _function(self, label: str, function: types.FunctionType) -> Iterator[bytes]:
        code = read_code(function.__code__)
        self._names |= code.names
        yield code.token
        yield self._read(function, "__defaults__", f"the defaults of {label}", function.__defaults__)
        keywords = sorted((function.__kwdefaults__ or {}).items())
        yield joined(
            "keywords",
            [part for name, value in keywords for part in (text(name), self._default(function, name, value))],
        )
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            yield self._cell(f"{name} of {label}", cell)
        for name, value in sorted(vars(function).items()):
            if name == _WRAPPER_ID:
                continue
            yield joined("attribute", [text(name), self._read(vars(function), name, f"{label}.{name}", value)])
        package = origin.library_of_code(function)
        if package is None:
            yield from self._outside(function, code)
        else:
            self.packages.add(package)

    def _default(self, function: types.FunctionType, name: str, value: Any) -> bytes:
        return self._read(function.__kwdefaults__, name, f"the default {name}", value)

    def _cell(self, where: str, cell: types.CellType) -> bytes:
        try:
            value = cell.cell_contents
        except ValueError:
            return b"empty"
        return self._read(cell, "cell_contents", where, value)

    def _outside(self, function: types.FunctionType, code: Code) -> Iterator[bytes]:
        """What a function reads from its module, and from others through it."""
        space = function.__globals__
        for chain in code.reads:
            if chain[0] in space and chain[0] not in _PLACE:
                yield self._global(space, chain, code.names)
        for found in code.imports:
            yield imported_token(found, space.get("__package__") or "", self.packages)

    def _global(self, space: dict[str, Any], chain: tuple[str, ...], names: frozenset[str]) -> bytes:
        """Through the user's modules to what is read there; one that is read as a whole: all that has a name in use."""
        where = f"global {chain[0]}"
        value, rest = space[chain[0]], [*chain[1:]]
        while isinstance(value, types.ModuleType) and origin.library_of_module(value) is None:
            if not rest or rest[0] not in vars(value):
                return self._some_of(value, names)
            space, value, where = vars(value), vars(value)[rest[0]], f"{where}.{rest[0]}"
            chain, rest = (rest[0],), rest[1:]
        return self._read(space, chain[0], where, value)

    def _some_of(self, module: types.ModuleType, names: frozenset[str], seen: frozenset[int] = frozenset()) -> bytes:
        """What a module of the user's has under some names."""
        space, parts = vars(module), []
        for name in sorted(names & space.keys() - _PLACE):
            value = space[name]
            if isinstance(value, types.ModuleType) and origin.library_of_module(value) is None:
                token = b"" if id(value) in seen else self._some_of(value, names, seen | {id(module)})
            else:
                token = self._read(space, name, f"global {name}", value)
            parts += [text(name), token]
        return joined("module", parts)

    def _class(self, label: str, kind: type) -> Iterator[bytes]:
        yield joined("bases", map(self.ref, kind.__bases__))
        yield self.ref(type(kind))
        for name, value in sorted(vars(kind).items()):
            if name not in _ABOUT and not (issubclass(kind, enum.Enum) and _of_enum(kind, name)):
                yield joined("entry", [text(name), self._entry(label, kind, name, value)])

    def _entry(self, label: str, kind: type, name: str, value: Any) -> bytes:
        if isinstance(value, property):
            accessors = (value.fget, value.fset, value.fdel)
            return joined("property", [self._read(value, "fget", f"{label}.{name}", one) for one in accessors])
        if isinstance(value, staticmethod | classmethod):
            return joined(type(value).__name__, [self._read(value, "__func__", f"{label}.{name}", value.__func__)])
        if isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType):
            return b"slot"
        return self._read(vars(kind), name, f"{label}.{name}", value)


def _of_enum(kind: type[enum.Enum], name: str) -> bool:
    """What the enum module adds to an enum's class, besides members and methods."""
    own = name.startswith("_") and not name.startswith("__")
    return own and name.endswith("_") and name != "_missing_"
