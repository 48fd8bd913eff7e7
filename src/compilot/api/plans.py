"""Plan files from Python. In: a path, or a plan. Out: the plan, or its file."""

from __future__ import annotations

import os
from pathlib import Path

from compilot.artifacts import homes, planfile, planfolder
from compilot.records import Plan


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """The plan in a file; PlanError names the field that is wrong.

    A plan that others can change may be looked at so; `compile` and `apply_process` refuse it.
    """
    doubt = planfolder.why_not_trusted(Path(path))  # before it is read: later it may be another file
    return homes.remember(planfile.load_plan(Path(path)), Path(path).parent, doubt, name=Path(path).name)


def save_plan(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write a plan; a reader sees the old file or the new one, whole."""
    planfile.save_plan(plan, Path(path))
