"""Which commit of its git repository a model's code is at.

In: a target, or None for live objects. Out: the commit and whether files differ from it; None where there is no git, no
repository or no answer within two seconds: a run needs none of it. The repository is that of the target's file; of a
module or of live objects that of the working directory. Nothing is written, and no hook of the repository is run.
Not covered: what else the code depends on (the fingerprint has that), submodules' own changes.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from compilot.records import SourceCommit

LONGEST_S = 2.0  # a repository that is slower to look at says nothing about itself
_COMMIT = "# branch.oid "
_QUIET = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


def source_commit(target: str | None) -> SourceCommit | None:
    """The commit that the target's repository is at."""
    file = _file(target)
    if target is not None and target.rpartition(":")[0].endswith(".py") and file is None:
        return None
    folder = file.parent if file is not None else Path.cwd()
    told = _git(folder, "status", "--porcelain=v2", "--branch", "--untracked-files=no")
    if told is None:
        return None
    lines = told.splitlines()
    commit = next((line.removeprefix(_COMMIT) for line in lines if line.startswith(_COMMIT)), "")
    if not commit or not set(commit) <= set("0123456789abcdef"):  # "(initial)": nothing was committed yet
        return None
    changed = any(not line.startswith("#") for line in lines)
    return SourceCommit(commit=commit, dirty=changed or (file is not None and not _is_tracked(file)))


def _file(target: str | None) -> Path | None:
    """The file that a target names; None: it names a module, or there is no such file."""
    path = Path((target or "").rpartition(":")[0])
    return Path(os.path.realpath(path)) if path.suffix == ".py" and path.is_file() else None


def _is_tracked(file: Path) -> bool:
    return _git(file.parent, "ls-files", "--error-unmatch", "--", file.name) is not None


def _git(folder: Path, *words: str) -> str | None:
    """What git prints; None: it is not there, or says no."""
    command = ["git", "-c", "core.fsmonitor=false", "-C", str(folder), *words]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LONGEST_S,
            check=False,
            env={**os.environ, **_QUIET},
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None
