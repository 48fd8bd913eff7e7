"""How a trace of many sizes was served, from the journal. In: its lines. Out: `ServedSizes`, a table, sentences.

Every ratio is computed again from the seconds of the replayed requests; the forecast stands beside it. Covered: runs of
`tune --trace`, comparisons of `bench --trace`, which decide nothing. Not covered: the picture (picture_sizes.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from compilot.records import (
    Comparison,
    EngineSizes,
    JournalLine,
    Outcome,
    PolicyArm,
    PolicyForecast,
    Race,
    Record,
    ReplayLine,
    SizeDemand,
    SizesVerdict,
    TrafficDim,
    TrafficLine,
    VerdictLine,
)
from compilot.verdict.replays import compare_totals
from compilot.verdict.words import count, percent, seconds, shown, times

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

MIB = 2**20


class PolicyRow(Record, frozen=True, kw_only=True):
    """One way to serve the trace."""

    policy: str  # label: "openvino buckets 64, 512"
    id: str  # as in the journal's replay
    engine: str
    kind: str  # "buckets", "dynamic", ...; "": nobody chose sizes for it
    programs: tuple[str, ...]  # names of its entries
    chosen: bool
    request_ms: float | None  # mean over the replayed requests; None: it has no figures
    versus_eager: Comparison | None  # by the total of the requests; None: eager itself, or no figures
    forecast: float | None  # speed-up over eager that was expected for the replayed requests
    build_s: float  # of all its programs, cold
    start_s: float | None  # opening them with kept files, and answering each size once
    size_mib: float  # of its files
    peak_rss_mib: float | None
    fast_share: float | None  # of the requests that its programs answered
    recompiles: int  # after the warm-up
    note: str = ""


class ServedSizes(Record, frozen=True, kw_only=True):
    """A trace and what serves it."""

    dims: tuple[TrafficDim, ...]
    calls: int  # of the whole trace
    distinct: int  # sizes in it
    requests: int  # that were replayed, in each process
    processes: int
    rows: tuple[PolicyRow, ...]  # eager first
    engines: tuple[EngineSizes, ...] = ()  # what programs cost, and every forecast
    verdict: SizesVerdict | None = None  # None: nothing was decided
    notes: tuple[str, ...] = ()


def served_sizes(lines: Sequence[JournalLine]) -> ServedSizes | None:
    """What the run found out about its trace; None: it had none, or did not come to a replay."""
    every = [line.replay for line in lines if isinstance(line, ReplayLine)]
    replays = [one for one in every if one.race.purpose != "confirm"]  # its figures are the verdict's
    if not replays:
        return None
    replay = replays[-1]
    traffic = next((line for line in reversed(lines) if isinstance(line, TrafficLine)), None)
    verdicts = [line.verdict.sizes for line in lines if isinstance(line, VerdictLine)]
    verdict = verdicts[-1] if verdicts else None
    return ServedSizes(
        dims=traffic.traffic.dims if traffic is not None else (),
        calls=replay.calls,
        distinct=replay.distinct,
        requests=replay.requests,
        processes=len(replay.race.processes),
        rows=tuple(_row(arm, replay.race, verdict) for arm in replay.arms),
        engines=traffic.engines if traffic is not None else (),
        verdict=verdict,
        notes=verdict.notes if verdict is not None else (traffic.notes if traffic is not None else ()),
    )


def drawn_policy(found: ServedSizes) -> tuple[EngineSizes, PolicyForecast] | None:
    """The chosen policy and its engine, else the best forecast."""
    chosen = next((row for row in found.rows if row.chosen), None)
    for engine in found.engines:
        for forecast in engine.choice.forecasts:
            if chosen is not None and (engine.engine, forecast.policy) == (chosen.engine, chosen.kind):
                return engine, forecast
    best = max(found.engines, key=lambda engine: engine.choice.speedup, default=None)
    return None if best is None else (best, best.choice.chosen)


def demand_of(lines: Sequence[JournalLine]) -> list[SizeDemand]:
    """The sizes of the trace that programs were chosen for."""
    demand = next((line.traffic.demand for line in reversed(lines) if isinstance(line, TrafficLine)), ())
    return [one for one in demand if all(size >= 1 for size in one.sizes)]


def _row(arm: PolicyArm, race: Race, verdict: SizesVerdict | None) -> PolicyRow:
    raced = arm.id in race.arms and not arm.lost
    is_eager = arm.id == race.arms[0]
    known = [one for one in (verdict.comparisons if verdict is not None else ()) if one.candidate_id == arm.id]
    versus = None if is_eager or not raced else (known[0] if known else compare_totals(race, arm.id, race.arms[0]))
    return PolicyRow(
        policy=arm.label,
        id=arm.id,
        engine=arm.engine,
        kind=arm.policy.value if arm.policy is not None else "",
        programs=arm.programs,
        chosen=verdict is not None and verdict.arm_id == arm.id,
        request_ms=_mean_ms(race, race.arms.index(arm.id)) if raced else None,
        versus_eager=versus,
        forecast=arm.forecast,
        build_s=arm.start_s,
        start_s=arm.loaded_s,
        size_mib=arm.size_bytes / MIB,
        peak_rss_mib=arm.peak_rss_bytes / MIB if arm.peak_rss_bytes else None,
        fast_share=arm.fast_share,
        recompiles=arm.recompiles,
        note=arm.lost,
    )


def _mean_ms(race: Race, column: int) -> float:
    found = [row[column] for process in race.processes for row in process.rounds]
    return sum(found) / len(found) * 1e3


# ------------------------------------------------------------------------------------------------------------ to read

NARROW = 112  # columns of a terminal
FOR_WIDE = ("build s", "start s", "RSS MiB")
COLUMNS = ("policy", "programs", "request ms", "speed-up", "forecast", "build s", "start s", "RSS MiB", "fast")


def cells(row: PolicyRow) -> tuple[str, ...]:
    """One row of the table, as text."""
    return (
        row.policy,
        str(len(row.programs)) if row.programs else "-",
        "-" if row.request_ms is None else f"{row.request_ms:.4g}",
        _speed_up(row),
        times(row.forecast) if row.forecast is not None else "-",
        f"{row.build_s:.3g}" if row.programs else "-",
        f"{row.start_s:.3g}" if row.start_s is not None and row.programs else "-",
        f"{row.peak_rss_mib:.0f}" if row.peak_rss_mib is not None else "-",
        percent(row.fast_share) if row.fast_share is not None else "-",
    )


def _speed_up(row: PolicyRow) -> str:
    versus = row.versus_eager
    if versus is None:
        return "-" if row.note else "baseline"
    if versus.outcome is Outcome.UNDECIDED:
        return "undecided"
    return f"{times(versus.ratio)} ({versus.low:.2f}-{versus.high:.2f})"


def sentences(found: ServedSizes) -> tuple[str, ...]:
    """What was replayed, each arm that was lost, and what a reader should know."""
    names = ", ".join(f"{dim.label} {dim.min}..{dim.max}" for dim in found.dims)
    sets = count(found.processes, "process", "es")
    first = f"{count(found.requests, 'request')} of the trace ({count(found.calls, 'call')}, "
    first += f"{count(found.distinct, 'size')}{f'; {names}' if names else ''}), the same in every arm, in {sets}."
    lost = [f"{row.policy} has no figures: {row.note}." for row in found.rows if row.note]
    recompiled = [
        f"{row.policy}: {count(row.recompiles, 'program')} built after the warm-up."
        for row in found.rows
        if row.recompiles
    ]
    return (first, *lost, *recompiled, *(f"{note[0].upper()}{note[1:]}." for note in found.notes))


def arm_sentences(found: ServedSizes) -> tuple[str, ...]:
    """What can honestly be said of each arm against eager."""
    told = []
    for row in found.rows:
        if row.versus_eager is not None:
            start = f"; start {seconds(row.start_s)} with its files" if row.start_s is not None else ""
            told.append(f"{row.policy}: {shown(row.versus_eager)} over {count(found.requests, 'request')}{start}.")
        elif row.note:
            told.append(f"{row.policy}: {row.note}.")
    return tuple(told)


def shown_sizes(served: ServedSizes, width: int = 100) -> list[RenderableType]:
    """The table, and what is to be known with it."""
    from rich.text import Text

    return [sizes_table(served, width), *(Text(sentence) for sentence in sentences(served))]


def sizes_table(found: ServedSizes, width: int = 100) -> Table:
    """One line per policy; the chosen one is marked. A narrow terminal has no room for what a start takes."""
    from rich.table import Table

    view = Table(
        title="the trace", title_style="bold", title_justify="left", box=None, padding=(0, 1, 0, 0), pad_edge=False
    )
    view.add_column("", width=1)
    left_out = {COLUMNS.index(name) for name in FOR_WIDE} if width < NARROW else set()
    view.add_column(COLUMNS[0], min_width=20, overflow="fold")
    for number, name in enumerate(COLUMNS[1:], 1):
        if number not in left_out:
            view.add_column(name, justify="right", no_wrap=True)
    for row in found.rows:
        told = [cell for number, cell in enumerate(cells(row)) if number not in left_out]
        view.add_row("►" if row.chosen else "", *told, style="bold" if row.chosen else "")
    return view
