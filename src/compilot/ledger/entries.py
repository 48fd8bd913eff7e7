"""One run in one record. In: the lines of a journal, or why they cannot be read. Out: a `RunEntry`.

Covered: finished and interrupted runs, comparisons (bench), directories that are gone or damaged. Figures are those of
the verdict, which the run computed from its confirmation. Pure but for `read_entry`, which reads one journal.
Not covered: raw samples and tables (report/).
"""

from __future__ import annotations

import enum
import fcntl
import hashlib
import os
import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from compilot.artifacts.rundir import RunDir
from compilot.artifacts.state import Ending, KnownRun
from compilot.artifacts.store.layout import machine_id
from compilot.errors import CompilotError
from compilot.records import (
    Comparison,
    Decision,
    DiagnosisLine,
    JournalLine,
    RaceLine,
    Record,
    RunHeader,
    SourceCommit,
    Trial,
    TrialLine,
    Verdict,
    VerdictLine,
)

ID_DIGITS = 12
BENCH = "bench"  # purpose of a race that nothing is decided by
PROVING = (BENCH, "confirm")  # races in fresh processes, which count for more than others


class RunState(enum.StrEnum):
    """What became of a run."""

    DECIDED = "decided"  # it has a verdict
    COMPARED = "compared"  # arms were timed side by side; nothing was to be decided
    RUNNING = "running"
    UNFINISHED = "unfinished"  # interrupted, failed or killed; it can be resumed
    GONE = "gone"  # its directory is no longer there
    UNREADABLE = "unreadable"  # damaged, or written by another version of compilot


class RunEntry(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One run, as `compilot history` lists it."""

    run_dir: str  # absolute; of a run in a store its URL
    state: RunState
    model: str = ""  # the model's class, or the target where nothing more is known
    id: str = ""  # the same wherever the directory lies; "": the journal cannot be read
    target: str | None = None  # None: it was tuned from Python objects
    created: str = ""  # when it began; ISO 8601, UTC
    decision: Decision | None = None
    chosen: str = ""  # label of the chosen candidate
    because: str = ""
    speedup: float | None = None  # of the chosen candidate over eager; None: eager stays, or there is no verdict
    speedup_low: float | None = None  # 95 % interval
    speedup_high: float | None = None
    eager_call_s: float | None = None  # median in the last race in fresh processes; None: there was none
    chosen_call_s: float | None = None  # the same of the chosen candidate; None: eager stays, too
    trials: dict[str, int] = {}  # state -> candidates, by the last trial of each
    objective: str = ""
    budget_s: float | None = None
    machine: str = ""  # the same for the same machine, versions and number of threads
    cpu: str = ""
    torch: str = ""
    python: str = ""
    compilot: str = ""  # version that began it
    commit: str | None = None  # of the model's git repository; None: not known
    dirty: bool = False  # files differed from the commit
    problem: str = ""  # why the journal cannot be read


def read_entry(run_dir: RunDir) -> RunEntry:
    """The entry of a directory's journal; one that cannot be read says why."""
    try:
        first = _first_line(run_dir.journal)
        return entry_of(run_dir.path, run_dir.lines(), hashlib.sha256(first).hexdigest()[:ID_DIGITS])
    except (OSError, CompilotError) as problem:
        return RunEntry(run_dir=str(run_dir.path), state=RunState.UNREADABLE, problem=str(problem))


def entry_of(path: Path, lines: Sequence[JournalLine], run_id: str) -> RunEntry:
    """What a journal says about its run."""
    headers = [line for line in lines if isinstance(line, RunHeader)]
    trials = last_trials(lines)
    verdict = last_verdict(lines)
    source = headers[0].source or SourceCommit(commit="")
    machine = headers[0].fingerprint.machine
    shown = chosen_comparison(verdict, trials)
    eager_s, chosen_s = _call_medians(lines, verdict)
    return RunEntry(
        run_dir=str(path),
        state=_state(lines),
        model=headers[0].workload.label,
        id=run_id,
        target=headers[0].workload.target,
        created=headers[0].created,
        decision=verdict.decision if verdict else None,
        chosen=trials[verdict.chosen_id].candidate.label if verdict and verdict.chosen_id in trials else "",
        because=verdict.because if verdict else "",
        speedup=shown.ratio if shown else None,
        speedup_low=shown.low if shown else None,
        speedup_high=shown.high if shown else None,
        eager_call_s=eager_s,
        chosen_call_s=chosen_s,
        trials=dict(sorted(Counter(trial.state.value for trial in trials.values()).items())),
        objective=headers[-1].objective,
        budget_s=headers[-1].budget_s,
        machine=machine_id(machine),
        cpu=machine.cpu_model,
        torch=machine.torch,
        python=machine.python,
        compilot=headers[0].compilot,
        commit=source.commit or None,
        dirty=source.dirty,
    )


def without_journal(known: KnownRun) -> RunEntry:
    """A run that only the list knows of: its directory is no longer there, or it has not come to its journal."""
    path = known.run_dir.path
    state = RunState.UNFINISHED if path.is_dir() else RunState.GONE
    return RunEntry(run_dir=str(path), state=state, model=known.label, created=known.begun_at)


def as_it_stands(entry: RunEntry, known: KnownRun) -> RunEntry:
    """The entry with what only the list and the moment tell: is it under way, what it is about, when it began."""
    if entry.state is RunState.UNREADABLE:
        return msgspec.structs.replace(entry, model=known.label, created=known.begun_at)
    if known.how is not Ending.PLAN and is_being_written(known.run_dir):  # a decided one, too: it may be gone on with
        return msgspec.structs.replace(entry, state=RunState.RUNNING)
    return entry


def is_being_written(run_dir: RunDir) -> bool:
    """Whether a process holds the journal: its writer locks it for as long as it lives."""
    try:
        fd = os.open(run_dir.journal, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # a file system without locks
    finally:
        os.close(fd)
    return False


def last_trials(lines: Sequence[JournalLine]) -> dict[str, Trial]:
    """The last trial of each candidate, in the order of the first ones."""
    return {line.trial.candidate.id: line.trial for line in lines if isinstance(line, TrialLine)}


def last_verdict(lines: Sequence[JournalLine]) -> Verdict | None:
    """What the run came to; None: to nothing yet."""
    return next((line.verdict for line in reversed(lines) if isinstance(line, VerdictLine)), None)


def layers_in(lines: Sequence[JournalLine]) -> dict[str, str]:
    """The model's layers as the run saw them; none: nobody wrote them down."""
    return next((line.diagnosis.layers for line in reversed(lines) if isinstance(line, DiagnosisLine)), {})


def chosen_comparison(verdict: Verdict | None, trials: dict[str, Trial]) -> Comparison | None:
    """The chosen candidate against eager; None: eager stays, or there is no verdict."""
    if verdict is None or verdict.decision is Decision.KEEP_EAGER:
        return None
    eager = {trial.candidate.id for trial in trials.values() if trial.candidate.is_eager}
    found = (one for one in verdict.comparisons if one.candidate_id == verdict.chosen_id and one.baseline_id in eager)
    return next(found, None) or _over_its_trace(verdict)


def _over_its_trace(verdict: Verdict) -> Comparison | None:
    """The chosen policy against eager, over the requests of the trace; None: there was none."""
    sizes = verdict.sizes
    found = (one for one in sizes.comparisons if one.candidate_id == sizes.arm_id) if sizes else iter(())
    return next(found, None)


def _call_medians(lines: Sequence[JournalLine], verdict: Verdict | None) -> tuple[float | None, float | None]:
    """Seconds of eager's and of the chosen candidate's call, of the same rounds."""
    races = [line.race for line in lines if isinstance(line, RaceLine) and line.race.purpose in PROVING]
    rows = [row for process in races[-1].processes for row in process.rounds] if races else []
    if not rows:
        return None, None
    arms = races[-1].arms
    eager_s = statistics.median(row[0] for row in rows)
    if verdict is None or verdict.chosen_id == arms[0] or verdict.chosen_id not in arms:
        return eager_s, None
    return eager_s, statistics.median(row[arms.index(verdict.chosen_id)] for row in rows)


def _state(lines: Sequence[JournalLine]) -> RunState:
    if last_verdict(lines) is not None:
        return RunState.DECIDED
    compared = any(isinstance(line, RaceLine) and line.race.purpose == BENCH for line in lines)
    return RunState.COMPARED if compared else RunState.UNFINISHED


def _first_line(journal: Path) -> bytes:
    with journal.open("rb") as file:
        return file.readline()
