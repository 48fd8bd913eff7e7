"""Modules that a function imports when it runs.

In: an import statement inside of a function. Out: a token of the user's module by its code, whether or not it was
imported yet, so that a call does not change the identity; nothing is executed for that. Libraries count by name.
Covered: what that module imports in turn. Not covered: modules without code to be found (then its name counts).
"""

from __future__ import annotations

import importlib.util
import sys
from types import CodeType
from typing import Any

from compilot.identity import origin
from compilot.identity.bytecode import Import, read_code
from compilot.identity.tokens import joined, text


def imported_token(found: Import, package: str, packages: set[str]) -> bytes:
    """The token of an import; libraries are added to the packages."""
    return _token(_absolute(found, package), packages, set())


def _absolute(found: Import, package: str) -> str:
    if not found.level:
        return found.module
    base = package.rsplit(".", found.level - 1)[0] if found.level > 1 else package
    return f"{base}.{found.module}" if found.module else base


def _token(name: str, packages: set[str], seen: set[str]) -> bytes:
    if name in seen:
        return b"again"
    seen.add(name)
    place = _place(name)
    if place is None:
        return joined("missing", [text(name)])
    library, code = place
    if library is not None or code is None:
        packages.update({library} if library else ())
        return joined("library", [text(name)])
    read = read_code(code)
    own = name if _is_package(name) else name.rpartition(".")[0]
    inner = [_token(_absolute(one, own), packages, seen) for one in read.imports]
    return joined("imported", [read.token, *inner])


def _place(name: str) -> tuple[str | None, CodeType | None] | None:
    """The library that a module belongs to, and its code; None: there is no such module."""
    module = sys.modules.get(name)
    if module is not None and (library := origin.library_of_module(module)):
        return library, None
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None:
        return None
    library = origin.library_of_file(name, spec.origin)
    return library, None if library else _code(spec.loader, name)


def _code(loader: Any, name: str) -> CodeType | None:
    try:
        found = loader.get_code(name)
    except (ImportError, AttributeError, SyntaxError):
        return None
    return found if isinstance(found, CodeType) else None


def _is_package(name: str) -> bool:
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.submodule_search_locations is not None
