"""Progress drawn in place. In: events of a run. Out: a few lines at the bottom of the terminal that change, on stderr.

Drawing costs CPU, and the cores belong to the measurement: while an arm is timed the picture stands still, and during a
race it changes only between rounds. Finished trials scroll up as lines of their own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from compilot.files.naming import nearby
from compilot.progress import Observer
from compilot.records import Candidate, Plan, Race, RunHeader, Trial, Verdict
from compilot.showing.plain import Best, clock, go_on_line, outcome_line, pair_text, race_line, result_lines

TICK_S = 0.5
TIMED_STEPS = ("warming", "pairing", "timing")  # steps that start with these are measurements: hands off
STILL = " (the display pauses, so that it does not disturb the timing)"
STYLES = {"ok": "green", "pruned": "dim", "wrong": "bold red"}


class LiveObserver(Observer):
    """Draws the run; use it as a context manager so that the terminal is left in order."""

    def __init__(self, budget_s: float | None, console: Console | None = None, *, result: bool = False) -> None:
        """result: leave as last lines how the run ended, where nobody prints it afterwards."""
        self._console = console or Console(stderr=True)
        self._result = result
        self._budget_s = budget_s  # None: the bar shows the pairs of a race instead
        self._rounds: tuple[int, int] | None = None  # done and planned, while a race runs
        self._begin = time.monotonic()
        self._best = Best()
        self._run_dir = Path()
        self._labels: dict[str, str] = {}
        self._what, self._why, self._step = "starting", "", ""
        self._nodes: dict[str, str] = {}  # of a cluster -> what each does
        self._drawn = 0.0
        self._still = False
        # Last: it asks for the picture at once.
        self._live = Live(console=self._console, auto_refresh=False, transient=True, get_renderable=self._picture)
        self._end = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> LiveObserver:
        self._live.start()
        self._ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._ticker.join()
        self._live.stop()

    def started(self, header: RunHeader, run_dir: Path) -> None:
        """Which run this is."""
        self._run_dir = run_dir
        self._line(f"Tuning {header.workload.label}; everything seen goes to {nearby(run_dir)}", "bold")

    def stage(self, text: str) -> None:
        """A step of the run."""
        self._show(text, "", "")

    def note(self, text: str) -> None:
        """Something to know."""
        self._line(f"note: {text}", "yellow")

    def trying(self, candidate: Candidate, number: int, remaining_s: float) -> None:
        """A trial begins."""
        self._labels[candidate.id] = candidate.label
        self._show(f"trying {number}: {candidate.label}", candidate.rationale, "")

    def doing(self, text: str) -> None:
        """The step within the trial."""
        still = text.startswith(TIMED_STEPS)
        self._show(self._what, self._why, text + (STILL if still else ""), still=still)

    def at_node(self, node: str, text: str) -> None:
        """What one machine of a cluster does; this one times nothing, so it may be drawn at any moment."""
        if text:
            self._nodes[node] = text
        else:
            self._nodes.pop(node, None)
        self._still = False
        if time.monotonic() - self._drawn >= TICK_S:
            self._draw()

    def finished(self, trial: Trial, ratio: float | None) -> None:
        """A trial ended."""
        self._best.see(trial, ratio)
        self._line(outcome_line(trial, ratio), STYLES.get(trial.state.value, "yellow"))

    def racing(self, purpose: str, labels: tuple[str, ...], done: int, planned: int) -> None:
        """Between two rounds: the only moment of a race at which drawing disturbs nobody."""
        self._still = True
        arms = ", ".join(dict.fromkeys(self._labels.get(label, label) for label in labels))
        self._what, self._why, self._step = f"{purpose}: {arms}", "", pair_text(done, planned)
        self._rounds = (done, planned)
        if time.monotonic() - self._drawn >= TICK_S:
            self._draw()

    def raced(self, race: Race) -> None:
        """A race ended."""
        self._still = False
        self._line(race_line(race), "yellow" if race.load else "")

    def decided(self, verdict: Verdict, plan: Plan) -> None:
        """The plan is written."""
        self._show("done", "", "")
        if self._result:
            for line in result_lines(verdict, self._run_dir):
                self._line(line, "bold")

    def interrupted(self, run_dir: Path) -> None:
        """Ctrl-C."""
        if self._result:
            self._line(go_on_line(run_dir), "bold")

    def _show(self, what: str, why: str, step: str, *, still: bool = False) -> None:
        self._what, self._why, self._step = what, why, step
        self._rounds = None
        self._draw()
        self._still = still

    def _line(self, text: str, style: str) -> None:
        self._console.print(Text(text, style=style))

    def _tick(self) -> None:
        while not self._end.wait(TICK_S):
            if not self._still:
                self._draw()

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        self._live.refresh()

    def _picture(self) -> Group:
        lines = [Text(self._what, style="cyan")]
        lines += [Text(f"  why: {self._why}", style="dim")] if self._why else []
        lines += [Text(f"  {self._step}", style="dim")] if self._step else []
        lines += [Text(f"  {node}: {text}", style="dim", no_wrap=True) for node, text in sorted(self._nodes.items())]
        elapsed = time.monotonic() - self._begin
        bar = Table.grid(padding=(0, 1))
        cells = self._rounds_bar(elapsed) if self._budget_s is None else self._budget_bar(elapsed, self._budget_s)
        bar.add_row(*cells)
        return Group(*lines, bar)

    def _budget_bar(self, elapsed: float, budget_s: float) -> Sequence[RenderableType]:
        return (
            f"{clock(elapsed)} of {clock(budget_s)}",
            ProgressBar(total=budget_s, completed=min(elapsed, budget_s), width=30),
            f"{clock(max(0.0, budget_s - elapsed))} left",
            Text(f"best so far: {self._best}", style="bold"),
        )

    def _rounds_bar(self, elapsed: float) -> Sequence[RenderableType]:
        """Without a budget: the pairs of the race; outside of one, that something is under way."""
        rounds = self._rounds  # read once: the ticker draws from a thread of its own
        if rounds is None:
            return clock(elapsed), ProgressBar(total=None, pulse=True, width=30)
        done, planned = rounds
        return clock(elapsed), ProgressBar(total=planned, completed=done, width=30), f"{done} of {planned} pairs"
