"""The report's sections about a training: what each part of the step brought, and its losses beside eager's.

In: View. Out: Sections, None for a model that is only called. `in_steps`: any section, with steps where others have
calls. Not covered: how the losses were judged (measure/step_curve.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from compilot.records import Kind, LossCurve, Trial
from compilot.report import svg
from compilot.report.chart_colours import PALETTE
from compilot.report.chart_labels import Axis
from compilot.report.page_records import Section, Table, View
from compilot.report.svg import Picture
from compilot.verdict.step_words import in_words_of, picture_in_words_of
from compilot.verdict.words import times

EAGER, OWN = svg.colour_class(PALETTE[0]), svg.colour_class(PALETTE[1])


def parts(view: View) -> Section | None:
    """A line for each part of the chosen step, then those that did not pay."""
    gains = view.data.verdict.parts if view.data.verdict is not None else ()
    if not gains:
        return None
    rows = tuple(
        (one.part, times(one.speedup), "alone, over eager" if one.alone else "on top of the others", _kept(one.kept))
        for one in gains
    )
    table = Table("What each part brought", ("part", "speed-up", "measured", "in the plan"), rows, frozenset({1}))
    about = "Parts of the step, each measured apart: ratios of short screenings, which order them and prove nothing."
    return Section("parts", "The parts of a step", about, tables=(table,))


def losses(view: View) -> Section | None:
    """The losses of the chosen candidate, or else of the first finalist."""
    found = [trial for trial in view.data.trials.values() if _curve(trial) is not None]
    if not found:
        return None
    chosen = view.data.verdict.chosen_id if view.data.verdict is not None else ""
    shown = min(found, key=lambda trial: trial.candidate.id != chosen)
    curve = _curve(shown)
    assert curve is not None
    about = (
        f"{shown.candidate.label} trained for {len(curve.losses)} steps beside eager, from the same state on the same "
        "batches. "
    )
    band = "The band is what it may be off: a few times what eager's own runs differ from float64."
    seeds = f"Means over {curve.seeds} seeds; the band is the range of eager's own."
    legend = ((EAGER, "eager"), (OWN, shown.candidate.label), ("quiet", "the band"))
    return Section(
        "losses",
        "The loss over many steps",
        about + (seeds if curve.seeds > 1 else band),
        curve_picture(curve),
        legend,
        tables=(_table(found),),
    )


def curve_picture(curve: LossCurve) -> Picture:
    """Two lines within a band."""
    return svg.both(lambda width: _drawn(curve, width))


def in_steps(section: Section) -> Section:
    """The section in the words of a training."""

    def said(text: str) -> str:
        return in_words_of(Kind.TRAINING, text)

    def drawn(text: str) -> str:
        return picture_in_words_of(Kind.TRAINING, text)

    picture = section.picture
    return section._replace(
        title=said(section.title),
        about=said(section.about),
        picture=None if picture is None else Picture(drawn(picture.wide), drawn(picture.narrow)),
        tables=tuple(
            table._replace(caption=said(table.caption), columns=tuple(map(said, table.columns)))
            for table in section.tables
        ),
        notes=tuple(map(said, section.notes)),
    )


def _curve(trial: Trial) -> LossCurve | None:
    return trial.check.curve if trial.check is not None else None


def _kept(kept: bool) -> str:
    return "yes" if kept else "no"


def _table(found: Sequence[Trial]) -> Table:
    rows = []
    for trial in found:
        curve = _curve(trial)
        assert curve is not None
        last = (f"{one[-1]:.6g}" for one in (curve.losses, curve.eager))
        right = f"{curve.exact[-1]:.6g}" if curve.exact else "-"
        rows.append((trial.candidate.label, str(len(curve.losses)), *last, right, "yes" if curve.within else "no"))
    columns = ("candidate", "steps", "its last loss", "eager's", "float64's", "within the band")
    return Table("The last losses, in figures", columns, tuple(rows), frozenset({1, 2, 3, 4}), folded=True)


def _drawn(curve: LossCurve, width: float) -> str:
    frame = svg.Frame(width, 300.0, 62.0, 16.0, 14.0, 46.0)
    steps = len(curve.losses)
    every = [*curve.losses, *curve.eager, *curve.low, *curve.high]
    room = 0.05 * (max(every) - min(every)) or 1e-6
    x, y = Axis(1.0, float(max(2, steps)), frame.across), Axis(min(every) - room, max(every) + room, frame.up)

    def places(values: Sequence[float]) -> list[tuple[float, float]]:
        return [(frame.x(x, number), frame.y(y, value)) for number, value in enumerate(values, 1)]

    body = svg.along(frame, x, "steps")
    body += svg.upwards(frame, y, "loss")
    body += [svg.polyline("curve quiet", places(edge)) for edge in (curve.low, curve.high)]
    body += [svg.polyline(f"curve {EAGER}", places(curve.eager)), svg.polyline(f"curve {OWN}", places(curve.losses))]
    words = f"Loss over {steps} steps: {curve.losses[0]:.4g} to {curve.losses[-1]:.4g}, eager's {curve.eager[-1]:.4g}."
    return svg.picture("plot", frame, body, words)
