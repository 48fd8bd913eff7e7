"""One at a time on this machine: whoever times something has the host to itself, also between unrelated runs.

In: what is about to be done. Out: a `HostLease` around it. Timing takes the lease alone; builds share it with other
builds, never with timing. Lock files keyed by the boot, so all processes of a host meet whatever started them.
Covered: a dead holder (the kernel drops its locks), waiting that is bounded and reported, timing that builds cannot
starve (a turnstile before the lock), several users of a machine, runners of one process in several threads, builds
that overlapped (`beside`), files of others in the place of ours (nothing blocks on them).
Not covered: containers with a temporary folder of their own, and work that is not ours: the load watch sees those; how
long a run goes on waiting (run_leases.py).
"""

from __future__ import annotations

import contextlib
import enum
import fcntl
import functools
import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from compilot.records import HostLease

FOLDER = "COMPILOT_LEASES"  # another folder for the lock files: those who use it meet nobody else
WAIT_S = 600.0  # the longest timing without a pause is a confirmation's set of a slow model
NAP_S = 0.05
TELL_S = 2.0  # who waits for longer than this says so
TOLD_AGAIN_S = 30.0
COUNT_ATTEMPTS = 10  # who counts holds the file for microseconds; everybody may lock it, though
_EVERYBODY = 0o666
_TEMPORARY = ("/tmp", "/var/tmp", "/usr/tmp")  # where tempfile looks
_NAMED = 200  # bytes that a holder says about itself

Tell = Callable[[str], None]


class Use(enum.StrEnum):
    """What the machine is wanted for."""

    TIMING = "timing"
    BUILDING = "building"


class How(enum.Enum):
    """What came of asking for a lock."""

    NOT = "not"
    ALONE = "alone"
    BESIDE = "beside"  # others share it


Attempt = Callable[[int], How]  # with the lock file open


class Holding:
    """A lease while it is held."""

    def __init__(self, use: Use, *, held: bool, waited_s: float) -> None:
        self.use = use
        self.held = held  # False: the wait was over, or there are no locks here
        self.waited_s = waited_s
        self.beside = False  # of a build, when it has ended: others were building at the same time
        self.from_s = time.monotonic()

    def record(self) -> HostLease:
        """What is kept of it, up to now."""
        return HostLease(host=host(), from_s=self.from_s, to_s=time.monotonic(), held=self.held)


class _Files(NamedTuple):
    lock: Path
    turnstile: Path
    builds: Path  # a byte for each build that began


@functools.cache
def host() -> str:
    """Equal for all processes of a machine until it is started again."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        boot = os.uname().nodename
    return hashlib.sha256(boot.strip().encode()).hexdigest()[:12]


@contextmanager
def timing(tell: Tell, wait_s: float = WAIT_S) -> Iterator[Holding]:
    """Nothing of ours runs on this host beside the body; after `wait_s` the body runs anyway, and that is said."""
    with _entered(Use.TIMING, _alone, tell, wait_s) as (holding, _):
        yield holding


@contextmanager
def building(tell: Tell, wait_s: float = WAIT_S) -> Iterator[Holding]:
    """No timing of ours runs beside the body; other builds may, and `beside` says in the end whether any did."""
    with _entered(Use.BUILDING, _shared, tell, wait_s) as (holding, files):
        count = _count(files.builds) if files is not None else 0
        try:
            yield holding
        finally:
            holding.beside = holding.beside or (files is not None and _begun(files.builds) != count)


@contextmanager
def _entered(use: Use, attempt: Attempt, tell: Tell, wait_s: float) -> Iterator[tuple[Holding, _Files | None]]:
    begin, files, how = time.monotonic(), None, How.NOT
    with contextlib.ExitStack() as locks:
        try:
            files = _files()
            how = _enter(files, attempt, begin + wait_s, tell, locks)
        except OSError as problem:
            why = problem.strerror or problem
            tell(f"no lease for this machine ({why}): other runs on it may be timed meanwhile")
        holding = Holding(use, held=how is not How.NOT, waited_s=time.monotonic() - begin)
        holding.beside = how is How.BESIDE
        yield holding, files


def _files() -> _Files:
    folder = Path(os.environ.get(FOLDER) or _temporary())
    stem = f"compilot-host-{host()}"
    return _Files(folder / f"{stem}.lease", folder / f"{stem}.next", folder / f"{stem}.builds")


def _temporary() -> str:
    """The system's folder; the current one, which tempfile falls back to, is the user's."""
    folder = tempfile.gettempdir()
    meant = {os.path.abspath(os.environ[name]) for name in ("TMPDIR", "TEMP", "TMP") if os.environ.get(name)}
    if folder == os.getcwd() and folder not in meant.union(_TEMPORARY):
        raise OSError("no temporary folder can be written to; set TMPDIR")
    return folder


def _enter(files: _Files, attempt: Attempt, deadline: float, tell: Tell, locks: contextlib.ExitStack) -> How:
    """Through the turnstile, then the lock: while somebody waits to time, no new build gets in."""
    with _opened(files.turnstile) as first:
        if _wait(first, _alone, files.lock, deadline, tell) is How.NOT:
            return How.NOT
        fd = locks.enter_context(_opened(files.lock))
        how = _wait(fd, attempt, files.lock, deadline, tell)
        if attempt is _alone and how is How.ALONE:
            _sign(fd)
        return how


def _wait(fd: int, attempt: Attempt, lock: Path, deadline: float, tell: Tell) -> How:
    begin, told = time.monotonic(), 0.0
    while (how := attempt(fd)) is How.NOT:
        now = time.monotonic()
        if now >= deadline:
            tell(f"another run still has this machine{_holder(lock)}: going on beside it, the figures may suffer")
            return How.NOT
        if now - begin > TELL_S and now - told > TOLD_AGAIN_S:
            tell(f"waiting for another run on this machine{_holder(lock)}; at most {deadline - now:.0f} s more")
            told = now
        time.sleep(NAP_S)
    return how


def _alone(fd: int) -> How:
    return How.ALONE if _locked(fd, fcntl.LOCK_EX) else How.NOT


def _shared(fd: int) -> How:
    """Alone for a moment tells that nobody else builds; who is past the turnstile has no rival for the change."""
    if _locked(fd, fcntl.LOCK_EX):
        return How.ALONE if _locked(fd, fcntl.LOCK_SH) else How.NOT
    return How.BESIDE if _locked(fd, fcntl.LOCK_SH) else How.NOT


def _locked(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """A file that every user of the machine may lock; only a plain file is taken for one."""
    fd = _open(path)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(f"{path} is no plain file")
        yield fd
    finally:
        os.close(fd)


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    for _ in range(3):  # somebody may make it, or clean up, at the same moment
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, flags)  # without O_CREAT: another user's file in a shared folder is refused with it
        with contextlib.suppress(FileExistsError):
            fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, _EVERYBODY)
            os.fchmod(fd, _EVERYBODY)  # whatever the umask is
            return fd
    return os.open(path, flags)


def _sign(fd: int) -> None:
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"process {os.getpid()}".encode(), 0)


def _holder(lock: Path) -> str:
    """Who has timed last, for people; it may be a build that holds it now."""
    try:
        fd = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        text = os.pread(fd, _NAMED, 0).decode(errors="replace")
    except OSError:  # no plain file
        return ""
    finally:
        os.close(fd)
    return f" ({text})" if text.isprintable() and text else ""


def _count(path: Path) -> int:
    """Note that a build begins; how many have begun by then. Somebody who keeps the file locked is not waited for."""
    with contextlib.suppress(OSError), _opened(path) as fd:
        for _ in range(COUNT_ATTEMPTS):
            if _locked(fd, fcntl.LOCK_EX):
                break
            time.sleep(NAP_S)
        size = os.fstat(fd).st_size
        os.pwrite(fd, b".", size)
        return size + 1
    return 0


def _begun(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
