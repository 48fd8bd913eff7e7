"""The timed parts of a doctor's report for the terminal: stages as bars, the timeline as a tree, bound, roofline.

In: a `DoctorReport`. Out: rich renderables; parts that were not measured are left out. Not covered: findings, breaks
and recompiles, which the command shows above them; the page (doctor_html.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from compilot.diagnose.report_records import Bound, CompileTime, DoctorReport, Roofline, Span, StageTime
from compilot.report.figures import rate_text, sentence, share_text, time_text
from compilot.report.icicle import readable

BAR = 30  # letters of the longest bar
SMALLEST = 0.03  # phases with less than this share of the whole are not worth a line
OPERATORS = 5


def times(report: DoctorReport) -> list[RenderableType]:
    """What to print, in order."""
    found: list[RenderableType] = []
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
    path: list[Tree] = [root]
    for span in _worth_showing(made):
        del path[span.depth + 1 :]
        path.append(path[-1].add(f"{readable(span.name)} [dim]{time_text(span.wall_s)}[/dim]"))
    return root


def _worth_showing(made: CompileTime) -> Iterator[Span]:
    """Spans above the limit whose parents are shown too."""
    return (span for span in made.spans if span.wall_s >= SMALLEST * made.total_s)


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
    return [Text(f"{sentence(bound.because)} {sentence(bound.advice)}"), Text(shares, style="dim"), table]


def _roofline(roof: Roofline) -> list[Text]:
    peaks = f"this machine: {rate_text(roof.peak_flops_per_s, 'FLOP/s')} ({roof.dtype}), "
    peaks += f"{rate_text(roof.bandwidth_bytes_per_s, 'B/s')}"
    points = [
        f"{point.label}: {time_text(point.call_s)} per call, {share_text(point.roof_share)} of the roof"
        for point in roof.points
    ]
    return [Text(line, style="dim") for line in (peaks, *points)]
