"""Whose code is it: a library's, which counts by name and version, or the user's, which counts by what it does.

In: a class, a function or a module. Out: the name of the library's package ("transformers"), or None for user code.
A library is what torch, Python or an installed distribution brought: files in site-packages or dist-packages, and files
that the records of a distribution beside them name (pip install --target). Editable installs, files on sys.path,
notebooks and what was made by exec are user code. So is a class that a library made at run time (torch.fx, say).
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import sys
import sysconfig
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

import torch

PYTHON = "python"  # the standard library; its version is the machine's
_INSTALLED = frozenset({"site-packages", "dist-packages"})
# sources of torch lie elsewhere when it was built in place; nobody wants 10,000 files of it walked
_TORCH = os.path.dirname(os.path.abspath(torch.__file__))
_STANDARD = tuple({os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib")})


def library_of_class(kind: type) -> str | None:
    """The library of a class that can be found under its own name there; None: the user's, or made at run time."""
    module = sys.modules.get(kind.__module__)
    if module is None or kind.__module__ == "__main__":
        return None
    package = library_of_module(module)
    return package if package is None or _found(module, kind.__qualname__) is kind else None


def library_of_function(function: FunctionType) -> str | None:
    """The library of a function that can be found under its own name there; None: the user's, or made at run time.

    A user's function behind a library's decorator (`torch.no_grad()`, a dataclass's methods) is the user's: its code
    lies in the library's file, and what it does is in its closure.
    """
    module = sys.modules.get(function.__module__ or "")
    if module is None or not is_nameable(function.__module__, function.__qualname__, function):
        return None
    return library_of_module(module) if _is_library_file(function.__code__.co_filename) else None


def library_of_code(function: FunctionType) -> str | None:
    """The library whose file a function's code was written in, whosever function it is; None: the user's."""
    file = function.__code__.co_filename
    if not _is_library_file(file):
        return None
    return _package(function.__globals__.get("__name__") or "", file)  # `__module__` is copied by functools.wraps


def library_of_module(module: ModuleType) -> str | None:
    """The library that a module belongs to."""
    name = module.__name__
    top = name.partition(".")[0]
    if top in sys.builtin_module_names:
        return PYTHON
    place = _place(module) or _place(sys.modules.get(top))
    if place is None:
        return PYTHON if top in sys.stdlib_module_names else None
    return _package(name, place) if _is_library_file(place) else None


def library_of_file(module_name: str, file: str | None) -> str | None:
    """The library that a module which is not imported belongs to."""
    if file in (None, "built-in", "frozen"):
        return PYTHON if module_name.partition(".")[0] in sys.stdlib_module_names else None
    return _package(module_name, file) if _is_library_file(file) else None


@functools.cache
def version_of(package: str) -> str:
    """The version of a library's package; nothing for those that the machine's fingerprint has already."""
    if package in (PYTHON, "torch"):
        return ""
    version = getattr(sys.modules.get(package), "__version__", None)
    if isinstance(version, str):
        return version
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        names = importlib.metadata.packages_distributions().get(package, [])
        return " ".join(f"{name} {importlib.metadata.version(name)}" for name in sorted(set(names)))


def is_nameable(module_name: str | None, qualname: str, value: Any) -> bool:
    """True when the name leads to the very object: then name and version say all there is to say."""
    module = sys.modules.get(module_name or "")
    return module is not None and _found(module, qualname) is value


def _found(module: ModuleType, qualname: str) -> Any:
    found: Any = module
    for name in qualname.split("."):
        space = getattr(found, "__dict__", {})
        if name not in space:
            return None
        found = space[name]
        found = getattr(found, "__func__", found)
    return found


def _place(module: ModuleType | None) -> str | None:
    space = getattr(module, "__dict__", {})
    file = space.get("__file__")
    if isinstance(file, str):
        return file
    paths = [*space.get("__path__", ())]
    return os.path.join(paths[0], "") if paths else None


def _package(module_name: str, file: str) -> str:
    if os.path.realpath(file).startswith(_STANDARD) and not _INSTALLED & {*file.split(os.sep)}:
        return PYTHON
    return module_name.partition(".")[0] or PYTHON


@functools.lru_cache(maxsize=4096)
def _is_library_file(file: str) -> bool:
    if file.startswith("<"):
        return file.startswith("<frozen ")
    parts = file.split(os.sep)
    if not _INSTALLED.isdisjoint(parts) or file.startswith(_TORCH + os.sep):
        return True
    if os.path.realpath(file).startswith(_STANDARD):
        return True
    return any(part in _recorded(root) for root, part in _roots(os.path.abspath(file)))


def _roots(file: str) -> Iterator[tuple[str, str]]:
    """The folder that a package or single file lies in, with its name there."""
    folder, name = os.path.split(file)
    while os.path.isfile(os.path.join(folder, "__init__.py")):
        folder, name = os.path.split(folder)
    yield folder, name


@functools.cache
def _recorded(root: str) -> frozenset[str]:
    """What the distributions in a folder say that they brought along: names of packages and single files."""
    names: set[str] = set()
    try:
        entries = [entry for entry in os.listdir(root) if entry.endswith(".dist-info")]
        for entry in entries:
            with open(os.path.join(root, entry, "RECORD"), encoding="utf-8") as file:
                names |= {line.partition(",")[0].partition("/")[0] for line in file}
    except OSError:
        return frozenset()
    return frozenset(names)
