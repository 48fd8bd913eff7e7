"""Progress as plain lines, for logs and pipes. In: events of a run. Out: one line per event on stderr.

Covered: what is tried and why, how it ended, what is left of the budget. The drawn versions are live.py (in a terminal)
and notebook.py.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from compilot.files.naming import nearby
from compilot.progress import Observer
from compilot.records import Candidate, Plan, Race, RunHeader, Trial, Verdict


class Best:
    """The fastest candidate seen so far, by its screening."""

    def __init__(self) -> None:
        self.label = "eager"
        self.ratio = 1.0

    def see(self, trial: Trial, ratio: float | None) -> None:
        """Take a finished trial into account."""
        if ratio is not None and ratio > self.ratio:
            self.label, self.ratio = trial.candidate.label, ratio

    def __str__(self) -> str:
        return "eager" if self.ratio == 1.0 else f"{self.label} (~{self.ratio:.2f}x)"


class PlainObserver(Observer):
    """Tells each event once, with the time since the start."""

    def __init__(self, *, result: bool = True) -> None:
        """result: say how the run ended, where nobody prints it afterwards."""
        self._result = result
        self._begin = time.monotonic()
        self._best = Best()
        self._run_dir = Path()
        self._nodes: dict[str, str] = {}

    def started(self, header: RunHeader, run_dir: Path) -> None:
        """Which run this is."""
        self._run_dir = run_dir
        self._say(f"tuning {header.workload.label}, budget {clock(header.budget_s)}, writing to {nearby(run_dir)}")

    def stage(self, text: str) -> None:
        """A step of the run."""
        self._say(text)

    def note(self, text: str) -> None:
        """Something to know."""
        self._say(f"note: {text}")

    def trying(self, candidate: Candidate, number: int, remaining_s: float) -> None:
        """A trial begins."""
        left = f"; {clock(remaining_s)} left, best so far {self._best}" if remaining_s > 0 else ""
        self._say(f"trying {number}: {candidate.label} ({candidate.rationale}){left}")

    def at_node(self, node: str, text: str) -> None:
        """What one machine of a cluster does: a line when it turns to something else, not for every step of it."""
        what = text.partition(":")[0]
        if what and self._nodes.get(node) != what and what != "idle":
            self._say(f"  {node}: {what}")
        self._nodes[node] = what

    def finished(self, trial: Trial, ratio: float | None) -> None:
        """A trial ended."""
        self._best.see(trial, ratio)
        self._say(f"  {outcome_line(trial, ratio)}")

    def racing(self, purpose: str, labels: tuple[str, ...], done: int, planned: int) -> None:
        """A race made progress; only its beginning is worth a line."""
        if done == 1:
            self._say(f"{purpose}: up to {planned} pairs with eager, {len(labels)} processes side by side")

    def raced(self, race: Race) -> None:
        """A race ended."""
        self._say(race_line(race))

    def decided(self, verdict: Verdict, plan: Plan) -> None:
        """The plan is written."""
        for line in result_lines(verdict, self._run_dir) if self._result else ():
            self._say(line)

    def interrupted(self, run_dir: Path) -> None:
        """Ctrl-C."""
        if self._result:
            self._say(go_on_line(run_dir))

    def _say(self, text: str) -> None:
        sys.stderr.write(f"[{clock(time.monotonic() - self._begin)}] {text}\n")
        sys.stderr.flush()


def outcome_line(trial: Trial, ratio: float | None) -> str:
    """How a trial ended, in one line: "ok: inductor, cold 8.1 s, ~1.31x"."""
    parts = [f"{trial.state.value}: {trial.candidate.label}"]
    if trial.measurement is not None and trial.same_as is None:
        parts.append(f"cold {trial.measurement.cold_s:.1f} s")
    if ratio is not None:
        parts.append(f"~{ratio:.2f}x")
    if trial.state != "ok":
        parts.append(" ".join(trial.reason.split())[:160])
    return ", ".join(parts)


def pair_text(done: int, planned: int) -> str:
    """How far a set of processes is, counted as the result counts it."""
    return f"pair {done} of at most {planned}"


def race_line(race: Race) -> str:
    """What a race that ended has timed, in the words of the result: "confirm: 3 processes x 80 pairs"."""
    from compilot.verdict.words import size  # numpy comes with it, and a command's help needs none

    pairs = [len(process.rounds) for process in race.processes]
    told = f"{race.purpose}: {size(len(pairs), min(pairs, default=0), sum(pairs))}"
    return f"{told}; {race.load}" if race.load else told


def result_lines(verdict: Verdict, run_dir: Path) -> list[str]:
    """What the run came to, and what its budget did not reach."""
    lines = [f"decided: {verdict.decision.value}, {verdict.because}"]
    if verdict.not_reached is not None:
        from compilot.verdict.unreached import line  # numpy comes with it, and a command's help needs none

        lines.append(line(verdict.not_reached, nearby(run_dir)))
    return lines


def go_on_line(run_dir: Path) -> str:
    """What to do after an interruption, in Python."""
    return f"interrupted; go on with compilot.tune(resume={str(nearby(run_dir))!r})"


def clock(seconds: float) -> str:
    """Minutes and seconds: "4:07"."""
    whole = max(0, round(seconds))
    return f"{whole // 60}:{whole % 60:02d}"
