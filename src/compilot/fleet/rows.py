"""What a fleet did: one row for each model and kind of machine, and the sum of them. Records only.

In: nothing. Out: `FleetRow`, `FleetReport`; the same JSON is printed, written and shown on the page.
"""

from __future__ import annotations

import enum
from collections import Counter
from pathlib import Path

from compilot.records import Record


class RowState(enum.StrEnum):
    """What came of one model on one kind of machine."""

    PUSHED = "pushed"  # tuned, packed and in the store now
    EAGER = "eager kept"  # nothing was shown to be faster: there is no bundle to push
    UNPROVEN = "not proven"  # the budget was too short to tell: nothing is pushed, and the next run goes on with it
    THERE = "in the store"  # done by an earlier run: the same model, weights, machine and versions
    FAILED = "failed"
    LATE = "too late"  # its deadline passed before it could begin
    NO_MACHINE = "no machine"  # no node is of this kind
    TO_DO = "to do"  # of a dry run, or of a run that was interrupted


DONE = frozenset({RowState.PUSHED, RowState.EAGER, RowState.THERE})


class FleetRow(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One model on one kind of machine."""

    model: str  # the line's name
    target: str
    machine: str  # the kind's name
    state: RowState
    because: str = ""  # the verdict, or what is wrong and what to do
    engine: str = ""
    speedup: float | None = None  # over eager, of the confirmation
    bundle: str = ""  # SHA-256
    signed_by: str = ""  # id of the key
    weights: str = ""  # digest of the weight values
    node: str = ""  # where it was done
    seconds: float | None = None  # that it took
    may_take_s: float | None = None  # at most, before it was begun
    run_dir: str = ""  # on that node


class FleetReport(Record, frozen=True, kw_only=True, omit_defaults=False):
    """All of it."""

    manifest: Path
    store: str  # without its password
    on: str  # the cluster's address; "": this machine alone
    dry_run: bool
    rows: tuple[FleetRow, ...]
    machines: dict[str, str]  # kind -> what it is, for people
    seconds: float
    may_take_s: float | None = None  # all that is to do, at most; of a dry run
    notes: tuple[str, ...] = ()
    page: Path | None = None  # where it was written, as HTML; report.json is beside it

    @property
    def counts(self) -> dict[RowState, int]:
        """How many rows have each state."""
        return dict(Counter(row.state for row in self.rows))

    @property
    def ok(self) -> bool:
        """Nothing failed, nothing was too late, no machine was missing."""
        return not any(row.state in (RowState.FAILED, RowState.LATE, RowState.NO_MACHINE) for row in self.rows)

    @property
    def sentence(self) -> str:
        """The result in one line."""
        counts = self.counts
        if counts and counts.keys() <= {RowState.THERE}:
            return f"nothing to do: the store has all {len(self.rows)} (the same models, weights, machines, versions)."
        order = [state for state in RowState if state in counts]
        return ", ".join(f"{counts[state]} {state.value}" for state in order) + f" (of {len(self.rows)})."
