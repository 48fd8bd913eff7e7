"""The sentinel: what traffic asks for that the live plan does not have, and whether it recurs.

In: each call that eager answered although a plan is live, with its reason. Out: counts by reason and sizes (never
values), an example of what recurs, lines for the event log, and from such a log a report. Counting never compiles
anything: eager has the call already. Not covered: building what recurs (manager.py).
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch

from compilot._tree import Call
from compilot.errors import InputError
from compilot.records import Record
from compilot.serve.keeping import KeptCall, NoExample, form_of, made_like, sizes_of
from compilot.serve.records import EventKind, MissedCalls, SwapEvent, decode_event

MOST_KINDS = 256  # distinct reasons and sizes that are counted apart
RECURS = 32  # calls of one kind until it is worth a build
OTHER = "other calls"


class _Kind(NamedTuple):
    reason: str
    sizes: tuple[tuple[str, tuple[int, ...]], ...]


class Sentinel:
    """Counts missed calls."""

    def __init__(self) -> None:
        self.renew_locks()
        self._counts: Counter[_Kind] = Counter()
        self._wanted: dict[Any, KeptCall] = {}  # by form: recurring calls that nothing was built for yet
        self._known: set[Any] = set()  # forms that a build is under way for, or was
        self._due: dict[_Kind, int] = {}  # at how many calls a kind is worth a build; absent: RECURS
        self._told = 0

    def renew_locks(self) -> None:
        """For the start, and in a forked child: the thread that held one is not there any more."""
        self._lock = threading.Lock()

    def missed(self, reason: str, call: Call, *, adoptable: bool) -> bool:
        """One more; True when it has just become worth a build."""
        kind = _Kind(reason, tuple(sizes_of(call).items()))
        with self._lock:
            if kind not in self._counts and len(self._counts) >= MOST_KINDS:
                kind = _Kind(OTHER, ())
            self._counts[kind] += 1
            count = self._counts[kind]
            if not adoptable or count < self._due.get(kind, RECURS) or kind.reason == OTHER:
                return False
            self._due[kind] = 2 * count  # where nothing comes of it, less and less often
        form = form_of(call)
        with self._lock:
            if form in self._known:
                return False
            self._known.add(form)
        try:
            example = KeptCall(made_like(call), torch.is_grad_enabled())
        except NoExample:  # eager goes on answering such calls
            return False
        with self._lock:
            self._wanted[form] = example
        return True

    def begin_anew(self) -> None:
        """Another plan is live: what recurs from now on is worth a build again."""
        with self._lock:
            self._known.clear()
            self._due = {kind: count + RECURS for kind, count in self._counts.items()}

    def not_built(self, example: KeptCall) -> None:
        """A build for such calls failed; it is wanted again when there are twice as many."""
        with self._lock:
            self._known.discard(form_of(example.call))

    def next_wanted(self) -> KeptCall | None:
        """An example of a recurring kind; each is given once."""
        with self._lock:
            return self._wanted.pop(next(iter(self._wanted))) if self._wanted else None

    def count(self, reason: str) -> int:
        """How often so far, at whatever sizes."""
        with self._lock:
            return sum(count for kind, count in self._counts.items() if kind.reason == reason)

    def by_reason(self) -> dict[str, int]:
        """Calls by reason, the most frequent first."""
        with self._lock:
            found: Counter[str] = Counter()
            for kind, count in self._counts.items():
                found[kind.reason] += count
        return dict(found.most_common())

    def news(self) -> tuple[MissedCalls, ...] | None:
        """Everything so far, where something was added since it was asked last."""
        with self._lock:
            total = sum(self._counts.values())
            if total == self._told:
                return None
            self._told = total
            return tuple(
                MissedCalls(reason=kind.reason, sizes=dict(kind.sizes), calls=count)
                for kind, count in self._counts.most_common()
            )


# -------------------------------------------------------------------------------------------------------- the report


class SentinelReport(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What traffic asked for that the plan does not have, over all processes of a log."""

    path: Path
    processes: int
    calls: int  # that came while a plan was live, as far as the log says
    missed: tuple[MissedCalls, ...]  # the most frequent first
    adopted: tuple[str, ...]  # what was built or proven since, a sentence each
    rolled_back: tuple[str, ...]  # why, the newest last
    recompiles: int  # calls among the missed ones that would have compiled in the request

    @property
    def missed_calls(self) -> int:
        """All of them."""
        return sum(one.calls for one in self.missed)


def read_events(path: Path) -> list[SwapEvent]:
    """The events of a log, its older part first; lines that a killed process or a full disk tore are left out."""
    files = [file for file in (path.with_name(f"{path.name}.1"), path) if file.is_file()]
    if not files:
        raise InputError(f"there is no event log {path}; give log=FILE to compilot.serve.Swap, or see its stats().")
    found = []
    for file in files:
        lines = [line for line in file.read_bytes().splitlines() if line]
        events = [event for line in lines if (event := _event(line)) is not None]
        if len(lines) > 1 and not events:
            raise InputError(f"{file} is no event log of compilot.serve: none of its {len(lines)} lines is an event.")
        found += events
    return found


def _event(line: bytes) -> SwapEvent | None:
    with contextlib.suppress(msgspec.DecodeError):
        return decode_event(line)
    return None


def sentinel_report(file: str | os.PathLike[str]) -> SentinelReport:
    """What traffic asked for that the plan does not have; what `compilot sentinel report` prints."""
    from compilot.serve.bringing import SEALED

    path = Path(file)
    events = read_events(path)
    last = {(event.pid, event.swap): event for event in events if event.kind is EventKind.MISSED}
    missed = _added(one for event in last.values() for one in event.missed)
    return SentinelReport(
        path=path,
        processes=len({event.pid for event in events}),
        calls=sum(event.calls for event in last.values()),
        missed=missed,
        adopted=tuple(event.reason for event in events if event.kind is EventKind.ADOPTED),
        rolled_back=tuple(event.reason for event in events if is_rollback(event)),
        recompiles=sum(one.calls for one in missed if one.reason == SEALED),
    )


def is_rollback(event: SwapEvent) -> bool:
    """Whether a plan was taken back; one that was to replace a live one leaves the state as it is."""
    return event.kind is EventKind.STATE and event.reason.startswith("rolled back")


def _added(parts: Iterable[MissedCalls]) -> tuple[MissedCalls, ...]:
    counts: Counter[_Kind] = Counter()
    for one in parts:
        counts[_Kind(one.reason, tuple(one.sizes.items()))] += one.calls
    return tuple(
        MissedCalls(reason=kind.reason, sizes=dict(kind.sizes), calls=count) for kind, count in counts.most_common()
    )
