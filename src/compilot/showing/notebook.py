"""Progress in a notebook. In: events of a run. Out: a bar and a few lines below the cell, changed in place.

It changes when something happens, and during a race once a second between rounds: the cores belong to the measurement.
Needs nothing but the IPython that a notebook brings; nothing is imported to find out whether this is one.
"""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from compilot.files.naming import nearby
from compilot.progress import Observer
from compilot.records import Candidate, Plan, Race, RunHeader, Trial, Verdict
from compilot.showing.plain import Best, clock, go_on_line, outcome_line, pair_text, race_line, result_lines

REDRAW_S = 1.0  # least time between two pictures of a race
Draw = Callable[[str], None]


def in_notebook() -> bool:
    """Does a Jupyter kernel run this code? IPython in a terminal has no kernel."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


class NotebookObserver(Observer):
    """Draws the run as HTML; draw: takes each new picture, by default the output of the current cell."""

    def __init__(self, budget_s: float, draw: Draw | None = None) -> None:
        self._draw = draw or cell_output()
        self._budget_s = budget_s
        self._begin = self._drawn = time.monotonic()
        self._best = Best()
        self._run_dir = Path()
        self._head, self._what = "tuning", "starting"
        self._kept: list[str] = []  # notes and finished trials

    def started(self, header: RunHeader, run_dir: Path) -> None:
        """Which run this is."""
        self._run_dir = run_dir
        self._head = f"tuning {header.workload.label}, writing to {nearby(run_dir)}"
        self._show(self._what)

    def stage(self, text: str) -> None:
        """A step of the run."""
        self._show(text)

    def note(self, text: str) -> None:
        """Something to know."""
        self._keep(f"note: {text}")

    def trying(self, candidate: Candidate, number: int, remaining_s: float) -> None:
        """A trial begins."""
        self._show(f"trying {number}: {candidate.label} ({candidate.rationale})")

    def at_node(self, node: str, text: str) -> None:
        """What one machine of a cluster does; not for every step."""
        if text and time.monotonic() - self._drawn >= REDRAW_S:
            self._show(f"{node}: {text}")

    def finished(self, trial: Trial, ratio: float | None) -> None:
        """A trial ended."""
        self._best.see(trial, ratio)
        self._keep(outcome_line(trial, ratio))

    def racing(self, purpose: str, labels: tuple[str, ...], done: int, planned: int) -> None:
        """Between two rounds."""
        if time.monotonic() - self._drawn >= REDRAW_S:
            self._show(f"{purpose}: {pair_text(done, planned)}")

    def raced(self, race: Race) -> None:
        """A race ended."""
        self._keep(race_line(race))

    def decided(self, verdict: Verdict, plan: Plan) -> None:
        """The plan is written."""
        decided, *more = result_lines(verdict, self._run_dir)
        self._kept += more
        self._show(decided)

    def interrupted(self, run_dir: Path) -> None:
        """The cell was interrupted."""
        self._show(go_on_line(run_dir))

    def _keep(self, line: str) -> None:
        self._kept.append(line)
        self._show(self._what)

    def _show(self, what: str) -> None:
        self._what, self._drawn = what, time.monotonic()
        self._draw(self._picture(self._drawn - self._begin))

    def _picture(self, elapsed_s: float) -> str:
        bar = f'<progress max="{self._budget_s:.0f}" value="{min(elapsed_s, self._budget_s):.0f}"></progress>'
        times = f"{clock(elapsed_s)} of {clock(self._budget_s)}; best so far: {html.escape(str(self._best))}"
        lines = [html.escape(line) for line in (self._head, *self._kept, self._what)]
        lines[0], lines[-1] = f"<b>{lines[0]}</b>", f"<i>{lines[-1]}</i>"
        return "<br>".join([*lines, f"{bar} {times}"])


def cell_output() -> Draw:
    """Shows HTML below the current cell, in the place of what was there."""
    display = import_module("IPython.display")
    handle = display.display(display.HTML(""), display_id=True)
    return lambda text: handle.update(display.HTML(text))
