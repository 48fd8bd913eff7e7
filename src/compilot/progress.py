"""What a run reports while it works. In: events from the pipeline. Out: whatever the observer makes of them.

The pipeline never prints; the commands and `compilot.tune` pass an observer that draws (showing/), tests pass one that
records.
"""

from __future__ import annotations

from pathlib import Path

from compilot.records import Candidate, Plan, Race, RunHeader, Trial, Verdict


class Observer:
    """Base observer: gets every event, does nothing. Override what you care about."""

    def started(self, header: RunHeader, run_dir: Path) -> None:
        """The run directory exists and the journal is open."""

    def stage(self, text: str) -> None:
        """A step that is neither a trial nor a race began ("building the shared C++ header, once per machine")."""

    def note(self, text: str) -> None:
        """Something the user should know ("the model is in train mode ...")."""

    def trying(self, candidate: Candidate, number: int, remaining_s: float) -> None:
        """A trial begins."""

    def doing(self, text: str) -> None:
        """The step within the trial changed ("compiling", "checking", "warming up", "screening")."""

    def at_node(self, node: str, text: str) -> None:
        """What one machine of a cluster does now, beside the others; "": nothing any more."""

    def finished(self, trial: Trial, ratio: float | None) -> None:
        """A trial ended; ratio is the screening speed-up over eager, where there is one."""

    def racing(self, purpose: str, labels: tuple[str, ...], done: int, planned: int) -> None:
        """A race made progress: rounds done of rounds planned."""

    def raced(self, race: Race) -> None:
        """A race ended."""

    def decided(self, verdict: Verdict, plan: Plan) -> None:
        """The plan is written."""

    def interrupted(self, run_dir: Path) -> None:
        """Ctrl-C; what was finished is in this directory, and the run can be continued there."""
