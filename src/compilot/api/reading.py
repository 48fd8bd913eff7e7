"""`compilot.results`: the figures of a run that was made before. In: a run directory or its plan. Out: Results."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from compilot.artifacts import homes
from compilot.errors import InputError
from compilot.records import Plan

if TYPE_CHECKING:
    from compilot.report.results import Results


def results(run: Plan | str | os.PathLike[str]) -> Results:
    """What a tuning run found: one row per candidate, the verdict, the plan; what `compilot tune --json` prints.

    run is a run directory, or a plan that `tune` returned or `load_plan` read from one.
    """
    from compilot.report.results import results_of

    if isinstance(run, Plan):
        return results_of(run_dir_of(run), run)
    return results_of(Path(run).absolute())


def run_dir_of(plan: Plan) -> Path:
    """The run directory that a plan of this process came from."""
    folder = homes.home_of(plan)
    if folder is None:
        raise InputError("this plan came without a run directory; give the directory itself.")
    return folder
