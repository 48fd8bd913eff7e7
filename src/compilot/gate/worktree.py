"""The code of a commit beside the working tree. In: a repository and a ref. Out: a folder with its files, for a while.

A git worktree in a temporary folder: the user's own tree, index and branches are not touched, no hook runs, and the
entry in .git/worktrees goes with it. It is never inside of the repository, whose code is the other side's, and on the
same disk where that can be: imports from a slower one would be a slower start of that side. `links` are untracked files
or folders that the factory reads (weights, data).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from compilot.errors import EnvironmentProblem, InputError
from compilot.gate.sides import repository_root

GIT_LIMIT_S = 300.0
OTHER_PLACES = ("/tmp", "/var/tmp")  # for temporary files, where TMPDIR is none
UNKNOWN = 1  # exit code of a quiet `git rev-parse` for a name that it does not know; it says nothing then
_QUIET = {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
_INNER = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")  # set while a hook of git runs


class GitFailed(EnvironmentProblem):
    """What git said where it failed, and what to do about it where that is known."""

    def __init__(self, root: Path, command: str, code: int, said: str) -> None:
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        fatal = [line for line in lines if line.startswith(("fatal:", "error:"))]
        text = f"git {command} failed: {([*fatal, *lines[-1:]] or ['it said nothing'])[0].rstrip('.')}"
        trust = f"; if you trust it, add {root} to git's safe.directory" if "dubious" in text else ""
        super().__init__(f"{text}{trust}.")
        self.code = code
        self.said = said


class Tree(NamedTuple):
    """A commit's files."""

    path: Path
    commit: str


@contextlib.contextmanager
def checked_out(root: Path, ref: str, links: Sequence[str | os.PathLike[str]] = ()) -> Iterator[Tree]:
    """The files of a ref in a folder of their own, until the end of the block."""
    commit = resolve(root, ref)
    linked = [_inside(root, link) for link in links]
    with tempfile.TemporaryDirectory(prefix="compilot-base-", dir=_place(root)) as folder:
        path = Path(os.path.realpath(folder)) / "tree"
        entry: Path | None = None
        try:
            _git(root, "worktree", "add", "--detach", "--force", str(path), commit)
            entry = Path(_git(path, "rev-parse", "--absolute-git-dir").strip())
            for relative in linked:
                _link(root / relative, path / relative)
            yield Tree(path, commit)
        finally:
            with contextlib.suppress(EnvironmentProblem):
                _git(root, "worktree", "remove", "--force", "--force", str(path))
            if entry is not None and entry.parent.name == "worktrees":  # never more: others have entries there, too
                shutil.rmtree(entry, ignore_errors=True)


def _place(root: Path) -> Path:
    """The folder for temporary files, or one outside of the repository and on its disk."""
    usual = Path(os.path.realpath(tempfile.gettempdir()))
    beside = [] if repository_root(root.parent) else [root.parent]  # of another repository it would be a new file
    able = [place for place in (usual, *beside, *map(Path, OTHER_PLACES)) if _is_free(place, root)]
    near = [place for place in able if place.stat().st_dev == root.stat().st_dev]
    if not able:
        text = f"the folder for temporary files, {usual}, is in the repository {root}"
        raise EnvironmentProblem(
            f"{text}, so code of the two sides would be mixed up; set TMPDIR to one outside of it."
        )
    return (near or able)[0]


def _is_free(place: Path, root: Path) -> bool:
    inside = Path(os.path.realpath(place)).is_relative_to(root)
    return not inside and place.is_dir() and os.access(place, os.W_OK | os.X_OK)


def resolve(root: Path, ref: str) -> str:
    """The commit that a ref names."""
    if ref.startswith("-"):
        raise InputError(f"'{ref}' is no git ref; give a branch, a tag or a commit.")
    try:
        return _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}").strip()
    except GitFailed as failed:
        if failed.code != UNKNOWN or failed.said:
            raise  # it is not about the ref
        text = f"git knows no '{ref}' in {root}; fetch it first"
        raise InputError(
            f"{text}: git fetch origin {ref.removeprefix('origin/')}, or check out with fetch-depth: 0."
            if _is_shallow(root) or ref.startswith("origin/")
            else f"{text}, or check its spelling."
        ) from None


def _is_shallow(root: Path) -> bool:
    with contextlib.suppress(EnvironmentProblem):
        return _git(root, "rev-parse", "--is-shallow-repository").strip() == "true"
    return False


def _inside(root: Path, link: str | os.PathLike[str]) -> Path:
    path = Path(os.path.abspath(link))
    if not path.exists():
        raise InputError(f"there is no {os.fspath(link)} to link; check the path.")
    real = Path(os.path.realpath(path.parent)) / path.name
    if not real.is_relative_to(root):
        raise InputError(f"{os.fspath(link)} is outside of {root}; the old code finds it where it is, leave it out.")
    return real.relative_to(root)


def _link(source: Path, place: Path) -> None:
    if place.is_dir() and not place.is_symlink() and source.is_dir():
        for inner in source.iterdir():  # some of it is tracked: the commit's own files stay
            if not (place / inner.name).exists():
                _link(inner, place / inner.name)
        return
    if place.exists() or place.is_symlink():
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(source)


def _git(root: Path, *words: str) -> str:
    """What git prints; EnvironmentProblem with what it said where it fails."""
    command = ["git", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-C", str(root), *words]
    env = {name: value for name, value in os.environ.items() if name not in _INNER} | _QUIET
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=GIT_LIMIT_S, check=False, env=env
        )
    except (OSError, subprocess.SubprocessError) as problem:
        raise EnvironmentProblem(f"git cannot be run: {problem}; install git.") from problem
    if done.returncode != 0:
        raise GitFailed(root, words[0], done.returncode, done.stderr.strip())
    return done.stdout
