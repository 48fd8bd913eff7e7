"""What a model is made fast from: a plan or a bundle, one record for both.

In: entries of a plan, and the folders of their files. Out: `Source`, which exists only for what is trusted, fits this
model and machine, and has had every file compared with its digest; and `ApplyOptions`, what the user says besides.
Opened by plans.py and bundles.py, used by start.py and attachment.py. Light: nothing here imports an engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from compilot.artifacts.bundle_trust import Trust
from compilot.records import BundleEntry, Candidate, Guard, Manifest, Padding, Plan, PlanEntry, SplitCalls


class ApplyOptions(NamedTuple):
    """How a model is made fast, whatever the plan says."""

    trust: Trust = Trust()
    allow_stale: bool = False
    keep_model: bool = True  # False: no fallback, a typed error instead
    inplace: bool = False  # the model's own class is exchanged, last of all
    plain_outputs: bool = False  # output classes that are not imported become plain containers
    check_indices: bool = True  # False: values of inputs are not looked at before they are used as indices
    strict_weights: bool = False  # every weight is looked at in every call


class EntryParts(NamedTuple):
    """One plan entry as the run plane applies it."""

    candidate: Candidate
    guard: Guard
    artifacts: Path | None
    weights_sha256: str | None = None  # of the weights in the artifacts, as the plan says
    caveats: tuple[str, ...] = ()  # as the plan says
    module: str = ""  # as the plan says
    name: str = ""  # as the plan says
    padding: Padding | None = None  # as the plan says
    split: SplitCalls | None = None  # as the plan says


class OpenedBundle(NamedTuple):
    """A bundle whose every file is checked, on disk."""

    path: Path  # what the user gave
    folder: Path  # where its files are
    plan: Plan
    manifest: Manifest
    digest: str  # the bundle's identity

    @property
    def entries(self) -> list[tuple[PlanEntry, BundleEntry]]:
        """What the plan and what the manifest say about each entry."""
        return list(zip(self.plan.entries, self.manifest.entries, strict=True))


class Source(NamedTuple):
    """A plan or a bundle that may be loaded."""

    plan: Plan
    parts: tuple[EntryParts, ...]  # of the plan's entries, in order
    check_again: Callable[[], None]  # raises where the files must not be loaded once more
    bundle: OpenedBundle | None = None  # what a bundle has besides: golden calls, weights, the model's signature

    @property
    def name(self) -> str:
        """How sentences begin that are about it."""
        return "the plan" if self.bundle is None else str(self.bundle.path)


def parts_of(plan: Plan, folders: Iterable[Path | None]) -> tuple[EntryParts, ...]:
    """The plan's entries with the folders of their files."""
    return tuple(
        EntryParts(
            candidate=entry.candidate,
            guard=entry.guard,
            artifacts=folder,
            weights_sha256=entry.weights_sha256,
            caveats=entry.caveats,
            module=entry.module,
            name=entry.name,
            padding=entry.padding,
            split=entry.split,
        )
        for entry, folder in zip(plan.entries, folders, strict=True)
    )
