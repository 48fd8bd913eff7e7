"""A plan with its folder, as the run plane takes it: trusted and compared before anything of it is used.

In: what the user gave as a plan. Out: the plan and its folder, then its entries with the folders of their files, each
checked (artifacts/planfolder.py), and the way to check them once more. UntrustedPlan and ArtifactError say what is
wrong and what to do. Not covered: whether the plan fits (apply.py), bundles (bundles.py).
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from compilot.artifacts.homes import doubt_about, home_of
from compilot.artifacts.planfolder import PLAN_NAME, Claim, Needs, check_again, checked, open_plan
from compilot.engines import registry
from compilot.errors import PlanError, UntrustedPlan
from compilot.records import Plan, PlanEntry
from compilot.runtime.fast import Part, Terms


def read_plan(plan: Plan | str | os.PathLike[str], folder: Path | None) -> tuple[Plan, Path | None]:
    """The plan and where its artifacts lie; UntrustedPlan for one that others could have changed."""
    if isinstance(plan, Plan):
        if why := doubt_about(plan):
            raise UntrustedPlan(why)
        return plan, folder or home_of(plan)
    path = Path(plan)
    if path.is_dir():
        path = path / PLAN_NAME
        if not path.exists():
            raise PlanError(f"there is no {PLAN_NAME} in {path.parent}; run 'compilot tune' with --out {path.parent}.")
    return open_plan(path), folder or path.parent


def checked_parts(plan: Plan, folder: Path | None, terms: Terms) -> tuple[tuple[Part, ...], Terms]:
    """The plan's entries with their files, every digest compared, and terms by which they are compared again."""
    claims = [_claim(entry, folder) for entry in plan.entries]
    parts = tuple(
        Part(
            entry.candidate, entry.guard, None if claim is None else checked(claim), entry.weights_sha256, entry.caveats
        )
        for entry, claim in zip(plan.entries, claims, strict=True)
    )
    again = partial(check_again, tuple(claim for claim in claims if claim is not None))
    return parts, terms._replace(before_refresh=again)


def _claim(entry: PlanEntry, folder: Path | None) -> Claim | None:
    if folder is None or not entry.artifacts_dir:
        return None
    place = (folder / entry.artifacts_dir).absolute()  # checked again wherever the process stands by then
    return Claim(place, entry.artifacts, needs_of(entry.candidate.settings.engine))


def needs_of(engine: str) -> Needs:
    """How an engine uses its files."""
    standalone = bool(getattr(registry.load_half(engine), "STANDALONE", False))
    return Needs(cache=registry.needs_compiler(engine), nothing_more=standalone)
