"""Where in the repository something is, for tools that show it beside the code. In: a target, a line. Out: a `Place`.

Paths are those of the repository, whatever folder the check was started in. Not covered: code outside of it, which
nobody could show; what is about such code is shown at the target.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

from compilot.gate.sides import repository_root


class Place(NamedTuple):
    """A line of a file."""

    path: str  # from the top of the repository on, with slashes
    line: int = 1


def root_of(target: str) -> Path:
    """The top of the repository that the target is in; the working directory where there is none."""
    file = _file(target)
    return repository_root(file.parent if file is not None else Path.cwd()) or Path.cwd()


def of_target(target: str, root: Path) -> Place:
    """The target's file; of a module that is not found, where it would be."""
    file = _file(target) or Path(*target.rpartition(":")[0].split(".")).with_suffix(".py")
    return Place(_inside(file, root) or file.name)


def of_finding(where: str, root: Path) -> Place | None:
    """Of "path:line"; None: it has no line, or is not in the repository."""
    place, _, line = where.rpartition(":")
    path = _inside(Path(place), root) if place and line.isdigit() else None
    return None if path is None else Place(path, int(line))


def _file(target: str) -> Path | None:
    """Without importing anything: a module is looked for where Python would."""
    place = target.rpartition(":")[0]
    if place.endswith(".py"):
        return Path(place)
    parts = place.split(".")
    inner = [Path(*parts).with_suffix(".py"), Path(*parts, "__init__.py")]
    folders = [Path.cwd(), *(Path(entry) for entry in sys.path if entry)]
    return next((folder / name for folder in folders for name in inner if (folder / name).is_file()), None)


def _inside(path: Path, root: Path) -> str | None:
    relative = os.path.relpath(os.path.realpath(path), os.path.realpath(root))
    return None if relative.split(os.sep)[0] == os.pardir else Path(relative).as_posix()
