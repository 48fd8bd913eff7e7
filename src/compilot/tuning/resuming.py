"""Going on with an earlier run: is it about this model and machine, and are its files the ones that were measured?

In: a run directory, and the trials in its journal. Out: the trials that can be used as they are. A candidate whose
files are damaged or gone is tried again, from an empty folder: a compiler would take a damaged file of its cache for
its own. Covered: damaged files, runs about another model, machine or number of callers, parts with other limits. Not
covered: folders of somebody else (artifacts/rundir.py), races (measured.py).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence

from compilot.artifacts.rundir import RunDir
from compilot.engines.of_candidate import traits_of
from compilot.errors import RunDirError
from compilot.identity.differences import differences
from compilot.progress import Observer
from compilot.records import JournalLine, Precision, RunHeader, State, Trial, TrialLine
from compilot.verdict.constraints import judged_again
from compilot.verdict.words import count


def refuse_other_callers(run_dir: RunDir, callers: int) -> None:
    """Figures of another number of callers cannot be set beside new ones; said before anything is started."""
    before = run_dir.last_header().concurrency
    if before != callers:
        raise RunDirError(
            f"{run_dir} cannot be resumed: its figures are those of {count(before, 'caller')} at the same time, not of "
            f"{callers}. Leave out objective and concurrency, or start a new run."
        )


def finished_trials(run_dir: RunDir, lines: Sequence[JournalLine], header: RunHeader) -> dict[str, Trial]:
    """The trials of the earlier run, when it was about the same model and machine."""
    first = lines[0]
    assert isinstance(first, RunHeader)  # or it would not have been read
    changed = differences(first.fingerprint, header.fingerprint)
    if changed or first.workload != header.workload:
        why = "; ".join(d.sentence for d in changed) or "another workload or other dynamic dimensions"
        raise RunDirError(f"{run_dir} cannot be resumed: it was made for something else: {why}. Start a new run.")
    found: dict[str, Trial | None] = dict(_judged_now(lines, header))
    return {candidate_id: trial for candidate_id, trial in found.items() if trial is not None}


def _judged_now(lines: Sequence[JournalLine], header: RunHeader) -> Iterator[tuple[str, Trial | None]]:
    """Each trial as this header judges it; None: only another trial can say that.

    All but those in a lower precision that a part with another tolerance judged, which are no news either way.
    """
    before = header
    for line in lines:
        if isinstance(line, RunHeader):
            before = line
        elif isinstance(line, TrialLine):
            alike = before.tolerance == header.tolerance
            if alike or line.trial.candidate.settings.precision is Precision.AS_IS:
                yield line.trial.candidate.id, judged_again(line.trial, before, header)


def judged_otherwise(trials: Iterable[Trial], lines: Sequence[JournalLine]) -> list[Trial]:
    """Those that the limits of now judge otherwise than the journal does."""
    written = {line.trial.candidate.id: line.trial for line in lines if isinstance(line, TrialLine)}
    return [trial for trial in trials if trial != written[trial.candidate.id]]


def usable(trials: dict[str, Trial], run_dir: RunDir, observer: Observer) -> dict[str, Trial]:
    """The trials whose files are as they were measured; those of the others are removed, and why is said."""
    found: dict[str, Trial] = {}
    for candidate_id, trial in trials.items():
        problem = _why_changed(trial, run_dir) if trial.state is State.OK and trial.artifacts else ""
        if problem:
            observer.note(f"{trial.candidate.label} is tried again: {problem}")
            shutil.rmtree(run_dir.workspace(candidate_id), ignore_errors=True)
        else:
            found[candidate_id] = trial
    return found


def _why_changed(trial: Trial, run_dir: RunDir) -> str:
    return run_dir.why_changed(trial, cache=traits_of(trial.candidate).cache_folder)
