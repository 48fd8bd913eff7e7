"""Charts of a run, in one style. In: a run directory, or what was read from it. Out: altair charts. Needs altair.

search_chart       the course of a search: speed-up at each trial, the best so far, what the time was spent on
pareto_chart       latency against start, the size is memory
break_even_chart   total time against the number of calls, for eager and the finalists
steps_chart        where the seconds of trials went
boundary_chart     the module tree and what runs where
batch_chart        samples per second against the batch size, where batch sizes were measured
shape_chart        the sizes of a trace, what serves them, and what calls cost, where there was a trace
Every chart holds its own data: no address, no file. Candidates that matter have numbers, and a key beside the chart
says who they are. Not covered: files (chart_files.py), colours and fonts (chart_style.py), the data (chart_data.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import altair as alt
import msgspec

from compilot.artifacts.rundir import RunDir
from compilot.report.batch_chart import batch_chart as batch_chart
from compilot.report.batches import batch_sizes, engines_of_plans
from compilot.report.boundary_chart import boundary_chart as boundary_chart
from compilot.report.boxes import tree_of
from compilot.report.chart_colours import NEUTRAL, PALETTE, KeyRow, curve_colours
from compilot.report.chart_data import (
    REST,
    STEPS,
    Curve,
    ParetoPoint,
    StepSeconds,
    call_counts,
    curves,
    most_calls,
    pareto_points,
    step_seconds,
)
from compilot.report.chart_labels import Axis, placed, spread, spread_log
from compilot.report.chart_style import WIDTH, engine_colour, layered, plot, title, with_key
from compilot.report.course import course
from compilot.report.data import read_run
from compilot.report.figures import time_text
from compilot.report.search_chart import search_chart as search_chart
from compilot.report.shape_chart import shape_chart as shape_chart
from compilot.report.sizes import demand_of, drawn_policy, served_sizes

HEIGHT = 320
BAR = 24
STEP_COLOURS = dict(zip((*STEPS, REST), (*PALETTE, NEUTRAL), strict=True))


class RunCharts(NamedTuple):
    """The charts of a run by name, and why others cannot be drawn."""

    label: str  # of the model
    charts: dict[str, alt.HConcatChart | alt.VConcatChart]
    left_out: dict[str, str]


def run_charts(run_dir: Path) -> RunCharts:
    """Every chart that the run has the figures for; raises RunDirError where there is no run."""
    data = read_run(run_dir)
    label = data.header.workload.label
    search, points = course(RunDir(run_dir).lines()), pareto_points(data)
    lines, steps, modules = curves(data), step_seconds(data), tree_of(data)
    drawn: dict[str, alt.HConcatChart | alt.VConcatChart | str] = {
        "search": search_chart(search, label) if search.marks else "no trial has ended yet",
        "pareto": pareto_chart(points, label) if points else "no candidate has latency, start and memory",
        "break-even": break_even_chart(lines, label) if lines else "no candidate has raced yet",
        "steps": steps_chart(steps, label) if steps else "no trial says where its seconds went",
        "boundary": boundary_chart(modules, label) if modules else "nothing is decided, or no submodule was timed",
    }
    if (batches := batch_sizes(RunDir(run_dir).lines())) is not None:
        engines = {row["id"]: row["engine"] for row in data.rows} | engines_of_plans(RunDir(run_dir).lines())
        drawn["batch-sizes"] = batch_chart(batches, engines, label)
    if (sizes := _sizes_chart(run_dir, label)) is not None:
        drawn["sizes"] = sizes
    return RunCharts(
        label=label,
        charts={name: chart for name, chart in drawn.items() if not isinstance(chart, str)},
        left_out={name: why for name, why in drawn.items() if isinstance(why, str)},
    )


def _sizes_chart(run_dir: Path, label: str) -> alt.VConcatChart | None:
    """The trace, its programs and cost curves; None: there was no trace, or it varies in two dimensions."""
    lines = RunDir(run_dir).lines()
    found = served_sizes(lines)
    drawn = drawn_policy(found) if found is not None else None
    if found is None or drawn is None or len(found.dims) != 1:
        return None
    engine, policy = drawn
    choice = msgspec.structs.replace(engine.choice, chosen=policy)
    return shape_chart(choice, demand_of(lines), engine.costs, label, found.dims[0].label)


# ---------------------------------------------------------------------------------------------------- the Pareto front


def pareto_chart(points: Sequence[ParetoPoint], model: str) -> alt.HConcatChart:
    """Down and to the left is better, and so is small; filled and numbered: nothing is better in all three at once."""
    across = spread_log([point.start_s for point in points], WIDTH)
    up = spread([point.latency for point in points], HEIGHT, 0.1)
    size = alt.Size("memory_mib:Q", title="peak memory, MiB", scale=alt.Scale(range=[50, 500], zero=False))
    base = plot(points).encode(
        x=_log("start_s", across, "start, seconds (log scale)"),
        y=_linear("latency", up, "time of a call, relative to eager"),
        color=engine_colour(point.engine for point in points),
        size=size.legend(values=_sizes(points)),
        tooltip=[
            *(alt.Tooltip(f"{name}:N") for name in ("label", "engine")),
            *(alt.Tooltip(f"{name}:Q", format=".3~g") for name in ("latency", "start_s", "memory_mib")),
        ],
    )
    front = [point for point in points if point.on_front]
    layers = [
        base.transform_filter("!datum.on_front").mark_point(strokeWidth=2, opacity=1),
        base.transform_filter("datum.on_front").mark_point(filled=True, opacity=0.9),
        _numbers(
            [(p.start_s, p.latency) for p in front], across, up, [(p.start_s, p.latency) for p in points], gap=1.3
        ),
    ]
    key = [_pareto_row(number, point) for number, point in enumerate(front, 1)]
    chart = with_key(layered(layers, HEIGHT), key)
    below = "filled: nothing else is better in all three at once. Left, low and small is good"
    return chart.properties(title=title(f"Latency, start and memory: {model}", below))


def _sizes(points: Sequence[ParetoPoint]) -> list[int]:
    """The least, a middle and the largest memory, for the legend."""
    found = sorted(point.memory_mib for point in points)
    return sorted({round(found[0]), round((found[0] + found[-1]) / 2), round(found[-1])})


def _pareto_row(number: int, point: ParetoPoint) -> KeyRow:
    figures = f"{point.latency:.2f} of eager, start {time_text(point.start_s)}, {point.memory_mib:.0f} MiB"
    return KeyRow(str(number), point.label, f"chosen; {figures}" if point.chosen else figures)


# ---------------------------------------------------------------------------------------------------------- break-even


def break_even_chart(found: Sequence[Curve], model: str) -> alt.HConcatChart:
    """Eager's line comes first; where another crosses it, a start is paid back."""
    values = _totals(found)
    across = Axis(1.0, float(most_calls(found)), WIDTH, log=True)
    up = spread_log([value.total_s for value in values], HEIGHT)
    x, y = _log("calls", across, "calls of a process (log scale)"), _log_up("total_s", up, "total seconds (log scale)")
    paid = sorted((curve for curve in found if curve.break_even), key=lambda curve: curve.break_even or 0)
    spots = [(float(curve.break_even or 1), found[0].total_s(curve.break_even or 1)) for curve in paid]
    crossings = plot({"calls": calls, "total_s": total_s} for calls, total_s in spots)
    layers = [
        _lines(found, values).encode(x=x, y=y),
        crossings.mark_point(style="proof", filled=True, size=60, opacity=1).encode(x=x, y=y),
        _numbers(spots, across, up, [(float(value.calls), value.total_s) for value in values]),
    ]
    key = [_paid_row(number, curve) for number, curve in enumerate(paid, 1)]
    chart = with_key(layered(layers, HEIGHT), key)
    below = "time of a process that starts and calls; a candidate pays back where its line crosses eager's"
    return chart.properties(title=title(f"When a start is paid back: {model}", below))


class Total(NamedTuple):
    """One point of a line."""

    calls: int
    total_s: float
    candidate: str
    start: str


def _totals(found: Sequence[Curve]) -> list[Total]:
    counts = call_counts(most_calls(found))
    return [Total(calls, curve.total_s(calls), curve.label, curve.start) for curve in found for calls in counts]


def _lines(found: Sequence[Curve], values: Sequence[Total]) -> alt.Chart:
    """Colour by candidate, dashed after a warm start."""
    colours = curve_colours([(curve.label, curve.engine) for curve in found])
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    colour = alt.Color("candidate:N", title="candidate", sort=list(colours), scale=scale).legend(columns=3)
    chart: alt.Chart = plot(values).mark_line(strokeWidth=2)
    return chart.encode(
        color=colour,
        strokeDash=alt.StrokeDash("start:N", title="start", sort=["cold", "warm"]),
        tooltip=["candidate:N", "start:N", "calls:Q", alt.Tooltip("total_s:Q", format=".3~g")],
    )


def _paid_row(number: int, curve: Curve) -> KeyRow:
    return KeyRow(str(number), curve.label, f"{curve.start} start: pays back after {curve.break_even:,} calls")


# ------------------------------------------------------------------------------------------------ the seconds of trials


def steps_chart(found: Sequence[StepSeconds], model: str) -> alt.HConcatChart:
    """One bar per trial, in the order tried."""
    trials = list(dict.fromkeys(one.trial for one in found))
    others = [one.step for one in found if one.step not in STEP_COLOURS]
    steps = [step for step in dict.fromkeys((*STEP_COLOURS, *others)) if any(one.step == step for one in found)]
    scale = alt.Scale(domain=steps, range=[STEP_COLOURS.get(step, NEUTRAL) for step in steps])
    bars = plot({**one._asdict(), "order": steps.index(one.step)} for one in found).mark_bar()
    bars = bars.encode(
        x=alt.X("seconds:Q", title="seconds", stack="zero", axis=alt.Axis(tickCount=8)),
        y=alt.Y("trial:N", title=None, sort=trials, axis=alt.Axis(labelLimit=260, ticks=False, labelPadding=7)),
        color=alt.Color("step:N", title=None, sort=steps, scale=scale),
        order=alt.Order("order:Q"),
        tooltip=["trial:N", "state:N", "step:N", alt.Tooltip("seconds:Q", format=".2f")],
    )
    chart = alt.hconcat(bars.properties(width=WIDTH, height=BAR * len(trials)))
    below = f"{sum(one.seconds for one in found):.0f} s in {len(trials)} trials"
    return chart.properties(title=title(f"Where the seconds of trials went: {model}", below))


# ---------------------------------------------------------------------------------------------------------------- axes


def _log(field: str, axis: Axis, words: str) -> alt.X:
    scale = alt.Scale(type="log", domain=[axis.low, axis.high], nice=False)
    return alt.X(f"{field}:Q", title=words, scale=scale, axis=alt.Axis(values=axis.ticks(), format=",~g"))


def _log_up(field: str, axis: Axis, words: str) -> alt.Y:
    scale = alt.Scale(type="log", domain=[axis.low, axis.high], nice=False)
    return alt.Y(f"{field}:Q", title=words, scale=scale, axis=alt.Axis(values=axis.ticks(), format=",~g"))


def _linear(field: str, axis: Axis, words: str) -> alt.Y:
    scale = alt.Scale(domain=[axis.low, axis.high], nice=False, zero=False)
    return alt.Y(f"{field}:Q", title=words, scale=scale, axis=alt.Axis(tickCount=7, format=".2~f"))


def _numbers(
    spots: Sequence[tuple[float, float]], x: Axis, y: Axis, others: Sequence[tuple[float, float]] = (), gap: float = 1.0
) -> alt.Chart:
    """The numbers of the key beside their marks."""
    places = placed(spots, x, y, others, gap)
    values = [{"number": str(n), "across": across, "up": up} for n, (across, up) in enumerate(places, 1)]
    text = plot(values).mark_text(style="number")
    chart: alt.Chart = text.encode(x=alt.X("across:Q"), y=alt.Y("up:Q"), text="number:N")
    return chart
