"""The timed parts of a doctor's report for the terminal: stages as bars, the timeline as a tree, bound, roofline.

In: a `DoctorReport`. Out: rich renderables; parts that were not measured are left out. Not covered: findings, breaks
and recompiles, which the command shows above them; the page (doctor_html.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from compilot.diagnose.report_records import Bound, CompileTime, DoctorReport, Roofline, Span, StageTime
from compilot.report.doctor_words import roof_text
from compilot.report.figures import rate_text, sentence, share_text, time_text
from compilot.report.icicle import readable

BAR = 30  # letters of the longest bar
SAME = 0.9  # a phase whose child takes nearly all of it says nothing that the child does not
SMALLEST = 0.03  # phases with less than this share of the whole are not worth a line
OPERATORS = 5


def times(report: DoctorReport) -> list[RenderableType]:
    """What to print, in order."""
    found: list[RenderableType] = []  # what bounds the work and long compiles are findings, too: no sentence twice
    if report.input_pipeline is not None:
        found.append(Text(sentence(report.input_pipeline.because)))
    if report.bound is not None:
        found += _bound(report.bound)
    if report.roofline is not None:
        found += _roofline(report.roofline)
    if report.compile_time is not None:
        found += [
            _stages(report.compile_time, report.stages),
            timeline(report.compile_time),
            *_notes(report.compile_time),
        ]
    return found


def timeline(made: CompileTime) -> Tree:
    """The compile as a tree of phases with their times."""
    root = Tree(f"cold compile [dim]{time_text(made.total_s)}[/dim]")
    path: list[tuple[int, Tree]] = [(-1, root)]
    for span, is_shown in _large(made):
        while path[-1][0] >= span.depth:
            path.pop()
        around = path[-1][1]
        line = f"{readable(span.name)} [dim]{time_text(span.wall_s)}[/dim]"
        path.append((span.depth, around.add(line) if is_shown else around))
    return root


def _large(made: CompileTime) -> Iterator[tuple[Span, bool]]:
    """Spans above the limit, and whether to show them: not those that only pass on to one child."""
    large = [span for span in made.spans if span.wall_s >= SMALLEST * made.total_s]
    for span, following in itertools.zip_longest(large, large[1:]):
        passes_on = following is not None and following.depth > span.depth and following.wall_s > SAME * span.wall_s
        yield span, not passes_on


def _stages(made: CompileTime, stages: tuple[StageTime, ...]) -> Table:
    table = Table(box=None, pad_edge=False, title=f"Compile time {time_text(made.total_s)}", title_justify="left")
    table.add_column("stage")
    table.add_column("time", justify="right")
    table.add_column("", justify="right")
    table.add_column("")
    whole = [stage for stage in stages if not stage.submodule]
    longest = max((stage.wall_s for stage in whole), default=0.0) or 1.0
    for stage in whole:
        bar = "█" * round(BAR * stage.wall_s / longest)
        table.add_row(stage.name, time_text(stage.wall_s), share_text(stage.wall_s / made.total_s), Text(bar, "cyan"))
    return table


def _notes(made: CompileTime) -> list[Text]:
    header = f", {made.header_builds} of them for the header that all models share" if made.header_builds else ""
    graphs = f"{made.graphs} graph{'' if made.graphs == 1 else 's'}"
    notes = [f"{made.compiler_runs} C++ compiler runs{header}; {graphs}"]
    notes += [f"{one.what} would save about {time_text(one.saves_s)} ({one.because})" for one in made.savings]
    return [Text(note, style="dim") for note in notes]


def _bound(bound: Bound) -> list[RenderableType]:
    shares = f"overhead {share_text(bound.overhead_share)}, memory {share_text(bound.memory_share)}, "
    shares += f"compute {share_text(bound.compute_share)}"
    table = Table(box=None, pad_edge=False)
    for name in ("operator", "calls", "time", "limited by"):
        table.add_column(name, justify="left" if name in ("operator", "limited by") else "right")
    for row in bound.operators[:OPERATORS]:
        table.add_row(row.name, str(row.calls), time_text(row.wall_s), row.limited_by)
    return [Text(f"Limited by {bound.limited_by}: {shares}"), table]


def _roofline(roof: Roofline) -> list[Text]:
    peaks = f"this machine: {rate_text(roof.peak_flops_per_s, 'FLOP/s')} ({roof.dtype}), "
    peaks += f"{rate_text(roof.bandwidth_bytes_per_s, 'B/s')}"
    points = [f"{point.label}: {time_text(point.call_s)} per call, {roof_text(point)}" for point in roof.points]
    return [Text(line, style="dim") for line in (peaks, *points)]
