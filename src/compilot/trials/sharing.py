"""Whose files a candidate can start from. In: a candidate, trials of this run. Out: the trial, or None.

Two candidates that differ in what the process does with freed memory or with denormal numbers have the same program: no
engine asks for either when it builds. What the second one needs are the first one's files; its cold start is the first
one's, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from compilot.records import Candidate, Measurement, State, Trial


def files_for(candidate: Candidate, trials: Iterable[Trial]) -> Trial | None:
    """A trial that worked, with files and the candidate's program; None: there is none."""
    able = (trial for trial in trials if trial.state is State.OK and trial.artifacts and trial.measurement)
    return next((trial for trial in able if trial.candidate.program_id == candidate.program_id), None)


def are_there(trial: Trial, workspace: Path) -> bool:
    """Whether its files, or the folder of a compile cache, still are where they were built."""
    return all((workspace / file.name).exists() for file in trial.artifacts)


def with_cold_start_of(built: Measurement, own: Measurement) -> Measurement:
    """A measurement with what another build of the same program cost."""
    return msgspec.structs.replace(
        own,
        cold_s=built.cold_s,
        cold_cache=built.cold_cache,
        cold_cpu_s=built.cold_cpu_s,
        compiler_runs=built.compiler_runs,
        shared_s=built.shared_s,
        import_s=built.import_s,
    )
