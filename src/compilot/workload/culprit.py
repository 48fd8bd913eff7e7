"""Which part of a live object cannot be pickled?

In: an object that pickling refused. Out: the path of the innermost part that is to blame, and what it is:
"model.encoder._lock (a _thread.lock)".
Covered: modules, attributes, containers, what functions refer to.
Not covered: parts that a __reduce__ of their own makes up; then the owner is named.
"""

from __future__ import annotations

import inspect
import io
import types
from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from compilot.workload.weights import WeightsPickler, WeightsWriter

_MAX_DEPTH = 40  # deeper nesting than any model's; guards against objects that make up new parts for ever


def find_culprit(value: Any, path: str) -> str:
    """The path and type of the innermost part that cannot be pickled."""
    seen: set[int] = set()
    for _ in range(_MAX_DEPTH):
        seen.add(id(value))
        bad = next(((p, v) for p, v in _parts(value, path) if id(v) not in seen and not can_pickle(v)), None)
        if bad is None:
            break
        path, value = bad
    return f"{path} (a {_type_name(value)})"


def can_pickle(value: Any) -> bool:
    """Would shipping this work? Nothing is written."""
    try:
        WeightsPickler(io.BytesIO(), WeightsWriter(None)).dump(value)
    except Exception:
        return False
    return True


def _type_name(value: Any) -> str:
    kind = type(value)
    return (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )


def _parts(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((f"{path}[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"{path}[{i}]", part) for i, part in enumerate(value))
    elif isinstance(value, types.MethodType):
        yield f"{path}.__self__", value.__self__
        yield f"{path}.__func__", value.__func__
    elif isinstance(value, types.FunctionType):
        yield from _function_parts(value, path)
    else:
        yield from _attributes(value, path)


def _function_parts(function: types.FunctionType, path: str) -> Iterator[tuple[str, Any]]:
    variables = inspect.getclosurevars(function)
    for names in (variables.nonlocals, variables.globals):
        yield from ((f"{path}: variable '{name}'", part) for name, part in names.items())
    yield from ((f"{path}: default {i}", part) for i, part in enumerate(function.__defaults__ or ()))


def _attributes(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, nn.Module):
        yield from ((f"{path}.{name}", child) for name, child in value.named_children())
    yield from ((f"{path}.{name}", part) for name, part in getattr(value, "__dict__", {}).items() if name != "_modules")
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    yield from ((f"{path}.{name}", getattr(value, name)) for name in slots if hasattr(value, name))
