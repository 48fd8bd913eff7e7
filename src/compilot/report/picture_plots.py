"""Pictures with two axes: the Pareto front, and when a start is paid back. In: points, curves. Out: SVG and keys.

front_picture    latency against start, the size is memory; filled and numbered: nothing is better in all three at once
payback_picture  total time against the number of calls, for eager and the finalists; a bar: the 95 % interval
Not covered: the figures (chart_data.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from compilot.report import svg
from compilot.report.chart_colours import KeyRow, curve_colours, engine_colours, first_engine
from compilot.report.chart_data import Curve, ParetoPoint, call_counts, most_calls
from compilot.report.chart_labels import Axis, placed, spread, spread_log
from compilot.report.figures import time_text

SMALLEST, LARGEST = 4.0, 12.0  # radius of the least and the most memory
HEIGHT = 320.0


def _frame(width: float) -> svg.Frame:
    return svg.Frame(width, HEIGHT, 52.0, 16.0, 28.0, 44.0)


# ---------------------------------------------------------------------------------------------------- the Pareto front


def front_picture(points: Sequence[ParetoPoint]) -> svg.Picture:
    """Down and to the left is better, and so is small."""
    return svg.both(lambda width: _front(points, width))


def front_key(points: Sequence[ParetoPoint]) -> list[KeyRow]:
    """Who the numbers are."""
    front = [point for point in points if point.on_front]
    return [KeyRow(str(number), point.label, _figures(point)) for number, point in enumerate(front, 1)]


def _figures(point: ParetoPoint) -> str:
    told = f"{point.latency:.2f} of eager, start {time_text(point.start_s)}, {point.memory_mib:.0f} MiB"
    return f"chosen; {told}" if point.chosen else told


def _front(points: Sequence[ParetoPoint], width: float) -> str:
    frame = _frame(width)
    x = spread_log([point.start_s for point in points], frame.across, 1.8)
    y = spread([point.latency for point in points], frame.up, 0.12)
    body = svg.along(frame, x, "start (log scale)", svg.seconds_tick)
    body += svg.upwards(frame, y, "time of a call, relative to eager")
    colours = engine_colours(first_engine(point.engine) for point in points)
    for point in sorted(points, key=lambda point: -point.memory_mib):  # small ones on top
        kind = "dot" if point.on_front else "hollow"
        place = frame.x(x, point.start_s), frame.y(y, point.latency)
        size = _radius(point.memory_mib, [one.memory_mib for one in points])
        colour = svg.colour_class(colours[first_engine(point.engine)])
        body.append(svg.dot(f"{kind} {colour}", *place, size, f"{point.label}: {_figures(point)}"))
        body += [svg.dot("ring", *place, size + 3.5)] if point.chosen else []
    body += _numbers(points, frame, x, y)
    best = "; ".join(f"{point.label} {_figures(point)}" for point in points if point.on_front)
    return svg.picture("plot", frame, body, f"Latency, start and memory; nothing beats: {best}.")


def _radius(memory_mib: float, every: Sequence[float]) -> float:
    """The area grows with the memory."""
    low, high = min(every), max(every)
    share = (memory_mib - low) / (high - low) if high > low else 0.0
    return math.sqrt(SMALLEST**2 + share * (LARGEST**2 - SMALLEST**2))


def _numbers(points: Sequence[ParetoPoint], frame: svg.Frame, x: Axis, y: Axis) -> list[str]:
    front = [(point.start_s, point.latency) for point in points if point.on_front]
    places = placed(front, x, y, [(point.start_s, point.latency) for point in points], 1.25)
    return [
        svg.text("number", frame.x(x, across), frame.y(y, up) + 4, str(number), "middle")
        for number, (across, up) in enumerate(places, 1)
    ]


# ---------------------------------------------------------------------------------------------------------- paying back


def payback_picture(found: Sequence[Curve]) -> svg.Picture:
    """Eager's line comes first; where another crosses it, a start is paid back."""
    return svg.both(lambda width: _payback(found, width))


def paid(found: Sequence[Curve]) -> list[Curve]:
    """Those that pay back, the soonest first."""
    return sorted((curve for curve in found if curve.break_even), key=lambda curve: curve.break_even or 0)


def payback_key(found: Sequence[Curve]) -> list[KeyRow]:
    """Who the numbers are, and after how many calls."""
    return [KeyRow(str(number), curve.label, paid_words(curve)) for number, curve in enumerate(paid(found), 1)]


def paid_words(curve: Curve) -> str:
    """ "cold start: pays back after 870 calls (95 % 810-940)"."""
    words = f"{curve.start} start: pays back after {curve.break_even:,} calls"
    if curve.break_even_low is None:
        return words
    high = f"{curve.break_even_high:,}" if curve.break_even_high is not None else "never"
    return f"{words} (95 % {curve.break_even_low:,}-{high})"


def _payback(found: Sequence[Curve], width: float) -> str:
    frame, counts = _frame(width), call_counts(most_calls(found))
    x = Axis(1.0, float(most_calls(found)), frame.across, log=True)
    y = spread_log([curve.total_s(calls) for curve in found for calls in (1, counts[-1])], frame.up)
    body = svg.along(frame, x, "calls of a process (log scale)")
    body += svg.upwards(frame, y, "total time (log scale)", svg.seconds_tick)
    colours = curve_colours([(curve.label, curve.engine) for curve in found])
    for curve in reversed(found):  # eager's on top
        kind = f"curve {curve.start} {svg.colour_class(colours[curve.label])}"
        body.append(svg.polyline(kind, [(frame.x(x, n), frame.y(y, curve.total_s(n))) for n in counts]))
    body += _crossings(found, frame, x, y)
    words = "; ".join(f"{curve.label}, {paid_words(curve)}" for curve in paid(found)) or "none pays back"
    return svg.picture("plot", frame, body, f"Total time over the number of calls: {words}.")


def _crossings(found: Sequence[Curve], frame: svg.Frame, x: Axis, y: Axis) -> list[str]:
    """Where lines cross eager's, with the interval along the axis."""
    body, spots = [], []
    for curve in paid(found):
        calls = curve.break_even or 1
        spots.append((float(calls), found[0].total_s(calls)))
        place = frame.x(x, calls), frame.y(y, spots[-1][1])
        if curve.break_even_low is not None:
            low = frame.x(x, max(curve.break_even_low, 1))
            high = frame.x(x, min(curve.break_even_high or x.high, x.high))
            body.append(svg.line("proof", low, place[1], high, place[1]))
        body.append(svg.dot("mark", *place, 4.5, f"{curve.label}, {paid_words(curve)}"))
    for number, (across, up) in enumerate(placed(spots, x, y, (), 1.1), 1):
        body.append(svg.text("number", frame.x(x, across), frame.y(y, up) + 4, str(number), "middle"))
    return body


def curve_legend(found: Sequence[Curve]) -> list[tuple[str, str]]:
    """(class, words) of each line's colour."""
    colours = curve_colours([(curve.label, curve.engine) for curve in found])
    return [(svg.colour_class(colour), label) for label, colour in colours.items()]
