"""`compilot.fleet.run`: the whole story of a fleet. In: a manifest, a store, nodes. Out: a `FleetReport`.

Nodes say what they are, models are opened to know them, what the store has is skipped, the rest is tuned and packed on
nodes of its kind, the most urgent first, and comes back to be checked, signed and pushed. A line that fails is a row;
a node that is lost is not the line's fault: it goes to another one. Whatever stops the run, what was done is in the
store, and the next run goes on from there. Not covered: Ray (cluster/), one job (on_node.py).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from compilot.artifacts.signing import sign as sign_bytes
from compilot.artifacts.store.remote import Remote
from compilot.errors import CompilotError, InputError, NodeLost
from compilot.fleet import marks
from compilot.fleet.crew import Crew, LocalCrew
from compilot.fleet.finishing import Desk, finished
from compilot.fleet.items import (
    Item,
    first_of_each,
    in_order,
    item_of,
    played,
    there_already,
    wanted,
    without_machine,
)
from compilot.fleet.jobs import Identified, Identify, Made
from compilot.fleet.kinds import Kind, kinds_of
from compilot.fleet.manifest import Line, Manifest, read_manifest
from compilot.fleet.page import write_page
from compilot.fleet.rows import FleetReport, FleetRow, RowState
from compilot.progress import Observer
from compilot.records import ModelFingerprint, encode
from compilot.showing.plain import PlainObserver

AnyPath = str | os.PathLike[str]
OUT = "compilot-fleet"
ATTEMPTS = 3  # of one line, on nodes that are lost
NONE_LEFT = "every node of its kind is gone; run the same again."


class Wish(NamedTuple):
    """What is asked for, besides the manifest."""

    dry_run: bool = False
    again: bool = False  # also what the store has
    upload: str = ""  # where nodes put bundles whose files cannot be read here; "": they can
    work: str = ""  # folder for runs; "": one of each node's own
    progress: bool = True


def run(
    manifest: AnyPath,
    store: AnyPath,
    *,
    on: str | None = None,
    sign: AnyPath | None = None,
    unsigned: bool = False,
    out: AnyPath = OUT,
    dry_run: bool = False,
    again: bool = False,
    progress: bool = True,
    observer: Observer | None = None,
) -> FleetReport:
    """Tune, pack, sign and push every model of a manifest for every kind of machine; what `compilot fleet` does.

    store is where bundles go: a folder or a URL. on is a Ray cluster's address, as `ray.init` takes it ("auto", "ray",
    "HOST:PORT", "ray://HOST:PORT"); without it this machine works alone, one line after the other. sign is the private
    key; unsigned=True says that none is wanted. out is a folder for runs, bundles and the report.

    What the store has already (the same model, weights, machine and versions, asked for in the same way) is skipped;
    again=True does it again. dry_run=True only says what would be done, and how long it may take.
    """
    asked = read_manifest(Path(manifest))
    key, key_id = _signer(sign, unsigned=unsigned, needed=not dry_run)
    remote, place = Remote(os.fspath(store)), Path(out).absolute()
    if not dry_run:
        remote.must_be_writable()
    where = os.fspath(store) if remote.folder is None else str(remote.folder)  # nodes work in other folders
    desk = Desk(remote, where, place / "bundles", key, key_id)
    work = "" if on is not None else str(place / "runs")
    wish = Wish(dry_run, again, where if on is not None else "", work, progress)
    watcher = observer or (PlainObserver() if progress else Observer())
    ours = [path for path in (place, key, remote.folder) if path is not None]
    with crew_for(on, asked.folder, ours) as crew:
        return Fleet(asked, crew, desk, wish, watcher).run(on or "", place)


@contextmanager
def crew_for(on: str | None, folder: Path, left_out: Sequence[Path]) -> Iterator[Crew]:
    """This machine, or a cluster's nodes, which get the folder without what is left out."""
    if on is None:
        with LocalCrew(folder) as crew:
            yield crew
        return
    from compilot.fleet.clustered import clustered

    with clustered(on, folder, left_out) as crew:
        yield crew


def _signer(sign: AnyPath | None, *, unsigned: bool, needed: bool) -> tuple[Path | None, str]:
    """The private key and its id; it is read before any work."""
    if sign is not None and unsigned:
        raise InputError("a key to sign with and unsigned=True do not go together; leave out one of them.")
    if sign is not None:
        return Path(sign), sign_bytes(b"", Path(sign)).key_id
    if needed and not unsigned:
        text = "a fleet signs what it pushes: give a private key (sign; 'compilot keys new' makes one)"
        raise InputError(f"{text}, or say that bundles stay unsigned (unsigned).")
    return None, ""


class Fleet:
    """One run."""

    def __init__(self, manifest: Manifest, crew: Crew, desk: Desk, wish: Wish, observer: Observer) -> None:
        self.manifest, self.crew, self.desk, self.wish, self.observer = manifest, crew, desk, wish, observer
        self.start = datetime.now(UTC)
        self.rows: dict[tuple[str, str], FleetRow] = {}  # by names of line and kind
        self.notes: list[str] = []
        self.names: dict[str, str] = {}  # of nodes, by id
        self.gone: set[str] = set()  # ids of nodes that were lost

    def run(self, on: str, out: Path) -> FleetReport:
        """All of it; the report is written also where it is interrupted."""
        began = time.monotonic()
        self.observer.stage("asking the nodes what they are")
        nodes = self.crew.nodes()
        self.names = {node.id: node.name for node in nodes}
        kinds = kinds_of(nodes, self.manifest.machines)
        for row in without_machine(self.manifest, kinds):
            self._report(row)
        items = self._skipped(in_order(self._items(wanted(self.manifest, kinds))))
        firsts, others = first_of_each(items)
        may_take_s = self._foreseen(firsts, others)
        report = FleetReport(
            manifest=self.manifest.path,
            store=self.desk.remote.url,
            on=on,
            dry_run=self.wish.dry_run,
            rows=(),
            machines={kind.name: kind.words for kind in kinds},
            seconds=0.0,
            may_take_s=may_take_s if self.wish.dry_run else None,
        )
        if self.wish.dry_run:
            return self._whole(report, began)
        try:
            self._work(firsts, others)
        finally:
            report = write_page(self._whole(report, began), out)
        return report

    def _whole(self, report: FleetReport, began: float) -> FleetReport:
        order = [line.name for line in self.manifest.lines]
        rows = sorted(self.rows.values(), key=lambda row: (order.index(row.model), row.machine))
        seconds = time.monotonic() - began
        return msgspec.structs.replace(report, rows=tuple(rows), notes=tuple(self.notes), seconds=seconds)

    def _report(self, row: FleetRow) -> None:
        self.rows[row.model, row.machine] = row

    # ------------------------------------------------------------------------------------------------- what is to do

    def _items(self, pairs: Sequence[tuple[Line, Kind]]) -> list[Item]:
        """Every pair whose model can be opened on its kind of machine."""
        found: list[Item] = []
        for kind in {kind.name: kind for _, kind in pairs}.values():
            lines = [line for line, its in pairs if its.name == kind.name]
            targets = tuple(dict.fromkeys(line.target for line in lines))
            self.observer.stage(f"opening {len(targets)} models on {kind.name}")
            models = dict(zip(targets, self._identified(kind, targets), strict=True))
            for line in lines:
                model = models[line.target]
                if isinstance(model, str):
                    self._report(_failed(line, kind, model))
                else:
                    found.append(item_of(line, kind, model, self.start))
        order = {line.name: number for number, line in enumerate(self.manifest.lines)}
        return sorted(found, key=lambda item: order[item.line.name])

    def _identified(self, kind: Kind, targets: tuple[str, ...]) -> tuple[ModelFingerprint | str, ...]:
        """What the targets are; where one ends the process that opens it, each is opened alone."""
        for node in kind.nodes:
            if node in self.gone:
                continue
            try:
                told = self._asked(node, "identify", Identify(targets=targets)).result()
                return msgspec.json.decode(told, type=Identified).models
            except NodeLost as problem:
                self._lose(node, f"opening models on {kind.name}: {problem}")
            except CompilotError as problem:
                if len(targets) == 1:
                    return (str(problem),)
                return tuple(one for target in targets for one in self._identified(kind, (target,)))
        return (NONE_LEFT,) * len(targets)

    def _lose(self, node: str, why: str) -> None:
        self.gone.add(node)
        self.notes.append(why)

    def _asked(self, node: str, function: str, question: Any) -> Future[bytes]:
        return self.crew.call(node, f"compilot.fleet.on_node:{function}", encode(question))

    def _skipped(self, items: list[Item]) -> list[Item]:
        """Those that the store does not have; the others are rows already."""
        names = {item.key: item.mark for item in items}
        known = {} if self.wish.again else marks.read(self.desk.remote, names, self.desk.key_id)
        for item in items:
            if item.key in known:
                self._report(there_already(item, known[item.key]))
        return [item for item in items if item.key not in known]

    def _foreseen(self, items: Sequence[Item], others: Any) -> float:
        """Every item as a row that is to do; gives how long all may take."""
        ends, last = played(items)
        for number, item in enumerate(items):
            late = item.deadline is not None and (item.deadline - self.start).total_seconds() < ends[number]
            because = "its deadline may be too early" if late else ""
            row = msgspec.structs.replace(item.row(RowState.TO_DO, because), may_take_s=item.may_take_s)
            self._report(row)
            for other in others.get(item.key, ()):
                self._report(other.row(RowState.TO_DO, f"with '{item.kind.name}': the same machine by fingerprint"))
        return last

    # ------------------------------------------------------------------------------------------------- the work

    def _work(self, items: list[Item], others: Any) -> None:
        """Give items to free nodes until none is left."""
        waiting = list(items)
        busy: dict[Future[bytes], tuple[Item, str]] = {}
        lost: dict[str, int] = {}
        while waiting or busy:
            self._begin(waiting, busy, others)
            if not busy:
                for item in waiting:
                    self._done(item, item.row(RowState.FAILED, NONE_LEFT), others)
                return
            for future in wait(busy, return_when=FIRST_COMPLETED).done:
                item, node = busy.pop(future)
                try:
                    row = finished(self.desk, item, msgspec.json.decode(future.result(), type=Made), self.names[node])
                except NodeLost as problem:
                    lost[item.key] = lost.get(item.key, 0) + 1
                    self._lose(node, f"{item.line.name} on {item.kind.name}: {problem}")
                    if lost[item.key] < ATTEMPTS:
                        waiting.insert(0, item)
                        continue
                    row = item.row(RowState.FAILED, f"{lost[item.key]} nodes were lost: {problem}")
                except CompilotError as problem:
                    row = item.row(RowState.FAILED, str(problem))
                self._done(item, row, others)

    def _in_time(self, item: Item, others: Any) -> Item | None:
        """The item, or where it is too late the next one that asks for the same; None: all are too late."""
        while item.too_late(datetime.now(UTC)):
            late = item.row(RowState.LATE, "its deadline came before it could begin; raise its priority.")
            self._done(item, late, {})
            if not others.get(item.key):
                return None
            item = others[item.key].pop(0)
        return item

    def _begin(self, waiting: list[Item], busy: dict[Future[bytes], tuple[Item, str]], others: Any) -> None:
        """Every free node gets the most urgent item of its kind."""
        waiting[:] = [one for item in waiting if (one := self._in_time(item, others)) is not None]
        taken = {node for _, node in busy.values()} | self.gone
        for item in list(waiting):
            node = next((one for one in item.kind.nodes if one not in taken), None)
            if node is not None:
                waiting.remove(item)
                taken.add(node)
                self.observer.stage(f"{item.line.name} on {item.kind.name}: tuning and packing ({self.names[node]})")
                job = item.job(
                    datetime.now(UTC),
                    upload=self.wish.upload,
                    work=self.wish.work,
                    progress=self.wish.progress,
                    again=self.wish.again,
                )
                busy[self._asked(node, "make_bundle", job)] = (item, node)

    def _done(self, item: Item, row: FleetRow, others: Any) -> None:
        self._report(row)
        self.observer.note(f"{row.model} on {row.machine}: {row.state.value}. {row.because}")
        for other in others.get(item.key, ()):
            same = f"with '{item.kind.name}', the same machine by fingerprint: {row.because}"
            names = {"model": other.line.name, "target": other.line.target, "machine": other.kind.name}
            self._report(msgspec.structs.replace(row, because=same, **names))


def _failed(line: Line, kind: Kind, why: str) -> FleetRow:
    return FleetRow(model=line.name, target=line.target, machine=kind.name, state=RowState.FAILED, because=why)
