"""A trace, its programs and its cost curves as one picture. In: traffic, an engine's costs and a policy. Out: SVG.

Above: how often each size comes, coloured by what serves it; a line at the size of each program. Below: milliseconds of
a call in eager, with a program for that size and with the one for all sizes, and the policy as it was forecast.
Covered: one dimension. Not covered: two (the tables say more there), the same as an interactive chart (shape_chart.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from compilot.records import EngineSizes, PolicyForecast, SizeDemand
from compilot.report import svg
from compilot.report.chart_colours import NEUTRAL, PALETTE
from compilot.report.chart_labels import Axis
from compilot.verdict.policies import ServedSize, who_serves

COUNTS, CURVES, GAP = 120.0, 220.0, 34.0
CHOSEN = "the policy"
COLOURS = {"eager": NEUTRAL, "one size": PALETTE[0], "all sizes": PALETTE[1], CHOSEN: PALETTE[2]}


class _Curve(NamedTuple):
    name: str
    points: list[tuple[int, float]]  # size, milliseconds


def sizes_picture(
    engine: EngineSizes, policy: PolicyForecast, demand: Sequence[SizeDemand], dimension: str
) -> svg.Picture:
    """The picture of one engine's policy; dimension: what its sizes are called."""
    served = who_serves(demand, engine.costs, policy)
    return svg.both(lambda width: _drawn(engine, policy, served, dimension, width))


def legend(engine: EngineSizes) -> tuple[tuple[str, str], ...]:
    """What has which colour."""
    words = {"eager": "eager", "one size": "a program for that size", "all sizes": "one program for all sizes"}
    names = [name for name, cost in _costs(engine) if cost is not None]
    return tuple((svg.colour_class(COLOURS[name]), words.get(name, name)) for name in (*names, CHOSEN))


def _costs(engine: EngineSizes) -> list[tuple[str, object]]:
    costs = engine.costs
    return [("eager", costs.eager), ("one size", costs.static), ("all sizes", costs.dynamic)]


def _drawn(
    engine: EngineSizes, policy: PolicyForecast, served: Sequence[ServedSize], dimension: str, width: float
) -> str:
    curves = [*_measured(engine), _Curve(CHOSEN, [(one.sizes[0], one.call_s * 1e3) for one in served])]
    top = max(size for curve in curves for size, _ in curve.points)
    above = svg.Frame(width, COUNTS + CURVES + 2 * GAP + 44.0, 52.0, 16.0, 24.0, CURVES + GAP + 44.0 + 10.0)
    below = svg.Frame(width, above.height, 52.0, 16.0, COUNTS + 2 * GAP + 10.0, 44.0)
    x = Axis(0.0, float(top), below.across)
    body = [*_bars(served, above, x), *_lines(curves, below, x, dimension)]
    for bucket in policy.buckets:
        place = below.x(x, bucket.sizes[0])
        words = f"a program for size {bucket.sizes[0]}"
        body.append(svg.line("proof", place, above.top, place, below.height - below.bottom))
        body.append(svg.dot("mark", place, above.top, 3.0, words))
    told = ", ".join(str(bucket.sizes[0]) for bucket in policy.buckets) or "none"
    return svg.picture("plot", below, body, f"Sizes of the trace and their cost; programs for one size: {told}.")


def _bars(served: Sequence[ServedSize], frame: svg.Frame, x: Axis) -> list[str]:
    seen = [one for one in served if one.calls]
    y = Axis(0.0, max(one.calls for one in seen) * 1.1, frame.up)
    body = [svg.text("tick", 0, frame.top - 8, "calls")]
    foot = frame.height - frame.bottom
    for one in seen:
        name = one.by if isinstance(one.by, str) else "one size"
        colour = svg.colour_class(COLOURS["all sizes" if name == "dynamic" else name])
        height = foot - frame.y(y, one.calls)
        words = f"size {one.sizes[0]}: {one.calls} calls"
        body.append(svg.rect(f"bar {colour}", frame.x(x, one.sizes[0]) - 1.5, foot - height, 3.0, height, words))
    return body


def _lines(curves: Sequence[_Curve], frame: svg.Frame, x: Axis, dimension: str) -> list[str]:
    y = Axis(0.0, max(ms for curve in curves for _, ms in curve.points) * 1.08, frame.up)
    body = svg.along(frame, x, dimension) + svg.upwards(frame, y, "milliseconds of a call")
    for curve in curves:
        kind = f"curve warm {svg.colour_class(COLOURS[curve.name])}"
        body.append(svg.polyline(kind, [(frame.x(x, size), frame.y(y, ms)) for size, ms in sorted(curve.points)]))
        if curve.name != CHOSEN:
            colour = svg.colour_class(COLOURS[curve.name])
            body += [
                svg.dot(
                    f"dot {colour}", frame.x(x, size), frame.y(y, ms), 3.0, f"{curve.name}, size {size}: {ms:.3g} ms"
                )
                for size, ms in curve.points
            ]
    return body


def _measured(engine: EngineSizes) -> list[_Curve]:
    costs = engine.costs
    named = (("eager", costs.eager), ("one size", costs.static), ("all sizes", costs.dynamic))
    return [
        _Curve(name, [(point.sizes[0], point.call_s * 1e3) for point in cost.points])
        for name, cost in named
        if cost is not None
    ]
