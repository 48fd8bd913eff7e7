"""A plan with its folder, as the run plane takes it: trusted and compared before anything of it is used.

In: what the user gave as a plan. Out: the plan and its folder, then a Source: its entries with the folders of their
files, each checked (artifacts/planfolder.py), and the way to check them once more. UntrustedPlan and ArtifactError say
what is wrong and what to do. Not covered: bundles (bundles.py), what is done with a Source (start.py).
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import NamedTuple

from torch import nn

from compilot.artifacts.homes import doubt_about, home_of
from compilot.artifacts.planfolder import PLAN_NAME, Claim, check_again, checked, needs_of, open_plan
from compilot.errors import PlanError, UntrustedPlan
from compilot.records import Plan, PlanEntry
from compilot.runtime.sources import Source, parts_of
from compilot.runtime.staleness import refuse_stale_plan


class PlanFolder(NamedTuple):
    """A plan that nobody else could have changed, and where its artifacts lie."""

    plan: Plan
    folder: Path | None


def read_plan(
    plan: Plan | str | os.PathLike[str], folder: Path | None = None, *, require_signature: bool = False
) -> PlanFolder:
    """The plan and where its artifacts lie; UntrustedPlan for one that others could have changed."""
    if require_signature:
        what = "the plan" if isinstance(plan, Plan) else str(plan)
        why = "only bundles are signed, and a signature is required"
        raise UntrustedPlan(f"{what} is not used: {why}; pack it with 'compilot pack --sign KEY', and use the bundle.")
    if isinstance(plan, Plan):
        if why := doubt_about(plan):
            raise UntrustedPlan(why)
        return PlanFolder(plan, folder or home_of(plan))
    path = Path(plan)
    if path.is_dir():
        path = path / PLAN_NAME
        if not path.exists():
            raise PlanError(
                f"there is no {PLAN_NAME} in {path.parent}; run 'compilot tune TARGET --out {path.parent}'."
            )
    return PlanFolder(open_plan(path), folder or path.parent)


def plan_source(given: PlanFolder, model: nn.Module, allow_stale: bool) -> Source:
    """The plan, if it fits; every digest of its files is compared."""
    plan, folder = given
    refuse_stale_plan(plan, model, allow_stale)
    claims = [_claim(entry, folder) for entry in plan.entries]
    parts = parts_of(plan, [None if claim is None else checked(claim) for claim in claims])
    return Source(plan, parts, partial(check_again, tuple(claim for claim in claims if claim is not None)))


def _claim(entry: PlanEntry, folder: Path | None) -> Claim | None:
    if folder is None or not entry.artifacts_dir:
        return None
    place = (folder / entry.artifacts_dir).absolute()  # checked again wherever the process stands by then
    return Claim(place, entry.artifacts, needs_of(entry.candidate))
