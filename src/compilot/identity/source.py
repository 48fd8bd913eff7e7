"""The text that stands for a class, whatever module it was loaded as.

In: a class. Out: its source text; name and version for the classes of torch and transformers; or its methods' byte code
where there is no source (notebooks, exec, classes that came by pickle).
Not covered: functions outside of the class.
"""

from __future__ import annotations

import functools
import importlib.metadata
import inspect
import os
import textwrap
import types
from typing import Any

import torch

_BY_VERSION = ("torch", "transformers")  # large, versioned, and never edited in place by their users


@functools.cache
def class_text(kind: type) -> str:
    """The text that stands for a class."""
    package = kind.__module__.partition(".")[0]
    if package in _BY_VERSION:
        return f"{kind.__module__}.{kind.__qualname__} {_version(package)}"
    return _source(kind) or _byte_code(kind)


def _version(package: str) -> str:
    return torch.__version__ if package == "torch" else importlib.metadata.version(package)


def _source(kind: type) -> str | None:
    """The class's own lines; None when what inspect would find may be another class of the same name."""
    functions = [part for part in map(_function, vars(kind).values()) if part is not None]
    try:
        file = os.path.basename(inspect.getsourcefile(kind) or "")
        text = inspect.getsource(kind)
    except (OSError, TypeError):
        return None
    own = [f for f in functions if f.__qualname__.startswith(kind.__qualname__ + ".")]
    if any(os.path.basename(f.__code__.co_filename) != file for f in own):
        return None  # this class came by pickle, and its module's name means another file here
    return textwrap.dedent(text)


def _function(value: Any) -> types.FunctionType | None:
    value = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    value = inspect.unwrap(value) if callable(value) else value
    return value if isinstance(value, types.FunctionType) else None


def _byte_code(kind: type) -> str:
    lines = [f"class {kind.__qualname__}({', '.join(base.__name__ for base in kind.__bases__)})"]
    for name, value in sorted(vars(kind).items()):
        function = _function(value)
        if function is not None:
            lines.append(f"{name}: {_code(function.__code__)} {function.__defaults__!r} {function.__kwdefaults__!r}")
        elif isinstance(value, bool | int | float | str | tuple) and not name.startswith("__"):
            lines.append(f"{name} = {value!r}")
    return "\n".join(lines)


def _code(code: types.CodeType) -> str:
    """Everything that decides what the code does; not its file, line numbers or qualified name."""
    constants = [_code(c) if isinstance(c, types.CodeType) else _constant(c) for c in code.co_consts]
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return f"{code.co_code.hex()} {constants} {names} {code.co_flags} {code.co_argcount} {code.co_kwonlyargcount}"


def _constant(value: Any) -> str:
    """Sets are ordered by hash, which differs between processes."""
    return f"frozenset {sorted(map(repr, value))}" if isinstance(value, frozenset) else repr(value)
