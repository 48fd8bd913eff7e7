"""A run that is under way, from what it writes. In: a run directory. Out: `News` whenever there is some.

The journal is read on from where the last look ended, so a look costs next to nothing: the cores belong to the run.
What it does at this moment stands in progress.json. Covered: runs that begin, are resumed, end, or are killed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import msgspec

from compilot.artifacts import progress_file
from compilot.artifacts.progress_file import Doing
from compilot.artifacts.rundir import RunDir
from compilot.ledger.entries import is_being_written
from compilot.records import JournalLine, Record, RunHeader, TrialLine, VerdictLine
from compilot.verdict.finalists import screening_ratio

_decoder = msgspec.json.Decoder(JournalLine)


class TrialNews(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One trial that ended."""

    id: str
    label: str
    state: str
    cold_s: float | None
    ratio: float | None  # speed-up over eager by a short screening
    reason: str
    at_s: float


class News(Record, frozen=True, kw_only=True, omit_defaults=False):
    """A run as it stands."""

    live: bool  # a process is writing to it
    elapsed_s: float
    budget_s: float | None
    doing: Doing | None  # None: it ended, or says nothing
    trials: tuple[TrialNews, ...]  # the last of each candidate, newest last
    verdict: str = ""  # "": there is none yet
    problem: str = ""  # why the journal cannot be read on


class Follower:
    """Reads one run on and on."""

    def __init__(self, run_dir: RunDir, clock: Callable[[], float] = time.time) -> None:
        self._run_dir, self._clock = run_dir, clock
        self._read_bytes = 0
        self._at_s, self._verdict, self._problem = 0.0, "", ""
        self._budget_s: float | None = None
        self._trials: dict[str, TrialNews] = {}
        self._said: News | None = None

    def news(self) -> News | None:
        """The run as it stands; None: as it was at the last look, but for the seconds."""
        live = is_being_written(self._run_dir)  # before reading: what it wrote last is not missed
        self._read_on()
        doing = progress_file.read(self._run_dir.path) if live else None
        found = News(
            live=live,
            elapsed_s=round(self._elapsed(doing), 1),
            budget_s=self._budget_s,
            doing=doing,
            trials=tuple(self._trials.values()),
            verdict=self._verdict,
            problem=self._problem,
        )
        before, self._said = self._said, found
        same = before is not None and msgspec.structs.replace(before, elapsed_s=found.elapsed_s) == found
        return None if same else found

    def _elapsed(self, doing: Doing | None) -> float:
        if doing is None:
            return self._at_s
        try:
            written = os.stat(self._run_dir.path / progress_file.FILE_NAME).st_mtime
        except OSError:
            return doing.elapsed_s
        return doing.elapsed_s + max(0.0, self._clock() - written)

    def _read_on(self) -> None:
        try:
            with self._run_dir.journal.open("rb") as file:
                file.seek(self._read_bytes)
                data = file.read()
        except OSError as problem:
            self._problem = str(problem)
            return
        whole = data[: data.rfind(b"\n") + 1]  # the last line may be half written
        self._read_bytes += len(whole)
        for raw in whole.splitlines():
            try:
                self._take(_decoder.decode(raw))
            except (msgspec.DecodeError, UnicodeDecodeError) as problem:
                self._problem = f"a line of the journal cannot be read: {problem}"

    def _take(self, line: JournalLine) -> None:
        self._at_s = max(self._at_s, getattr(line, "at_s", 0.0))
        if isinstance(line, RunHeader):
            self._budget_s, self._at_s, self._verdict = line.budget_s, 0.0, ""
        elif isinstance(line, VerdictLine):
            self._verdict = f"{line.verdict.decision.value}: {line.verdict.because}"
        elif isinstance(line, TrialLine):
            trial = line.trial
            self._trials.pop(trial.candidate.id, None)
            self._trials[trial.candidate.id] = TrialNews(
                id=trial.candidate.id,
                label=trial.candidate.label,
                state=trial.state.value,
                cold_s=trial.measurement.cold_s if trial.measurement is not None and trial.same_as is None else None,
                ratio=screening_ratio(trial),
                reason=" ".join(trial.reason.split())[:300],
                at_s=line.at_s,
            )
