"""Run directories in a store that a team shares. In: a run directory and a URL. Out: its entry there; later a copy.

    runs/ID/ab12.../journal.jsonl            a run, by its id and the SHA-256 of its journal; with plan.json and tables
    runs/ID/ab12.../run.json                 written last: a `StoredRun`, which makes the run known

What travels is what is needed to look at a run and to compare it: the journal with its raw samples, the plan, the
tables and report pages. Not the model, its weights, or what engines built: bundles are for those. A journal names the
command line, paths and library versions of whoever tuned. Whoever can write to a store decides what is read from it.
Covered: pushes at the same time, runs that went on (the longer journal counts), damaged entries (named, left out),
digests of what is fetched. Not covered: removing (the server), running a run from a store.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeGuard

import msgspec

from compilot.artifacts.rundir import RunDir
from compilot.artifacts.store.remote import Remote
from compilot.errors import InputError, RunDirError, StoreError
from compilot.ledger.entries import RunEntry, RunState, is_being_written, read_entry
from compilot.records import ArtifactFile, Record, encode

RUNS_SCHEMA = 1  # raised when an older compilot could misread an entry
RUNS = "runs"
ENTRY = "run.json"
MAX_FILE_BYTES = 64 << 20  # of what is fetched to look at: usual journals have 0.1 MB
SHORTEST_ID = 4
_ENTRY_NAME = re.compile(rf"{RUNS}/([0-9a-f]+)/([0-9a-f]{{64}})/{re.escape(ENTRY)}")
_PAGES = ("report.html", "report.md")


class StoredRun(Record, frozen=True, kw_only=True):
    """One run in a store: enough to list it."""

    schema: int
    run: RunEntry  # its directory is where it was, on the machine that pushed it
    files: tuple[ArtifactFile, ...]  # the journal first


class PushedRun(Record, frozen=True, kw_only=True, omit_defaults=False):
    """A run that was pushed."""

    run: RunEntry
    url: str  # of its folder in the store
    files: int
    size_bytes: int
    was_there: bool  # the same journal was pushed before


class StoredRuns(NamedTuple):
    """What a store has."""

    runs: tuple[RunEntry, ...]  # newest first
    problems: tuple[str, ...]  # entries that cannot be read, a sentence each


def push_run(run_dir: RunDir, url: str) -> PushedRun:
    """Put a run into a store; its entry last."""
    entry = read_entry(run_dir)
    if entry.state is RunState.UNREADABLE:
        raise RunDirError(entry.problem)
    if is_being_written(run_dir):
        raise RunDirError(f"the run in {run_dir} is still under way; push it when it has ended.")
    remote = Remote(url)
    remote.must_be_writable()
    files = tuple(_described(run_dir.path, path) for path in _to_push(run_dir))
    stored = StoredRun(schema=RUNS_SCHEMA, run=entry, files=files)
    folder = f"{RUNS}/{entry.id}/{files[0].sha256}"
    was_there = remote.size(f"{folder}/{ENTRY}") is not None
    missing = [file for file in files if not (was_there and _is_whole(remote, f"{folder}/{file.name}", file))]
    for file in missing:
        remote.put(f"{folder}/{file.name}", run_dir.path / file.name)
    if missing:
        remote.put_bytes(f"{folder}/{ENTRY}", encode(stored))
    size = sum(file.size_bytes for file in files)
    return PushedRun(
        run=entry, url=f"{remote.url.rstrip('/')}/{folder}", files=len(files), size_bytes=size, was_there=not missing
    )


def listing(url: str) -> StoredRuns:
    """Every run that a store knows of; of one that was pushed again and again the longest journal."""
    remote = Remote(url)
    remote.must_exist()
    found, problems = _stored(remote)
    runs = [_placed(remote, name, stored) for name, stored in found.items()]
    return StoredRuns(tuple(sorted(runs, key=lambda run: run.created, reverse=True)), problems)


@contextmanager
def fetched(url: str, name: str) -> Iterator[tuple[RunEntry, RunDir]]:
    """A copy of one run's files to look at, by the beginning of its id or its model's name; gone afterwards."""
    remote = Remote(url)
    remote.must_exist()
    found = {place: stored for place, stored in _stored(remote)[0].items() if _is_called(stored.run, name)}
    if not found:
        raise InputError(f"{remote.url} has no run '{name}'; 'compilot history --store {remote.url}' lists them.")
    ids = {stored.run.id for stored in found.values() if stored.run.id.startswith(name)}
    if len(ids) > 1:
        raise InputError(f"'{name}' may be any of {', '.join(sorted(ids))}; write more of the id.")
    place, stored = max(found.items(), key=lambda item: item[1].run.created)
    with tempfile.TemporaryDirectory(prefix="compilot-run-") as folder:
        for file in stored.files:
            _fetch(remote, place.removesuffix(ENTRY), file, Path(folder))
        entry = read_entry(RunDir(Path(folder)))
        yield msgspec.structs.replace(entry, run_dir=_placed(remote, place, stored).run_dir), RunDir(Path(folder))


def _to_push(run_dir: RunDir) -> Iterator[Path]:
    yield run_dir.journal
    small = (run_dir.plan, run_dir.trials_csv, *(run_dir.path / name for name in _PAGES))
    yield from (path for path in small if path.is_file())
    yield from sorted(path for path in run_dir.doctor.glob("report.*") if path.is_file())


def _described(folder: Path, path: Path) -> ArtifactFile:
    name = path.relative_to(folder).as_posix()
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return ArtifactFile(name=name, sha256=sha256, size_bytes=path.stat().st_size)


def _stored(remote: Remote) -> tuple[dict[str, StoredRun], tuple[str, ...]]:
    """The entries by name, one for each run; and why others cannot be read."""
    names = [name for name in remote.sizes(RUNS) if _ENTRY_NAME.fullmatch(name)]
    found: dict[str, tuple[str, StoredRun]] = {}
    problems = []
    for name, data in remote.read(names).items():
        stored = _parsed(name, data)
        if isinstance(stored, str):
            problems.append(stored)
            continue
        known = found.get(stored.run.id)
        if known is None or known[1].files[0].size_bytes < stored.files[0].size_bytes:
            found[stored.run.id] = (name, stored)
    return dict(found.values()), tuple(problems)


def _parsed(name: str, data: bytes) -> StoredRun | str:
    try:
        stored = msgspec.json.decode(data, type=StoredRun)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        return f"{name} cannot be read: {problem}."
    if stored.schema != RUNS_SCHEMA:
        return f"{name} has schema {stored.schema}, this compilot reads {RUNS_SCHEMA}."
    match = _ENTRY_NAME.fullmatch(name)
    if match is None or not stored.files or match.groups() != (stored.run.id, stored.files[0].sha256):
        return f"{name} is not about what its name says."
    return stored


def _placed(remote: Remote, name: str, stored: StoredRun) -> RunEntry:
    """The entry with its place in the store for a directory."""
    place = f"{remote.url.rstrip('/')}/{name.removesuffix(f'/{ENTRY}')}"
    return msgspec.structs.replace(stored.run, run_dir=place)


def _is_whole(remote: Remote, name: str, file: ArtifactFile) -> bool:
    return _has_digest(remote.read([name]).get(name), file)


def _has_digest(data: bytes | None, file: ArtifactFile) -> TypeGuard[bytes]:
    return data is not None and hashlib.sha256(data).hexdigest() == file.sha256


def _is_called(run: RunEntry, name: str) -> bool:
    return run.model == name or (len(name) >= SHORTEST_ID and run.id.startswith(name))


def _fetch(remote: Remote, place: str, file: ArtifactFile, folder: Path) -> None:
    path = folder / file.name
    if file.size_bytes > MAX_FILE_BYTES or ".." in Path(file.name).parts or Path(file.name).is_absolute():
        raise StoreError(f"{place}{file.name} in {remote.url} is no file of a run; ask who pushed it.")
    data = remote.read([f"{place}{file.name}"]).get(f"{place}{file.name}")
    if not _has_digest(data, file):
        raise StoreError(f"{place}{file.name} in {remote.url} is missing or damaged; push the run again.")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
