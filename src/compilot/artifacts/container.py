"""The outside of a bundle: a plain zip with stored members, or a folder. Nothing of its content is understood here.

In: a path. Out: the names in it and bounded reads of them, or BundleError. Covered: names that leave the bundle,
absolute ones, links, duplicates, compressed or encrypted members, sizes that the file cannot hold, truncation, paths
that are exchanged meanwhile: links are followed once, a file is opened once, and `seen` says which files those are, for
whoever asks about their owners. Reading goes through Python's zipfile, whose errors on damaged files are of many kinds:
all of them mean *refused*.
"""

from __future__ import annotations

import errno
import os
import stat
import zipfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NoReturn, Protocol

from compilot.artifacts.frame import is_damaged, member_span
from compilot.errors import BundleError
from compilot.files.digests import Span

MAX_MEMBERS = 100_000  # an inductor cache directory has some thousands


class Container(Protocol):
    """A bundle's files by name."""

    path: Path  # without links in it
    sizes: dict[str, int]
    seen: dict[str, os.stat_result]  # what was opened: "" is the bundle itself; of a folder, all that is in it

    def open(self, name: str) -> BinaryIO:
        """A member's bytes; the caller closes it."""
        ...

    def span(self, name: str) -> AbstractContextManager[Span]:
        """Where a member's bytes lie; whoever uses them checks their digest."""
        ...

    def check_frame(self) -> None:
        """BundleError if the bytes around the members are damaged."""
        ...

    def close(self) -> None: ...


def refuse(path: Path, why: str, cause: BaseException | None = None) -> NoReturn:
    """The one way a bundle is refused as damaged."""
    raise BundleError(f"{path} is not a usable bundle: {why}. Get it again, or pack it again.") from cause


@contextmanager
def open_container(path: Path) -> Iterator[Container]:
    """The container at a path; everything that goes wrong inside is a BundleError that names it."""
    path = Path(os.path.realpath(path))  # once: what is asked about trust is what is read
    try:
        opened: Container = Folder(path) if path.is_dir() else Archive(path)
    except BundleError:
        raise
    except FileNotFoundError as error:
        raise BundleError(f"there is no bundle at {path}; check the path.") from error
    except Exception as error:
        refuse(path, f"it cannot be read ({_told(error)})", error)
    try:
        yield opened
    finally:
        opened.close()


def read(container: Container, name: str, limit: int) -> bytes:
    """A small member as a whole."""
    if name not in container.sizes:
        refuse(container.path, f"{name} is missing")
    if container.sizes[name] > limit:
        refuse(container.path, f"{name} has {container.sizes[name]} bytes, more than the {limit} it may have")
    with opened_member(container, name) as member:
        return member.read(limit)


@contextmanager
def opened_member(container: Container, name: str) -> Iterator[BinaryIO]:
    """A member for reading; damage found on the way is a BundleError that names it."""
    try:
        with container.open(name) as member:
            yield member
    except BundleError:
        raise
    except Exception as error:
        refuse(container.path, f"{name} cannot be read ({_told(error)})", error)


def is_safe(name: str) -> bool:
    """A relative name that stays inside, spelled in the one plain way."""
    pure = PurePosixPath(name)
    plain = str(pure) == name and "\\" not in name and "\0" not in name and ":" not in name
    return bool(name) and plain and not pure.is_absolute() and ".." not in pure.parts


class Archive:
    """A zip file whose members are stored as they are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open_plain(path)  # all reading is from this very file, wherever the path leads later
        try:
            self.seen = {"": os.fstat(self._file.fileno())}
            self._zip = zipfile.ZipFile(self._file)
            self.sizes = self._checked(self.seen[""].st_size)
        except BaseException:
            self._file.close()
            raise

    def _checked(self, whole: int) -> dict[str, int]:
        infos = self._zip.infolist()
        if len(infos) > MAX_MEMBERS:
            refuse(self.path, f"it has {len(infos)} members, more than {MAX_MEMBERS}")
        sizes: dict[str, int] = {}
        for info in infos:
            if problem := _problem(info, whole, sizes):
                refuse(self.path, f"member {info.filename!r} {problem}")
            sizes[info.filename] = info.file_size
        if sum(sizes.values()) > whole:
            refuse(self.path, "its members overlap")
        return sizes

    def open(self, name: str) -> BinaryIO:
        """A member's bytes, checked against its CRC on the way."""
        return self._zip.open(name)  # type: ignore[return-value]

    @contextmanager
    def span(self, name: str) -> Iterator[Span]:
        """Where a member lies: stored ones are in the archive as they are."""
        yield member_span(self._file.fileno(), self._zip.getinfo(name))

    def check_frame(self) -> None:
        """Every byte that belongs to no member, against its digest at the end of the file."""
        if is_damaged(self._file, self._zip):
            refuse(self.path, "its directory of files is damaged")

    def close(self) -> None:
        """Close the file."""
        self._zip.close()
        self._file.close()


def _problem(info: zipfile.ZipInfo, whole: int, seen: dict[str, int]) -> str | None:
    if not is_safe(info.filename) or info.is_dir():
        return "has a name that may lead out of the bundle"
    if info.filename in seen:
        return "is there twice"
    if stat.S_ISLNK(info.external_attr >> 16):
        return "is a link"
    if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 0x1 or info.file_size != info.compress_size:
        return "is compressed or encrypted"
    return "is larger than the file" if info.file_size > whole else None


class Folder:
    """A folder, read in place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seen = {"": path.lstat(), **dict(self._walk())}
        if not stat.S_ISDIR(self.seen[""].st_mode):
            refuse(path, "it is a link or not a folder")
        self.sizes = {name: facts.st_size for name, facts in self.seen.items() if stat.S_ISREG(facts.st_mode)}

    def _walk(self) -> Iterator[tuple[str, os.stat_result]]:
        for number, (parent, folders, files) in enumerate(os.walk(self.path, onerror=_raise)):
            if number > MAX_MEMBERS:
                refuse(self.path, f"it has more than {MAX_MEMBERS} folders")
            for name in [*folders, *files]:
                facts = os.lstat(os.path.join(parent, name))
                inner = PurePosixPath(parent).relative_to(self.path) / name
                if not (stat.S_ISREG(facts.st_mode) or stat.S_ISDIR(facts.st_mode)) or not is_safe(str(inner)):
                    refuse(self.path, f"{str(inner)!r} is a link or not a plain file")
                yield str(inner), facts

    def open(self, name: str) -> BinaryIO:
        """The bytes of the file that was seen at first; another one that was put there meanwhile is refused."""
        file = open_plain(self.path / name)
        if not os.path.samestat(os.fstat(file.fileno()), self.seen[name]):
            file.close()
            refuse(self.path, f"{name} was replaced by another file while the bundle was read")
        return file

    @contextmanager
    def span(self, name: str) -> Iterator[Span]:
        """A whole file."""
        with self.open(name) as file:
            yield span_of(file)

    def check_frame(self) -> None:
        """There are no other bytes than those of the files."""

    def close(self) -> None:
        """Nothing is held open."""


def open_plain(path: Path) -> BinaryIO:
    """A file that is no link, pipe or device, for reading; a pipe is not waited for."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is not a plain file", os.fspath(path))
    return os.fdopen(fd, "rb")


def span_of(file: BinaryIO) -> Span:
    """All of an open file."""
    return Span(file.fileno(), 0, os.fstat(file.fileno()).st_size)


def _raise(problem: OSError) -> NoReturn:
    raise problem


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
