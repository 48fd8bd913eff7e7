"""Going on with an earlier run: whose folder is it, and are its files still the ones that were measured?

In: a run directory, and the trials in its journal. Out: the trials that can be used as they are. A candidate whose
files are damaged or gone is tried again, from an empty folder: a compiler would take a damaged file of its cache for
its own. Covered: folders of somebody else (UntrustedPlan, before anything of them is read), damaged files, runs that
were about another model or machine. Not covered: races (measured.py).
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from compilot.artifacts.planfolder import Claim, Needs, checked, refuse_foreign
from compilot.engines import registry
from compilot.errors import ArtifactError, RunDirError
from compilot.identity.differences import differences
from compilot.progress import Observer
from compilot.records import JournalLine, Precision, RunHeader, State, Trial, TrialLine


def refuse_foreign_run(run_dir: Path, journal: str) -> None:
    """UntrustedPlan for a run of which somebody else can change the journal or a candidate's files."""
    refuse_foreign(run_dir, (run_dir / journal, *sorted((run_dir / "work").glob("*"))))


def refuse_a_second_run(run_dir: Path, journal: str, resume: bool) -> None:
    """Before anything is written: a directory that holds a run is resumed or left alone."""
    if not resume and (run_dir / journal).exists():
        raise RunDirError(f"{run_dir} already holds a run; pass --resume {run_dir} to go on with it, or another --out.")


def finished_trials(run_dir: Path, lines: Sequence[JournalLine], header: RunHeader) -> dict[str, Trial]:
    """The trials of the earlier run, when it was about the same model and machine."""
    first = lines[0]
    assert isinstance(first, RunHeader)  # or it would not have been read
    changed = differences(first.fingerprint, header.fingerprint)
    if changed or first.workload != header.workload:
        why = "; ".join(d.sentence for d in changed) or "another workload or other dynamic dimensions"
        raise RunDirError(f"{run_dir} cannot be resumed: it was made for something else: {why}. Start a new run.")
    trials = [line.trial for line in lines if isinstance(line, TrialLine)]
    if first.tolerance != header.tolerance:  # judged by another measure
        trials = [t for t in trials if t.candidate.settings.precision is Precision.AS_IS]
    return {trial.candidate.id: trial for trial in trials}


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
    needs = Needs(cache=registry.needs_compiler(trial.candidate.settings.engine))
    folder = run_dir / "work" / trial.candidate.id
    if missing := next((file.name for file in trial.artifacts if not (folder / file.name).exists()), None):
        return f"{folder / missing} is missing"
    try:
        checked(Claim(folder, trial.artifacts, needs))
    except ArtifactError as problem:
        return str(problem).partition(";")[0]
    return ""
