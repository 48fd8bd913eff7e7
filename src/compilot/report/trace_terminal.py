"""A trace, drawn for people. In: `Trace`. Out: rich renderables: what it is, each dimension's histogram, common sizes.

A dimension that never varies is one line. Bars are drawn with block characters where the output can show them, else
with #. Not covered: printing (the command line does that).
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from compilot.records import DimensionSizes, SizeBin, Trace
from compilot.verdict.words import count

TOP = 10  # sizes of whole calls that are listed
BAR = 40  # columns of the longest bar
EIGHTHS = " ▏▎▍▌▋▊▉█"


def drawn(trace: Trace) -> Iterator[RenderableType]:
    """Everything about a trace, in the order it is read."""
    yield Text(_summary(trace))
    for sentence in _doubts(trace):
        yield Text(sentence)
    varying = {name: dim for name, dim in trace.dims.items() if dim.distinct > 1}
    for name, dim in varying.items():
        yield Text()
        yield _title(name, dim)
        yield _histogram(dim)
    if fixed := [f"{name}={dim.min}" for name, dim in trace.dims.items() if name not in varying]:
        yield Text(f"\nnever varies: {', '.join(fixed)}")
    if varying:
        yield Text(f"\nmost frequent of {count(trace.distinct, 'different size')}:")
        yield _frequent(trace, set(varying))


def _summary(trace: Trace) -> str:
    of = f" of {trace.header.model}" if trace.header is not None and trace.header.model else ""
    since = f" since {trace.header.began}" if trace.header is not None and trace.header.began else ""
    return f"{count(trace.calls, 'call')}{of}{since}, {count(trace.distinct, 'different size')}"


def _doubts(trace: Trace) -> Iterator[str]:
    if trace.rounded:
        yield f"{count(trace.rounded, 'call')} with sizes rounded up to powers of two: there were too many to keep"
    if trace.left_out:
        yield f"{count(trace.left_out, 'call')} without sizes: there were too many to keep"
    if trace.header is not None and trace.header.sampling > 1:
        yield f"one call in {trace.header.sampling} was counted"


def _title(name: str, dim: DimensionSizes) -> Text:
    quantiles = f"p50 {dim.p50}, p90 {dim.p90}, p99 {dim.p99}"
    return Text.assemble((name, "bold"), f"  {dim.min}..{dim.max}, {quantiles}, {count(dim.distinct, 'size')}")


def _histogram(dim: DimensionSizes) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True, width=BAR)
    table.add_column(justify="right", no_wrap=True)
    most = max(one.calls for one in dim.bins)
    for one in dim.bins:
        table.add_row(f"  {_span(one)}", _Bar(one.calls / most), f"{one.calls / dim.calls:.1%}")
    return table


def _span(one: SizeBin) -> str:
    return str(one.low) if one.low == one.high else f"{one.low}..{one.high}"


def _frequent(trace: Trace, varying: set[str]) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    calls: dict[str, int] = {}
    for one in trace.sizes:
        label = " ".join(f"{name}={size}" for name, size in one.sizes.items() if name in varying) or "no sizes"
        calls[label] = calls.get(label, 0) + one.calls
    for label, number in sorted(calls.items(), key=lambda item: -item[1])[:TOP]:
        table.add_row(f"  {number / trace.calls:.1%}", label)
    return table


class _Bar:
    """A bar of a share of the width; anything above zero shows."""

    def __init__(self, share: float) -> None:
        self._share = share

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(BAR, options.max_width)
        if options.ascii_only or not console.is_terminal:
            yield Segment("#" * (max(1, round(self._share * width)) if self._share else 0))
            return
        eighths = max(1, round(self._share * width * 8)) if self._share else 0
        yield Segment("█" * (eighths // 8) + EIGHTHS[eighths % 8].strip(), Style(color="cyan"))
