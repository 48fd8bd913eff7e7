"""Going on with an earlier run: whose folder is it, and are its files still the ones that were measured?

In: a run directory, and the trials in its journal. Out: the trials that can be used as they are. A candidate whose
files are damaged or gone is tried again, from an empty folder: a compiler would take a damaged file of its cache for
its own. Covered: folders of somebody else (UntrustedPlan, before anything of them is read), damaged files. Not covered:
whether the run was about this model and machine (pipeline.py).
"""

from __future__ import annotations

import shutil
from pathlib import Path

from compilot.artifacts.planfolder import Claim, Needs, checked, refuse_foreign
from compilot.engines import registry
from compilot.errors import ArtifactError
from compilot.progress import Observer
from compilot.records import State, Trial


def refuse_foreign_run(run_dir: Path, journal: str) -> None:
    """UntrustedPlan for a run of which somebody else can change the journal or a candidate's files."""
    refuse_foreign(run_dir, (run_dir / journal, *sorted((run_dir / "work").glob("*"))))


def usable(trials: dict[str, Trial], run_dir: Path, observer: Observer) -> dict[str, Trial]:
    """The trials whose files are as they were measured; those of the others are removed, and why is said."""
    found: dict[str, Trial] = {}
    for candidate_id, trial in trials.items():
        problem = why_changed(trial, run_dir) if trial.state is State.OK else ""
        if problem:
            observer.note(f"{trial.candidate.label} is tried again: {problem}")
            shutil.rmtree(run_dir / "work" / candidate_id, ignore_errors=True)
        else:
            found[candidate_id] = trial
    return found


def why_changed(trial: Trial, run_dir: Path) -> str:
    """Why a trial's files are not the ones that were measured; "": they are."""
    needs = Needs(cache=registry.traits(trial.candidate.settings.engine).cache_folder)
    folder = run_dir / "work" / trial.candidate.id
    if missing := next((file.name for file in trial.artifacts if not (folder / file.name).exists()), None):
        return f"{folder / missing} is missing"
    try:
        checked(Claim(folder, trial.artifacts, needs))
    except ArtifactError as problem:
        return str(problem).partition(";")[0]
    return ""
