"""The report's curve of batch sizes. In: View. Out: a Section, or None where no batch size was measured.

Samples per second against the batch, a line for each candidate; a ring: the largest batch that is worth having. The
figures are those of the terminal and of batches.csv (batches.py).
"""

from __future__ import annotations

from compilot.engines.of_candidate import engines_of
from compilot.records import BatchPoint, BatchSizes
from compilot.report import cells, svg
from compilot.report.batches import batch_sizes, engines_of_plans, sentences
from compilot.report.chart_colours import curve_colours
from compilot.report.chart_labels import Axis, spread_log
from compilot.report.page_records import Section, Table, View

HEIGHT = 320.0


def batches(view: View) -> Section | None:
    """How the gain changes over batch sizes."""
    found = batch_sizes(view.lines)
    if found is None:
        return None
    engines = {
        name: next(iter(engines_of(trial.candidate)), "eager")
        for name, trial in view.data.trials.items()
        if not trial.candidate.is_eager
    }
    engines |= engines_of_plans(view.lines)
    colours = curve_colours([(one.candidate, engines.get(one.candidate_id, "eager")) for one in found.points])
    kinds = {name: svg.colour_class(colour) for name, colour in colours.items()}
    timed = [point for point in found.points if point.samples_per_s is not None]
    picture = svg.both(lambda width: _picture(found, timed, kinds, width)) if timed else None
    about = "Eager and the plan at other batch sizes, timed in turns at each. A ring: the largest batch worth having."
    legend = tuple((kind, name) for name, kind in kinds.items())
    return Section(
        "batches", "Batch sizes", about, picture, legend, tables=(_table(found),), notes=tuple(sentences(found))
    )


def _picture(found: BatchSizes, timed: list[BatchPoint], kinds: dict[str, str], width: float) -> str:
    frame = svg.Frame(width, HEIGHT, 58.0, 16.0, 28.0, 44.0)
    sizes = sorted({float(point.batch) for point in timed})
    x = spread_log(sizes, frame.across, 1.25)
    y = Axis(0.0, max(point.samples_per_s or 0.0 for point in timed) * 1.1, frame.up)
    body = [*_sizes(frame, x, sizes), *svg.upwards(frame, y, "samples per second")]
    for name, kind in kinds.items():
        places = [(point, *_place(frame, x, y, point)) for point in timed if point.candidate == name]
        body.append(svg.polyline(f"curve {kind}", [(across, up) for _, across, up in places]))
        best = {one.max_batch_size for one in found.advice if one.candidate == name}
        for point, across, up in places:
            body.append(svg.dot(f"dot {kind}", across, up, 4.0, f"{name}: {_words(point)}"))
            body += [svg.dot("ring", across, up, 8.0)] if point.batch in best else []
    told = "; ".join(f"{point.candidate} {_words(point)}" for point in timed)
    return svg.picture("plot", frame, body, f"Samples per second over the batch size: {told}.")


def _sizes(frame: svg.Frame, x: Axis, sizes: list[float]) -> list[str]:
    """The axis with the sizes that were measured, as many as there is room for."""
    foot, last, found = frame.height - frame.bottom, -100.0, []
    for size in sizes:
        across = frame.x(x, size)
        found.append(svg.line("grid", across, frame.top, across, foot))
        if across - last >= 34.0:
            found.append(svg.text("tick", across, foot + 16, f"{size:g}", "middle"))
            last = across
    return [*found, svg.text("tick", frame.left + frame.across / 2, foot + 34, "batch size (log scale)", "middle")]


def _place(frame: svg.Frame, x: Axis, y: Axis, point: BatchPoint) -> tuple[float, float]:
    return frame.x(x, point.batch), frame.y(y, point.samples_per_s or 0.0)


def _words(point: BatchPoint) -> str:
    return f"at batch {point.batch} {cells.number(point.samples_per_s)} samples/s"


def _table(found: BatchSizes) -> Table:
    columns = ("candidate", "batch", "p50 ms", "samples/s", "speed-up", "note")
    rows = tuple(
        (
            point.candidate,
            str(point.batch),
            cells.number(None if point.call_s is None else point.call_s * 1e3),
            cells.number(point.samples_per_s),
            _speed_up(point),
            point.why,
        )
        for point in found.points
    )
    return Table("Batch sizes, in figures", columns, rows, frozenset(range(1, 5)), folded=True)


def _speed_up(point: BatchPoint) -> str:
    one = point.versus_eager
    return cells.MISSING if one is None else f"{one.ratio:.2f}x [{one.low:.2f}-{one.high:.2f}]"
