"""What a push and a pull tell the user. In: what was done. Out: the bundle's entry in the store, and how it went."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from compilot.artifacts.store import Pulled, Pushed
from compilot.artifacts.store.layout import StoreEntry


class PushedBundle(StoreEntry, frozen=True, kw_only=True, omit_defaults=False):
    """A bundle that was pushed: its entry in the store."""

    was_there: bool  # the same bytes were pushed before


class PulledBundle(StoreEntry, frozen=True, kw_only=True, omit_defaults=False):
    """A bundle that was pulled: its entry in the store; `signed_by` is the trusted key that signed it, None: nobody."""

    path: Path  # where it is now
    because: str = ""  # why this one
    note: str = ""  # what else could have been chosen
    skipped: tuple[str, ...] = ()  # better fits that nobody trusted signed, a sentence each
    unproven: tuple[str, ...] = ()  # what differs from where its speed was measured, a sentence each
    fetched_bytes: int = 0  # 0: the file was there already
    resumed_bytes: int = 0  # of an earlier attempt that broke off


def pushed_bundle(done: Pushed) -> PushedBundle:
    """The answer of a push."""
    return PushedBundle(**_fields(done.entry), was_there=done.was_there)


def pulled_bundle(done: Pulled) -> PulledBundle:
    """The answer of a pull."""
    return PulledBundle(
        **_fields(done.fit.entry) | {"signed_by": done.signed_by},
        path=done.path,
        because=done.fit.because,
        note=done.fit.note,
        skipped=done.skipped,
        unproven=tuple(difference.sentence for difference in done.fit.unproven),
        fetched_bytes=done.transfer.fetched_bytes if done.transfer else 0,
        resumed_bytes=done.transfer.resumed_bytes if done.transfer else 0,
    )


def _fields(entry: StoreEntry) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in StoreEntry.__struct_fields__}
