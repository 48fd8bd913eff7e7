"""Records with made-up values, built from their types. In: a type or a function. Out: a value of that type.

Covered: structs, named tuples, typed dictionaries, collections with one element, unions (what is set rather than
None), enums, and names that a module imports for type checkers only. So every field that a reader may ask for is there,
and no other. Not covered: values that make sense together.
"""

from __future__ import annotations

import ast
import enum
import functools
import inspect
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

import msgspec

PLAIN: dict[Any, Any] = {str: "text", int: 1, float: 1.0, bool: True, bytes: b"", Path: Path("file"), Any: "text"}


@functools.cache
def names_of(module: types.ModuleType) -> dict[str, Any]:
    """What the module's annotations may name, imports below `if TYPE_CHECKING` included."""
    names = dict(vars(module))
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            exec(compile(ast.Module(node.body, []), module.__name__, "exec"), names)
    return names


@functools.cache
def returned_by(function: Callable[..., Any]) -> Any:
    """A value of the type that the function says it returns."""
    said = function.__annotations__["return"]
    return sample(eval(said, names_of(sys.modules[function.__module__])) if isinstance(said, str) else said)


def sample(kind: Any, above: tuple[Any, ...] = ()) -> Any:
    """A value of this type; a type that holds itself ends at its first repetition."""
    if kind is None:
        return None
    if kind in PLAIN:
        return PLAIN[kind]
    origin, args = get_origin(kind), get_args(kind)
    if origin is Literal:
        return args[0]
    if origin in (Union, types.UnionType):
        known = [one for one in args if one is not types.NoneType and one not in above]
        return sample(known[0], above) if known else None
    if origin is not None:
        return collection(origin, args, above)
    if issubclass(kind, enum.Enum):
        return next(reversed(kind))  # the first is mostly the good case, where pages have nothing to look at
    return record(kind, above)


def collection(origin: Any, args: tuple[Any, ...], above: tuple[Any, ...]) -> Any:
    """One element, or as many as a tuple of fixed length has."""
    if issubclass(origin, Mapping):
        return {sample(args[0], above): sample(args[1], above)}
    if origin is tuple and Ellipsis not in args:
        return tuple(sample(one, above) for one in args)
    made = [] if args[0] in above else [sample(args[0], above)]
    return made if origin in (list, Sequence) else origin(made)


def record(kind: Any, above: tuple[Any, ...]) -> Any:
    """A struct, a named tuple or a typed dictionary, every field of it set."""
    if not (issubclass(kind, (msgspec.Struct, tuple)) or is_typeddict(kind)):
        raise TypeError(f"no sample of {kind!r} can be made")
    homes = [sys.modules[base.__module__] for base in reversed(kind.__mro__) if base.__module__.startswith("compilot")]
    hints = get_type_hints(kind, {name: value for home in homes for name, value in names_of(home).items()})
    fields = getattr(kind, "__struct_fields__", hints)  # without what belongs to the class
    return kind(**{name: sample(hints[name], (*above, kind)) for name in fields})
