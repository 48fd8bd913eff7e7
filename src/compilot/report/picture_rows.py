"""Pictures with a line for each candidate: intervals, single calls, starts. In: RunData. Out: SVG, and who is on it.

interval_picture  the speed-up over eager with its 95 % interval (a forest plot); a ring: a short screening alone
calls_picture     single calls, one tick each; the box holds the middle half, the line in it is the median
start_picture     the first call of a process: cold (everything is built) and warm (files of an earlier one are found)
Runs with many candidates show those that matter most; how many are left out is said. Every figure is the table's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from compilot.measure.stats import quantile
from compilot.records import Comparison, State
from compilot.report import svg
from compilot.report.cells import speed_up
from compilot.report.chart_colours import engine_colours, first_engine
from compilot.report.chart_data import LEAST_S
from compilot.report.chart_labels import Axis, spread, spread_log
from compilot.report.data import Row, RunData, comparison, single_calls
from compilot.report.figures import time_text

MOST = 14  # lines of a picture; more are in the table
FEWEST_CALLS = 3  # to be shown
BOX_FROM = 8  # calls: fewer have no quartiles worth the name
TICKS = 160  # calls drawn; of more, evenly many
LEAST_SPREAD = 1.02  # a picture of calls that are all alike still has an axis


class Shown(NamedTuple):
    """The rows of a picture, best first, and how many more there would be."""

    rows: tuple[Row, ...]
    left_out: int


def ranked(data: RunData, has: Callable[[Row], bool]) -> Shown:
    """Eager, the chosen one, those that raced, then the fastest; only those that have the figures."""
    rows = [row for row in data.rows if has(row)]
    order = sorted(rows, key=_rank)
    return Shown(tuple(order[:MOST]), max(len(order) - MOST, 0))


def _rank(row: Row) -> tuple[bool, bool, bool, float]:
    return not _is_eager(row), not row["chosen"], row["speedup_low"] is None, -(row["speedup"] or 0.0)


def _is_eager(row: Row) -> bool:
    return row["speedup_from"] == "baseline"


def _classes(rows: Sequence[Row]) -> dict[str, str]:
    colours = engine_colours(first_engine(row["engine"]) for row in rows)
    return {row["id"]: svg.colour_class(colours[first_engine(row["engine"])]) for row in rows}


def _names(rows: Sequence[Row]) -> list[str]:
    return [f"► {row['candidate']}" if row["chosen"] else row["candidate"] for row in rows]


# ----------------------------------------------------------------------------------------------------------- intervals


def with_speed_up(data: RunData) -> Shown:
    """Who has a speed-up over eager that counts."""
    return ranked(data, lambda row: row["state"] == State.OK and row["speedup"] is not None and not _is_eager(row))


def interval_picture(data: RunData) -> svg.Picture:
    """Right of the grey zone: faster than eager; an interval that touches it shows no difference."""
    rows = with_speed_up(data).rows
    compared = [found[0] for row in rows if (found := comparison(data, row["id"])) is not None]
    return svg.both(lambda width: _intervals(rows, compared, width))


def _intervals(rows: Sequence[Row], compared: Sequence[Comparison], width: float) -> str:
    view = svg.rows_of(_names(rows), width)
    ends = [end for row in rows for end in (row["speedup_low"], row["speedup_high"], row["speedup"]) if end]
    axis = spread([1.0, *ends], view.frame.across, 0.08)
    body = [
        *_no_difference(view, axis, compared),
        *svg.along(view.frame, axis, "times as fast as eager", "{:g}x".format),
    ]
    body.append(svg.line("eager", *_upright(view.frame, view.frame.x(axis, 1.0))))
    classes = _classes(rows)
    for number, row in enumerate(rows):
        body += _interval(view.frame, axis, view.y(number), row, classes[row["id"]])
    words = "; ".join(f"{row['candidate']} {speed_up(row)}" for row in rows)
    return svg.picture(
        "rows", view.frame, [*body, *view.labels([row["chosen"] for row in rows])], f"Speed-ups: {words}."
    )


def _upright(frame: svg.Frame, x: float) -> tuple[float, float, float, float]:
    return x, frame.top, x, frame.height - frame.bottom


def _no_difference(view: svg.Rows, axis: Axis, compared: Sequence[Comparison]) -> list[str]:
    """The widest zone that any of these comparisons does not call a difference."""
    margin = max((one.margin for one in compared), default=0.0)
    low, high = max(1.0 - margin, axis.low), min(1.0 + margin, axis.high)
    if margin <= 0 or high <= low:
        return []
    x, frame = view.frame.x(axis, low), view.frame
    words = f"smaller differences than {margin * 100:.1f} % are not called differences"
    return [svg.rect("band", x, frame.top, frame.x(axis, high) - x, frame.up, words)]


def _interval(frame: svg.Frame, axis: Axis, y: float, row: Row, colour: str) -> list[str]:
    x, words = frame.x(axis, row["speedup"] or 1.0), f"{row['candidate']}: {speed_up(row)}"
    if row["speedup_low"] is None or row["speedup_high"] is None:
        return [svg.dot(f"hollow {colour}", x, y, 5, words)]
    low, high = frame.x(axis, row["speedup_low"]), frame.x(axis, row["speedup_high"])
    ends = [svg.line(f"whisker {colour}", end, y - 5, end, y + 5) for end in (low, high)]
    return [svg.line(f"whisker {colour}", low, y, high, y), *ends, svg.dot(f"dot {colour}", x, y, 5.5, words)]


# -------------------------------------------------------------------------------------------------------- single calls


def with_calls(data: RunData) -> Shown:
    """Who has enough single calls."""
    return ranked(data, lambda row: row["state"] == State.OK and row["calls"] >= FEWEST_CALLS)


def calls_picture(data: RunData) -> svg.Picture:
    """To the left is faster; a narrow heap is steady."""
    return svg.both(lambda width: _calls(data, width))


def _calls(data: RunData, width: float) -> str:
    rows = with_calls(data).rows
    view = svg.rows_of(_names(rows), width)
    samples = [[max(s, 1e-9) for s in single_calls(data, data.trials[row["id"]])] for row in rows]
    axis = spread_log([s for own in samples for s in own], view.frame.across, LEAST_SPREAD)
    body = svg.along(view.frame, axis, "time of a call (log scale)", svg.seconds_tick)
    classes = _classes(rows)
    for number, (row, own) in enumerate(zip(rows, samples, strict=True)):
        body += _box(view.frame, axis, view.y(number), own, classes[row["id"]], row["candidate"])
    words = "; ".join(f"{row['candidate']} {time_text((row['call_p50_ms'] or 0.0) / 1e3)}" for row in rows)
    strong = [row["chosen"] for row in rows]
    return svg.picture("rows", view.frame, [*body, *view.labels(strong)], f"Medians of single calls: {words}.")


def _box(frame: svg.Frame, axis: Axis, y: float, own: Sequence[float], colour: str, name: str) -> list[str]:
    ordered = sorted(own)
    some = ordered if len(ordered) <= TICKS else [ordered[n * (len(ordered) - 1) // (TICKS - 1)] for n in range(TICKS)]
    body = [svg.line(f"call {colour}", x, y - 7, x, y + 7) for x in (frame.x(axis, s) for s in some)]
    if len(own) < BOX_FROM:
        return body
    low, middle, high = (frame.x(axis, quantile(own, q)) for q in (0.25, 0.5, 0.75))
    words = f"{name}: median {time_text(quantile(own, 0.5))} of {len(own)} calls"
    return [
        *body,
        svg.rect(f"box {colour}", low, y - 8, high - low, 16, words),
        svg.line("middle", middle, y - 9, middle, y + 9),
    ]


# -------------------------------------------------------------------------------------------------------------- starts


def with_starts(data: RunData) -> Shown:
    """Who has started."""
    return ranked(data, lambda row: row["state"] == State.OK and row["cold_s"] is not None)


def start_picture(data: RunData) -> svg.Picture:
    """Filled: cold; hollow: warm."""
    return svg.both(lambda width: _starts(data, width))


def _starts(data: RunData, width: float) -> str:
    rows = with_starts(data).rows
    view = svg.rows_of(_names(rows), width, 20.0)
    both = [(max(row["cold_s"] or 0.0, LEAST_S), row["warm_s"]) for row in rows]
    axis = spread_log([s for cold, warm in both for s in (cold, max(warm or cold, LEAST_S))], view.frame.across, 1.4)
    body = svg.along(view.frame, axis, "first call of a process (log scale)", svg.seconds_tick)
    classes = _classes(rows)
    for number, (row, (cold, warm)) in enumerate(zip(rows, both, strict=True)):
        y, x, colour = view.y(number), view.frame.x(axis, cold), classes[row["id"]]
        if warm is not None:
            after = view.frame.x(axis, max(warm, LEAST_S))
            body += [svg.line(f"span {colour}", x, y, after, y)]
            body += [svg.dot(f"hollow {colour}", after, y, 5.5, f"{row['candidate']}: warm {time_text(warm)}")]
        body += [svg.dot(f"dot {colour}", x, y, 5.5, f"{row['candidate']}: cold {time_text(cold)}")]
    words = "; ".join(_start_words(row) for row in rows)
    return svg.picture("rows", view.frame, [*body, *view.labels([row["chosen"] for row in rows])], f"Starts: {words}.")


def _start_words(row: Row) -> str:
    warm = f", warm {time_text(row['warm_s'])}" if row["warm_s"] is not None else ""
    return f"{row['candidate']} cold {time_text(row['cold_s'])}{warm}"
