"""The search over time as a picture. In: a Course. Out: SVG and its key.

Every trial stands where it ended, with a line from its beginning and its speed-up over eager; those that gave no
candidate are in lanes below, one for each state; at the foot, what the time was spent on. Numbers are explained by the
key. Not covered: reading the journal (course.py).
"""

from __future__ import annotations

from typing import NamedTuple

from compilot.records import State
from compilot.report import svg
from compilot.report.chart_colours import KeyRow, engine_colours, first_engine
from compilot.report.chart_labels import Axis, placed, spread
from compilot.report.course import Course, Mark, improvements, keyed, over_budget, spent, timed
from compilot.report.figures import time_text

LANE, BAND, PLOT = 24.0, 22.0, 250.0
PROOF = "◆"
DROPPED = (State.WRONG, State.CRASHED, State.TIMED_OUT, State.INFEASIBLE, State.PRUNED)


class View(NamedTuple):
    """The course, its axes and its room."""

    course: Course
    frame: svg.Frame
    x: Axis
    y: Axis
    lanes: tuple[State, ...]
    colours: dict[str, str]  # engine -> class

    def across(self, seconds: float) -> float:
        """Where a second of the run stands."""
        return self.frame.x(self.x, seconds)

    def up(self, ratio: float) -> float:
        """Where a speed-up stands."""
        return self.frame.top + self.y.length - self.y.pixel(ratio)

    def lane(self, state: State) -> float:
        """The middle of the lane of a state."""
        return self.frame.top + self.y.length + 8 + (self.lanes.index(state) + 0.5) * LANE

    @property
    def foot(self) -> float:
        """The top of the band of phases."""
        return self.frame.top + self.y.length + 12 + LANE * len(self.lanes)


def search_picture(found: Course) -> svg.Picture:
    """The course at both widths."""
    return svg.both(lambda width: _drawn(found, width))


def search_key(found: Course) -> list[KeyRow]:
    """Who the numbers are, and what was confirmed."""
    key = []
    for number, mark in enumerate(keyed(found), 1):
        chosen = "chosen; " if found.chose(mark) else ""
        figures = f"{chosen}{mark.ratio:.2f}x at its trial, ended at {time_text(mark.to_s)}"
        key.append(KeyRow(str(number), mark.label, figures))
    versus = found.ending.versus if found.ending else None
    if versus is not None:
        key.append(KeyRow(PROOF, f"confirmed: {versus.ratio:.2f}x", f"95 % {versus.low:.2f}-{versus.high:.2f}"))
    return key


def _drawn(found: Course, width: float) -> str:
    view = _view(found, width)
    body = [*_axes(view), *_phases(view), *_best(view), *_trials(view), *_dropped(view), *_numbers(view), *_proof(view)]
    return svg.picture("search", view.frame, body, f"The search over time: {spent(found)}.")


def _view(found: Course, width: float) -> View:
    lanes = tuple(state for state in DROPPED if any(mark.state is state for mark in found.marks))
    versus = found.ending.versus if found.ending else None
    ratios = [1.0, *(mark.ratio or 0.0 for mark in timed(found))]
    ratios += [versus.low, versus.high] if versus is not None else []
    left = 78.0 if lanes else 42.0
    frame = svg.Frame(width, PLOT + 30 + LANE * len(lanes) + BAND + 56, left, 14.0, 26.0, 0.0)
    last_s = max(found.end_s, found.budget_s or 0.0) or 1.0
    colours = engine_colours(first_engine(mark.engine) for mark in found.marks)
    classes = {engine: svg.colour_class(colour) for engine, colour in colours.items()}
    return View(found, frame, Axis(0.0, 1.02 * last_s, frame.across), spread(ratios, PLOT, 0.12), lanes, classes)


def _axes(view: View) -> list[str]:
    frame, end = view.frame, view.frame.width - view.frame.right
    body = [svg.text("tick", 0, 14, "speed-up over eager")]
    for tick in svg.round_ticks(view.y, 6):
        y = view.up(tick)
        body += [svg.line("grid", frame.left, y, end, y), svg.text("tick", frame.left - 6, y + 4, f"{tick:g}x", "end")]
    body.append(svg.line("eager", frame.left, view.up(1.0), end, view.up(1.0)))
    budget_s = over_budget(view.course)
    if budget_s is not None:
        body.append(svg.line("eager", view.across(budget_s), frame.top, view.across(budget_s), view.foot))
    for state in view.lanes:
        body.append(svg.text("tick", frame.left - 6, view.lane(state) + 4, state.value, "end"))
    return body


def _phases(view: View) -> list[str]:
    """The parts of the run as bands, named where there is room, and the seconds below."""
    body = []
    for phase in view.course.phases:
        x, width = view.across(phase.from_s), view.x.pixel(phase.to_s) - view.x.pixel(phase.from_s)
        words = f"{phase.name}: {phase.to_s - phase.from_s:.0f} s"
        body.append(svg.rect("band", x + 1, view.foot, width - 2, BAND, words))
        if width >= svg.LETTER * len(phase.name) + 6:
            body.append(svg.text("tick", x + width / 2, view.foot + 15, phase.name, "middle"))
    for tick in svg.ticks_of(view.x):
        body.append(svg.text("tick", view.across(tick), view.foot + BAND + 16, f"{tick:g}", "middle"))
    middle = view.frame.left + view.frame.across / 2
    return [*body, svg.text("tick", middle, view.foot + BAND + 34, "seconds of the run", "middle")]


def _best(view: View) -> list[str]:
    """The best so far, until the last trial ended."""
    found = improvements(timed(view.course))
    places: list[tuple[float, float]] = []
    for mark in found:
        x, y = view.across(mark.to_s), view.up(mark.ratio or 0.0)
        places += [(x, places[-1][1])] if places else []
        places.append((x, y))
    places += [(view.across(view.course.marks[-1].to_s), places[-1][1])] if places else []
    return [svg.polyline("best", places)]


def _words(mark: Mark) -> str:
    figure = f"{mark.ratio:.2f}x; " if mark.ratio is not None else ""
    return f"{mark.label}: {figure}{mark.state.value}. {mark.reason}"


def _trials(view: View) -> list[str]:
    body = []
    for mark in timed(view.course):
        colour, y = view.colours[first_engine(mark.engine)], view.up(mark.ratio or 0.0)
        body.append(svg.line(f"span {colour}", view.across(mark.from_s), y, view.across(mark.to_s), y))
        body.append(svg.dot(f"dot {colour}", view.across(mark.to_s), y, 5, _words(mark)))
        if view.course.chose(mark):
            body.append(svg.dot("ring", view.across(mark.to_s), y, 9))
    return body


def _dropped(view: View) -> list[str]:
    body = []
    for mark in (mark for mark in view.course.marks if mark.state in view.lanes):
        colour, y = view.colours[first_engine(mark.engine)], view.lane(mark.state)
        body.append(svg.line(f"span {colour}", view.across(mark.from_s), y, view.across(mark.to_s), y))
        body.append(svg.diamond(f"dot {colour}", view.across(mark.to_s), y, 6, _words(mark)))
    return body


def _numbers(view: View) -> list[str]:
    """Those of the key, beside their marks and not on others."""
    named = keyed(view.course)
    others = [(mark.to_s, mark.ratio or 0.0) for mark in timed(view.course) if mark not in named]
    places = placed([(mark.to_s, mark.ratio or 0.0) for mark in named], view.x, view.y, others, 1.1)
    return [
        svg.text("number", view.across(x), view.up(y) + 4, str(number), "middle")
        for number, (x, y) in enumerate(places, 1)
    ]


def _proof(view: View) -> list[str]:
    """The confirmed figure of the chosen one with its interval."""
    ending = view.course.ending
    if ending is None or ending.versus is None:
        return []
    x, versus = view.across(ending.at_s), ending.versus
    words = f"confirmed: {versus.ratio:.2f}x, 95 % {versus.low:.2f}-{versus.high:.2f}"
    return [
        svg.line("proof", x, view.up(versus.low), x, view.up(versus.high)),
        svg.diamond("mark", x, view.up(versus.ratio), 6, words),
    ]
