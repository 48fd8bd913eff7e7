"""Where a target points to. In: "path/to/file.py:factory" or "package.module:factory". Out: its parts, checked.

Needs no torch: the parent process ships a target by name and never imports the user's code.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import NamedTuple

from compilot.errors import TargetError

SPELLING = "path/to/file.py:factory or package.module:factory"


class Place(NamedTuple):
    """A parsed target."""

    module: str  # as the user wrote it
    factory: str
    file: Path | None  # None: a module to import


def parse_target(target: str) -> Place:
    """The parts of a target; what cannot be one is the user's mistake."""
    module, colon, factory = target.rpartition(":")
    if not colon or not module or not factory:
        raise TargetError(f"target '{target}' names no factory; write {SPELLING}.")
    if not all(part.isidentifier() for part in factory.split(".")):
        raise TargetError(f"'{factory}' in target '{target}' is not a Python name; write {SPELLING}.")
    looks_like_file = module.endswith(".py") or os.sep in module or Path(module).is_file()
    return Place(module, factory, _file(module) if looks_like_file else None)


def absolute_target(target: str) -> str:
    """The target as another process in another directory would have to spell it."""
    place = parse_target(target)
    return f"{place.file}:{place.factory}" if place.file else target


def _file(text: str) -> Path:
    path = Path(text).expanduser().absolute()
    if not path.exists():
        raise TargetError(f"no file '{text}' in {Path.cwd()}; check the path.{_similar_file(path)}")
    if path.is_dir() or path.suffix != ".py":
        raise TargetError(f"'{text}' is not a Python file; a target file ends in .py.")
    return path


def _similar_file(path: Path) -> str:
    names = [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
    return "".join(f" Did you mean '{name}'?" for name in difflib.get_close_matches(path.name, names, n=1))
