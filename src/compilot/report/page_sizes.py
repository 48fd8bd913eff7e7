"""The section about a trace of many sizes. In: View. Out: a Section: picture, policies, forecasts beside the replay."""

from __future__ import annotations

from compilot.artifacts.rundir import RunDir
from compilot.records import SizeDemand
from compilot.report.page_records import Section, Table, View
from compilot.report.picture_sizes import legend, sizes_picture
from compilot.report.sizes import COLUMNS, ServedSizes, cells, demand_of, drawn_policy, sentences, served_sizes
from compilot.verdict.words import seconds, times


def sizes(view: View) -> Section | None:
    """How the trace is served; None: there was none."""
    lines = RunDir(view.data.run_dir).lines()
    found = served_sizes(lines)
    if found is None:
        return None
    rows = tuple(cells(row) for row in found.rows)
    marked = frozenset(number for number, row in enumerate(found.rows) if row.chosen)
    figures = frozenset(range(1, len(COLUMNS)))
    policies = Table("policies over the same requests", COLUMNS, rows, figures=figures, marked=marked)
    about = found.verdict.because if found.verdict is not None else "Measured side by side; nothing is decided."
    section = Section("sizes", "The trace", about, tables=(policies, *_forecasts(found)), notes=sentences(found))
    return _with_picture(section, found, demand_of(lines))


def _with_picture(section: Section, found: ServedSizes, demand: list[SizeDemand]) -> Section:
    """Of one dimension only."""
    drawn = drawn_policy(found)
    if drawn is None or len(found.dims) != 1 or not demand:
        return section
    engine, policy = drawn
    picture = sizes_picture(engine, policy, demand, found.dims[0].label)
    return section._replace(picture=picture, legend=legend(engine))


def _forecasts(found: ServedSizes) -> list[Table]:
    """Every engine's forecasts for the whole trace."""
    tables = []
    for engine in found.engines:
        eager_s = engine.choice.forecasts[0].total_s
        rows = tuple(
            (
                str(one.policy),
                ", ".join("x".join(map(str, bucket.sizes)) for bucket in one.buckets) or "-",
                seconds(one.total_s),
                times(eager_s / one.total_s),
            )
            for one in engine.choice.forecasts
        )
        columns = ("policy", "programs for one size", "the whole trace", "speed-up")
        tables.append(Table(f"{engine.label}: forecasts", columns, rows, figures=frozenset({2, 3}), folded=True))
    return tables
