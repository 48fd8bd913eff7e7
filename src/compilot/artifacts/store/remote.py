"""The one door to fsspec: a store's files by name, whatever kind of server holds them.

In: a URL (file, s3, gs, http, sftp, ...). Out: listings, small reads, ranges, uploads that appear whole, deletions;
what goes wrong becomes a StoreError that names the place without its password.
Covered: object stores (a put is atomic there), file servers (uploaded under another name, then renamed), web servers
(read only). Not covered: credentials (each kind of server has its own usual places for them).
"""

from __future__ import annotations

import re
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from compilot.artifacts.store.ssh import known_hosts_policy
from compilot.errors import CompilotError, StoreError, StoreUnreachable, first_cause
from compilot.files import atomic

SSH = {"sftp", "ssh"}
PACKAGES = {  # that fsspec needs for a kind of URL
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "http": "aiohttp",
    "https": "aiohttp",
    "sftp": "paramiko",
    "ssh": "paramiko",
}
OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss", "memory"}  # an upload is there whole or not
FOLDERS = {"file", "local"}
READ_ONLY = {"http", "https"}
UPLOADS = "uploads"  # where file servers get files before they are renamed


class Remote:
    """A store's files; names are relative to the URL."""

    def __init__(self, url: str) -> None:
        self.url = shown(url)
        with self._told("opened"):
            self._fs, root = _open(url)
        self._root = root.rstrip("/")
        protocol = self._fs.protocol
        self._kinds = {protocol} if isinstance(protocol, str) else set(protocol)

    @property
    def folder(self) -> Path | None:
        """The store as a folder of this machine, by its whole path; None: it is a server."""
        return Path(self._root or "/") if self._kinds & FOLDERS else None

    def must_be_writable(self) -> None:
        """Raise StoreError where nothing can be pushed to."""
        if self._kinds & READ_ONLY:
            raise StoreError(f"{self.url} can only be read; use the place that this web server shows.")

    def must_exist(self) -> None:
        """Raise StoreUnreachable for a folder that is not there or not mounted; other stores have none to miss."""
        if not self._kinds & FOLDERS:
            return
        with self._told("read"):
            there = Path(self._root).is_dir()
        if not there:
            advice = "check its name and that it is mounted, or make it with 'compilot push'"
            raise StoreUnreachable(f"the folder {self.url} does not exist; {advice}.")

    def sizes(self, prefix: str) -> dict[str, int | None]:
        """Every file below a prefix, with its size where the server tells it; none at all if there is no such place."""
        with self._told("listed"):
            self._fs.invalidate_cache()
            try:
                found = self._fs.find(self._path(prefix), detail=True)
                if not found:
                    self._fs.ls(self._root)  # find() takes an unreachable server for an empty one
            except FileNotFoundError:
                return {}
        return {self._name(path): facts.get("size") for path, facts in found.items()}

    def folders(self, prefix: str) -> list[str]:
        """The names of the folders right below a prefix; none if there is no such place. One small listing."""
        with self._told("listed"):
            self._fs.invalidate_cache()
            try:
                found = self._fs.ls(self._path(prefix), detail=True)
            except FileNotFoundError:
                self._reached()
                return []
        return [one["name"].rstrip("/").rpartition("/")[2] for one in found if one["type"] == "directory"]

    def _reached(self) -> None:
        """Raise if the server is not there at all: some take that for an empty place."""
        with suppress(FileNotFoundError):
            self._fs.ls(self._root)

    def read(self, names: Sequence[str]) -> dict[str, bytes]:
        """Small files as a whole; those that vanished meanwhile are left out."""
        if not names:
            return {}
        with self._told("read"):
            found = self._fs.cat([self._path(name) for name in names], on_error="return")
        kept = {self._name(path): data for path, data in found.items() if isinstance(data, bytes)}
        broken = [data for data in found.values() if not isinstance(data, bytes | FileNotFoundError)]
        if broken:
            raise StoreUnreachable(f"{self.url} cannot be read: {first_cause(broken[0])}.")
        return kept

    def size(self, name: str) -> int | None:
        """The size of a file; None: it is not there."""
        with self._told("read"):
            try:
                self._fs.invalidate_cache()
                size = self._fs.info(self._path(name))["size"]
            except FileNotFoundError:
                return None
        return int(size) if size is not None else -1

    def can_resume(self, name: str) -> bool:
        """Whether a part of a file can be asked for; some web servers send the whole file or nothing."""
        if not self._kinds & READ_ONLY:
            return True
        with self._told("read"):
            try:
                with self._fs.open(self._path(name), "rb", cache_type="none") as file:
                    file.seek(1)
                    return len(file.read(1)) == 1
            except ValueError:
                return False

    def read_range(self, name: str, start: int, end: int) -> bytes:
        """The bytes from start to end; shorter only where the file ends."""
        with self._told("read"), self._fs.open(self._path(name), "rb", cache_type="none") as file:
            file.seek(start)
            data: bytes = file.read(end - start)
        return data

    @contextmanager
    def stream(self, name: str) -> Iterator[IO[bytes]]:
        """A file from its beginning on, for servers that cannot send parts."""
        with self._told("read"), self._fs.open(self._path(name), "rb", block_size=0) as file:
            yield file

    def put(self, name: str, source: Path) -> None:
        """Upload a file; it appears under its name whole or not at all."""
        self.must_be_writable()
        with self._told("written to"):
            if self._kinds & {"file", "local"}:
                target = Path(self._path(name))
                target.parent.mkdir(parents=True, exist_ok=True)
                atomic.copy_file(source, target)
            elif self._kinds & OBJECT_STORES:
                self._fs.put_file(str(source), self._path(name))
            else:
                self._put_and_rename(name, source)

    def put_bytes(self, name: str, data: bytes) -> None:
        """Upload a small file in the same way."""
        with tempfile.NamedTemporaryFile(prefix="compilot-") as file:
            file.write(data)
            file.flush()
            self.put(name, Path(file.name))

    def delete(self, names: Sequence[str]) -> None:
        """Remove files; those that are gone already are fine."""
        self.must_be_writable()
        with self._told("cleaned"):
            for name in names:
                try:
                    self._fs.rm_file(self._path(name))
                except FileNotFoundError:
                    continue

    def modified(self, name: str) -> float | None:
        """When a file was written, in seconds since 1970; None: the server does not tell."""
        with self._told("read"):
            try:
                facts = self._fs.info(self._path(name))
            except FileNotFoundError:
                return None
        found = next((facts[key] for key in ("mtime", "LastModified", "updated", "time") if key in facts), None)
        return float(found.timestamp() if isinstance(found, datetime) else found) if found is not None else None

    def _put_and_rename(self, name: str, source: Path) -> None:
        parked = self._path(f"{UPLOADS}/{secrets.token_hex(16)}")
        for path in (parked, self._path(name)):
            self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._fs.put_file(str(source), parked)
        self._fs.mv(parked, self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _name(self, path: str) -> str:
        return path.removeprefix(self._root).lstrip("/")

    @contextmanager
    def _told(self, verb: str) -> Iterator[None]:
        """Every kind of server has its own errors; all of them mean that the store cannot be used now."""
        try:
            yield
        except CompilotError:
            raise
        except PermissionError as problem:
            raise StoreError(f"{self.url} cannot be {verb}: access denied ({first_cause(problem)}).") from problem
        except Exception as problem:
            raise StoreUnreachable(f"{self.url} cannot be {verb}: {first_cause(problem)}.") from problem


def shown(url: str) -> str:
    """The URL without its password."""
    return re.sub(r"(://[^/:@]*):[^/@]*@", r"\1:***@", url)


def _open(url: str) -> tuple[Any, str]:
    import fsspec

    kind = url.partition("://")[0] if "://" in url else "file"
    try:
        more = {"host_key_policy": known_hosts_policy()} if kind in SSH else {}
        fs, root = fsspec.url_to_fs(url, skip_instance_cache=True, **more)
    except ImportError as problem:
        hint = f"pip install {PACKAGES[kind]}" if kind in PACKAGES else "install what fsspec needs for it"
        raise StoreError(f"{shown(url)} needs a package that is not installed ({problem}); {hint}.") from problem
    except ValueError as problem:
        raise StoreError(f"{shown(url)} cannot hold a store: {problem}.") from problem
    return fs, root
