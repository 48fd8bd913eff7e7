"""Folders that nobody else can write to. What lies in one may be loaded later without asking who put it there.

In: a path, or the environment. Out: a folder that belongs to this user and that others can neither write to nor swap;
otherwise an UnsafeDirectory with its reason. For compilot's own cache there is always an answer: where the usual place
cannot be used, this user's folder among the temporary ones, and why; where that one is unfit too (somebody else may
have made it first), a fresh one that lives as long as this process.
Covered: links, other owners, loose modes (of the folders above it too), groups, read-only disks, no HOME.
Not covered: root, who can do everything; access-control lists.
"""

from __future__ import annotations

import atexit
import contextlib
import enum
import functools
import logging
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import NamedTuple, NoReturn

from compilot.errors import CompilotError, EnvironmentProblem

CACHE_VARIABLE = "COMPILOT_CACHE"
ROOT = 0
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH

logger = logging.getLogger("compilot")


class Unfit(enum.StrEnum):
    """Why a folder is not private."""

    LINK = "link"
    NOT_A_FOLDER = "not-a-folder"
    OTHER_OWNER = "other-owner"
    LOOSE_MODE = "loose-mode"
    SWAPPABLE = "swappable"
    EXCHANGED = "exchanged"
    UNWRITABLE = "unwritable"


class UnsafeDirectory(EnvironmentProblem):
    """A folder that is not this user's alone."""

    def __init__(self, path: Path, reason: Unfit, why: str) -> None:
        super().__init__(f"{path} cannot be used as a private folder: {why}.")
        self.path = path
        self.reason = reason
        self.why = why


class CacheHome(NamedTuple):
    """Where compilot's own cache lies."""

    path: Path
    why_temporary: str = ""  # why the usual place is not used; "": it is


def private_directory(path: Path) -> Path:
    """The folder, made with mode 0700 where it is missing; raises UnsafeDirectory if it is not this user's alone."""
    path = path.absolute()
    try:
        path = Path(os.path.realpath(path.parent)) / path.name  # links above are followed once, not again by its users
        _make(path)
        _check_above(path, path.parent)
        _check(path)
    except OSError as problem:
        _refuse(path, Unfit.UNWRITABLE, f"{problem.strerror or problem}")
    if not os.access(path, os.W_OK | os.X_OK):
        _refuse(path, Unfit.UNWRITABLE, "it cannot be written to")
    return path


def others_can_change(
    path: Path, opened: os.stat_result | None = None, *, above: bool = True, shut_in: bool = False
) -> str:
    """Why somebody else than this user and root could change what lies at this path; "": nobody can.

    Links in the path were followed before this, and none may be in it now. opened: what os.fstat says of what is read;
    it must be what lies here. above=False: the folders above were looked at already. shut_in: nobody else gets into
    the folder it lies in, so its own mode lets nobody in.
    """
    try:
        if above:
            _check_above(path, path.parent)
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            _refuse(path, Unfit.LINK, "it is a link")
        _check_owner(path, found, any_mode=shut_in and not _has_another_name(found))
        if opened is not None and not os.path.samestat(found, opened):
            _refuse(path, Unfit.EXCHANGED, "it was replaced by another one while it was opened")
    except UnsafeDirectory as problem:
        return problem.why
    return ""


def cache_home() -> Path:
    """Compilot's own cache folder; says once, in the log, when it had to be a temporary one."""
    return find_cache_home().path


def find_cache_home() -> CacheHome:
    """The cache folder by $COMPILOT_CACHE, $XDG_CACHE_HOME or HOME, else one among the temporary folders, and why."""
    names = (CACHE_VARIABLE, "XDG_CACHE_HOME", "HOME")
    return _find(tuple(os.environ.get(name, "") for name in names), os.getuid())


def user_folder(variable: str, xdg_variable: str, usual: str) -> Path:
    """Compilot's folder of one kind: $variable, else $xdg_variable/compilot, else ~/usual/compilot."""
    own, shared = os.environ.get(variable, ""), os.environ.get(xdg_variable, "")
    if own:
        return Path(own).absolute()
    if os.path.isabs(shared):  # the XDG rule: a relative one is to be ignored
        return Path(shared) / "compilot"
    home = os.path.expanduser("~") if os.environ.get("HOME") != "" else "~"
    if not os.path.isabs(home):
        raise EnvironmentProblem(f"there is no HOME; set {variable} to a folder of your own.")
    return Path(home) / usual / "compilot"


@functools.cache
def _find(environment: tuple[str, ...], user: int) -> CacheHome:
    """Looked up once for each environment: a temporary folder is to be made once."""
    try:
        return CacheHome(private_directory(user_folder(CACHE_VARIABLE, "XDG_CACHE_HOME", ".cache")))
    except CompilotError as problem:
        home = CacheHome(temporary_cache(), str(problem))
    logger.warning("using %s as cache, because %s", home.path, home.why_temporary)
    return home


def temporary_cache() -> Path:
    """This user's cache among the temporary folders, the same for all processes; a process's own where it is unfit."""
    try:
        folder = Path(tempfile.gettempdir())
    except OSError as problem:
        why = f"there is no folder to write to ({problem.strerror or problem})"
        raise EnvironmentProblem(f"{why}; set {CACHE_VARIABLE} or TMPDIR.") from problem
    return _temporary(folder, os.getuid())


@functools.cache
def _temporary(above: Path, user: int) -> Path:
    try:
        return private_directory(above / f"compilot-{user}")
    except UnsafeDirectory as problem:
        logger.warning("%s", problem)
    try:
        folder = Path(tempfile.mkdtemp(prefix=f"compilot-{user}-", dir=above))  # mode 0700
    except OSError as problem:
        why = f"there is no folder to write to ({problem.strerror or problem})"
        raise EnvironmentProblem(f"{why}; set {CACHE_VARIABLE} or TMPDIR.") from problem
    atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked child leaves it to the parent
        shutil.rmtree(folder, ignore_errors=True)


def _make(path: Path) -> None:
    """mkdir -p, but each folder that is made is private; mkdir's own mode does not hold for the parents."""
    if path.is_symlink() or path.exists():
        return
    _make(path.parent)
    with contextlib.suppress(FileExistsError):  # another process was faster; the checks see what it made
        path.mkdir(mode=0o700)


def _check(path: Path) -> None:
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        _refuse(path, Unfit.LINK, "it is a link")
    if not stat.S_ISDIR(found.st_mode):
        _refuse(path, Unfit.NOT_A_FOLDER, "it is not a folder")
    if found.st_uid != os.getuid():
        _refuse(path, Unfit.OTHER_OWNER, _stranger(found))
    _check_owner(path, found)


def lets_nobody_in(folder: os.stat_result) -> bool:
    """Whether only its owner and root can open what lies in a folder."""
    return stat.S_ISDIR(folder.st_mode) and not folder.st_mode & (stat.S_IXGRP | stat.S_IXOTH)


def _has_another_name(found: os.stat_result) -> bool:
    """A file that also lies elsewhere, where others may get at it; folders cannot."""
    return not stat.S_ISDIR(found.st_mode) and found.st_nlink > 1


def _check_owner(path: Path, found: os.stat_result, *, any_mode: bool = False) -> None:
    if found.st_uid not in (ROOT, os.getuid()):
        _refuse(path, Unfit.OTHER_OWNER, _stranger(found))
    if found.st_mode & _OTHERS_WRITE and not any_mode:
        mode = stat.S_IMODE(found.st_mode)
        _refuse(path, Unfit.LOOSE_MODE, f"others may write to it (mode {mode:04o}); run chmod go-w on it")


def _stranger(found: os.stat_result) -> str:
    return f"it belongs to user {found.st_uid}, this is user {os.getuid()}"


def _check_above(path: Path, folder: Path) -> None:
    """Whoever may rename entries in a folder above can put another folder in this one's place.

    From the root down: each is looked at where nobody else can exchange it any more.
    """
    for above in reversed((folder, *folder.parents)):
        found = above.lstat()
        if stat.S_ISLNK(found.st_mode):
            _refuse(path, Unfit.LINK, f"{above}, above it, was replaced by a link")
        if found.st_uid not in (ROOT, os.getuid()):
            _refuse(path, Unfit.SWAPPABLE, f"{above}, above it, belongs to user {found.st_uid}")
        if found.st_mode & stat.S_ISVTX:
            continue  # as /tmp: others cannot rename what is not theirs
        if found.st_mode & stat.S_IWOTH:
            _refuse(path, Unfit.SWAPPABLE, f"everybody may write to {above}, above it; run chmod go-w on that")
        if found.st_mode & stat.S_IWGRP and not _is_ours_alone(found.st_gid):
            group = f"group {_group_name(found.st_gid)} may write to {above}, above it"
            _refuse(path, Unfit.SWAPPABLE, f"{group}; run chmod g-w on that")


def _is_ours_alone(group: int) -> bool:
    """Root's group, or the private group that many systems give each user (umask 0002 makes every folder its own)."""
    import grp  # here and below: most starts need neither
    import pwd

    if group == ROOT:
        return True
    try:
        user, found = pwd.getpwuid(os.getuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return user.pw_gid == group and user.pw_name == found.gr_name and set(found.gr_mem) <= {user.pw_name}


def _group_name(group: int) -> str:
    import grp

    try:
        return grp.getgrgid(group).gr_name
    except KeyError:
        return str(group)


def _refuse(path: Path, reason: Unfit, why: str) -> NoReturn:
    raise UnsafeDirectory(path, reason, why)
