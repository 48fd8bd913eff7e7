"""From a node's answer to the store: checked, signed, pushed, noted. In: an item and what its node made. Out: a row.

The bundle must be of the model and of the machine that were asked for, by its own fingerprint: what a node is called
counts for nothing. Nothing is pushed that a pull would refuse. Private keys are used here only, never on a node.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from compilot._version import __version__
from compilot.artifacts import store
from compilot.artifacts.store import file_name
from compilot.artifacts.store.describe import describe
from compilot.artifacts.store.fetching import CHUNK
from compilot.artifacts.store.layout import StoreEntry, model_id
from compilot.artifacts.store.remote import Remote
from compilot.errors import BundleError, StoreError
from compilot.files import atomic
from compilot.fleet import marks
from compilot.fleet.items import Item
from compilot.fleet.jobs import Made
from compilot.fleet.marks import MARK_SCHEMA, Mark
from compilot.fleet.rows import FleetRow, RowState
from compilot.identity.differences import differences
from compilot.packing.signing import signed_copy
from compilot.records import Fingerprint


class Desk(NamedTuple):
    """Where answers are finished."""

    remote: Remote
    url: str
    folder: Path  # for bundles
    key: Path | None  # to sign with
    key_id: str  # "": nothing is signed


def finished(desk: Desk, item: Item, made: Made, node: str) -> FleetRow:
    """The row of a job that came back; what it made is in the store then."""
    mark = Mark(
        schema=MARK_SCHEMA,
        key=item.key,
        name=item.line.name,
        because=made.because,
        engine=made.engine,
        speedup=made.speedup,
        seconds=made.seconds,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        compilot=__version__,
    )
    row = item.row(_state(made), made.because)
    if not made.eager:
        entry = _pushed(desk, item, made)
        mark = msgspec.structs.replace(mark, bundle=entry.sha256, index_name=entry.index_name)
    if made.final:
        marks.write(desk.remote, item.mark, mark)
    return msgspec.structs.replace(
        row,
        engine=made.engine,
        speedup=made.speedup,
        bundle=mark.bundle,
        signed_by=desk.key_id if mark.bundle else "",
        node=node,
        seconds=made.seconds,
        run_dir=made.run_dir,
    )


def _state(made: Made) -> RowState:
    if not made.eager:
        return RowState.PUSHED
    return RowState.EAGER if made.final else RowState.UNPROVEN


def _pushed(desk: Desk, item: Item, made: Made) -> StoreEntry:
    desk.folder.mkdir(parents=True, exist_ok=True)
    out = desk.folder / file_name(f"{item.line.name}-{item.kind.name}-{item.key[:8]}")
    unsigned = out.with_suffix(".unsigned")
    try:
        _fetch(desk, made, unsigned)
        refuse_another(unsigned, item)
        if desk.key is not None:
            signed_copy(unsigned, out, desk.key)
        else:
            atomic.copy_file(unsigned, out)
    finally:
        unsigned.unlink(missing_ok=True)
        if made.uploaded:
            desk.remote.delete([made.uploaded])
    return store.push(out, desk.url).entry


def _fetch(desk: Desk, made: Made, path: Path) -> None:
    """The node's file, here and with its digest."""
    if made.uploaded:
        with atomic.writing(path, atomic.PRIVATE) as file:
            for start in range(0, made.size_bytes, CHUNK):
                file.write(desk.remote.read_range(made.uploaded, start, min(start + CHUNK, made.size_bytes)))
    else:
        atomic.copy_file(Path(made.bundle), path, atomic.PRIVATE)
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != made.sha256:
            raise StoreError("the bundle did not arrive as its node made it; run the same command again.")


def refuse_another(bundle: Path, item: Item) -> None:
    """BundleError for a bundle of another machine or model than the one that was asked for."""
    found = describe(bundle).fingerprint
    if model_id(found.model) != model_id(item.model):
        raise BundleError("the bundle is of another model: the code changed while it was tuned; run it again.")
    asked = Fingerprint(machine=item.kind.fingerprint, model=found.model)
    other = differences(asked, found)
    if other:
        text = f"the bundle was not made on a machine of the kind '{item.kind.name}': {other[0].sentence}"
        raise BundleError(f"{text} It is not pushed.")
