"""What is compared: two sides, each with its code tree and its interpreter. In: a target and options. Out: `Side`s.

A side's processes run in the side's own folder with the side's own import paths; `foreign` is the folder whose code
must not be imported there. Covered: files and modules as targets, paths inside of the repository (also the working
directory, and those of PYTHONPATH and editable installs), another interpreter. Not covered: live objects, which have no
code of before.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec

from compilot.errors import EnvironmentProblem, InputError
from compilot.identity.repository import source_commit
from compilot.records import DynamicDim, Shipment, SourceCommit
from compilot.workload.place import absolute_target, parse_target

BASE, HEAD = "base", "head"
LOOK_S = 60.0  # importing torch from a cold disk


class Side(NamedTuple):
    """One side of a check."""

    name: str  # BASE or HEAD
    what: str  # for people: "main (1a2b3c4)"
    shipment: Shipment
    python: str = sys.executable
    foreign: str = ""  # folder of the other side's code; "": both have the same
    root: str = ""  # folder of its own code, where it is another than the other side's
    commit: SourceCommit | None = None


def head_side(target: str, *, foreign: str = "") -> Side:
    """The working tree as it stands."""
    place = parse_target(target)
    root = repository_root(place.file.parent if place.file else Path.cwd())
    shipment = Shipment(
        target=absolute_target(target), cwd=str(Path.cwd()), sys_path=own_paths(root, Path.cwd(), place.file)
    )
    commit = source_commit(shipment.target)
    dirty = " with uncommitted changes" if commit is not None and commit.dirty else ""
    return Side(HEAD, f"the working tree{dirty}", shipment, foreign=foreign, commit=commit)


def moved_side(head: Side, root: Path, tree: Path, what: str) -> Side:
    """The same target in another tree of the repository."""
    shipment = head.shipment
    assert shipment.target is not None
    place, _, factory = shipment.target.rpartition(":")
    moved = f"{moved_path(place, root, tree)}:{factory}" if place.endswith(".py") else shipment.target
    if place.endswith(".py") and not Path(moved.rpartition(":")[0]).exists():
        name = os.path.relpath(os.path.realpath(place), root)  # the target may have been given by a link
        raise InputError(f"{what} has no {name}; compare with a commit that has the target.")
    paths = tuple(str(moved_path(entry, root, tree)) for entry in shipment.sys_path)
    cwd = moved_path(shipment.cwd, root, tree)
    here = Shipment(target=moved, sys_path=paths, cwd=str(cwd if cwd.is_dir() else tree))
    return Side(BASE, what, here, foreign=str(root))


def old_side(head: Side, python: str | os.PathLike[str]) -> Side:
    """The same code with another interpreter, which needs torch and the target's packages and nothing of ours."""
    found = shutil.which(os.path.expanduser(os.fspath(python)))
    if found is None:
        raise InputError(f"{os.fspath(python)} is no program; give the old environment's python, as VENV/bin/python.")
    asked = [found, "-c", "import sys, torch; print(sys.version.split()[0], torch.__version__)"]
    try:
        told = subprocess.run(asked, capture_output=True, text=True, timeout=LOOK_S, check=False)
    except (OSError, subprocess.SubprocessError) as problem:
        raise EnvironmentProblem(f"{found} cannot be run: {problem}; give the python of the old environment.") from None
    if told.returncode != 0:
        said = (told.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise EnvironmentProblem(f"{found} cannot import torch ({said}); install the old torch into it.")
    version, torch = told.stdout.split()[-2:]
    return Side(BASE, f"torch {torch} (Python {version})", head.shipment, python=os.path.abspath(found))


def with_dimensions(side: Side, dynamic: tuple[DynamicDim, ...]) -> Side:
    """The same side with the dimensions that a plan declares."""
    return side._replace(shipment=msgspec.structs.replace(side.shipment, extra_dynamic=dynamic)) if dynamic else side


def own_paths(root: Path | None, cwd: Path, file: Path | None) -> tuple[str, ...]:
    """The import paths that are the project's own: installed packages each interpreter has for itself.

    The working directory is one of them, as in `tune`: a program that is started by its name does not have it.
    """
    prefixes = [os.path.realpath(place) for place in (sys.prefix, sys.base_prefix)]
    base = os.path.realpath(root or cwd)
    found = [str(file.parent)] if file is not None else [str(cwd)]
    for entry in (os.path.realpath(entry or cwd) for entry in ("", *sys.path)):
        inside = entry == base or entry.startswith(base + os.sep)
        installed = "site-packages" in Path(entry).parts or any(entry.startswith(p + os.sep) for p in prefixes)
        if inside and not installed and os.path.isdir(entry):
            found.append(entry)
    return tuple(dict.fromkeys(found))


def moved_path(path: str | Path, root: Path, tree: Path) -> Path:
    """A path of the repository in another tree of it; others stay as they are."""
    real = Path(os.path.realpath(path))
    return tree / real.relative_to(root) if real.is_relative_to(root) else Path(path)


def repository_root(folder: Path) -> Path | None:
    """The top of the git repository that a folder is in."""
    for place in (real := Path(os.path.realpath(folder)), *real.parents):
        if (place / ".git").exists():
            return place
    return None
