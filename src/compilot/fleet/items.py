"""What there is to do: one item for each model and kind of machine. In: manifest, kinds, models, marks. Out: items.

Pure but for the traces it reads. Their order is that of the work: priority, then deadline, then the manifest's order.
Covered: how long it may take, by playing the work through on so many nodes. Not covered: doing it (running.py).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from compilot.fleet.jobs import Job, key_of, request_of, trace_bytes
from compilot.fleet.kinds import Kind
from compilot.fleet.manifest import Line, Manifest, deadline_of
from compilot.fleet.marks import Mark, mark_name
from compilot.fleet.rows import FleetRow, RowState
from compilot.records import ModelFingerprint

PACKING_S = 60.0  # that packing may take beside a budget: it starts the packed plan, and may look for a twin
LEAST_BUDGET_S = 20.0  # with less before a deadline nothing is begun: eager alone takes some seconds


class Item(NamedTuple):
    """One model on one kind of machine."""

    line: Line
    kind: Kind
    model: ModelFingerprint
    key: str
    deadline: datetime | None

    @property
    def mark(self) -> str:
        """Where the store remembers it."""
        return mark_name(self.key, self.model, self.kind.fingerprint)

    @property
    def budget_s(self) -> float:
        return self.line.options.budget_s

    @property
    def may_take_s(self) -> float:
        """At most, as far as that can be told before."""
        return self.budget_s + PACKING_S

    def job(self, now: datetime, **how: object) -> Job:
        """What a node is asked for; its budget ends with the deadline."""
        left = self.budget_s if self.deadline is None else (self.deadline - now).total_seconds()
        return Job(
            key=self.key,
            name=self.line.name,
            target=self.line.target,
            dynamic=self.line.dynamic,
            trace=trace_bytes(self.line),
            budget_s=min(self.budget_s, left),
            options=request_of(self.line),
            carry_weights=self.line.given.carry_weights,
            **how,  # type: ignore[arg-type]
        )

    def too_late(self, now: datetime) -> bool:
        """Whether too little is left before its deadline."""
        return self.deadline is not None and (self.deadline - now).total_seconds() < LEAST_BUDGET_S

    def row(self, state: RowState, because: str = "") -> FleetRow:
        """What is reported of it."""
        return FleetRow(
            model=self.line.name,
            target=self.line.target,
            machine=self.kind.name,
            state=state,
            because=because,
            weights=self.model.weights_sha256 or "",
        )


def wanted(manifest: Manifest, kinds: Sequence[Kind]) -> list[tuple[Line, Kind]]:
    """Every line with every kind that it asks for."""
    return [
        (line, kind)
        for line in manifest.lines
        for kind in kinds
        if not line.machines or not kind.line or kind.line in line.machines
    ]


def without_machine(manifest: Manifest, kinds: Sequence[Kind]) -> list[FleetRow]:
    """Rows of lines that ask for machines of which no node is there."""
    there = {kind.line for kind in kinds}
    missing = [name for name in manifest.machines if name not in there]
    why = "no node of this kind is there; check [machines] of the manifest, or start such a node."
    return [
        FleetRow(model=line.name, target=line.target, machine=name, state=RowState.NO_MACHINE, because=why)
        for line in manifest.lines
        for name in missing
        if not line.machines or name in line.machines
    ]


def item_of(line: Line, kind: Kind, model: ModelFingerprint, start: datetime) -> Item:
    """One item, with its key."""
    return Item(line, kind, model, key_of(line, model, kind.fingerprint), deadline_of(line, start))


def in_order(items: Iterable[Item]) -> list[Item]:
    """The most urgent first."""
    return sorted(
        items,
        key=lambda item: (-item.line.given.priority, item.deadline.timestamp() if item.deadline else math.inf),
    )


def there_already(item: Item, mark: Mark) -> FleetRow:
    """The row of what an earlier run did."""
    what = f"bundle {mark.bundle[:12]}" if mark.bundle else "eager is kept"
    row = item.row(RowState.THERE, f"{what}, {mark.created[:10]}: {mark.because}")
    return _with(row, engine=mark.engine, speedup=mark.speedup, bundle=mark.bundle)


def _with(row: FleetRow, **fields: object) -> FleetRow:
    import msgspec

    return msgspec.structs.replace(row, **fields)


def played(items: Sequence[Item]) -> tuple[dict[int, float], float]:
    """When each item would be done at the latest, in seconds from now, on so many nodes of its kind; and the last."""
    free: dict[str, list[float]] = {}
    ends: dict[int, float] = {}
    for number, item in enumerate(items):
        nodes = free.setdefault(item.kind.name, [0.0] * len(item.kind.nodes))
        end = heapq.heappop(nodes) + item.may_take_s
        heapq.heappush(nodes, end)
        ends[number] = end
    return ends, max(ends.values(), default=0.0)


def first_of_each(items: Iterable[Item]) -> tuple[list[Item], Mapping[str, list[Item]]]:
    """One item for each key, and by key the others that it does, too: names for machines that are the same."""
    firsts: dict[str, Item] = {}
    others: dict[str, list[Item]] = {}
    for item in items:
        if item.key in firsts:
            others.setdefault(item.key, []).append(item)
        else:
            firsts[item.key] = item
    return list(firsts.values()), others
