"""A model at several batch sizes, from the journal. In: its lines. Out: `BatchSizes`, batches.csv, a table.

Every figure is computed from the raw samples of the races at each size. Not covered: the curve (batch_chart.py).
"""

from __future__ import annotations

import csv
import io
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from compilot.artifacts.rundir import RunDir
from compilot.errors import cannot_write
from compilot.files import atomic
from compilot.measure.stats import aa_noise
from compilot.records import (
    BatchPoint,
    BatchRaceLine,
    BatchSizes,
    JournalLine,
    Race,
    ReplayLine,
    ShapePolicy,
    TrialLine,
)
from compilot.report.data import column
from compilot.report.files import DIGITS
from compilot.verdict.batch_advice import advice
from compilot.verdict.compare import compare
from compilot.verdict.words import NOISY, varied

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

COLUMNS = ("candidate", "id", "batch", "p50_ms", "samples_per_s", "speedup", "speedup_low", "speedup_high", "why")


def batch_sizes(lines: Sequence[JournalLine]) -> BatchSizes | None:
    """What the races at batch sizes say; None: there were none."""
    races = [line for line in lines if isinstance(line, BatchRaceLine)]
    if not races:
        return None
    known = {line.trial.candidate.id: line.trial.candidate.label for line in lines if isinstance(line, TrialLine)}
    known |= {arm.id: arm.label for line in lines if isinstance(line, ReplayLine) for arm in line.replay.arms}
    found = {(point.candidate_id, point.batch): point for line in races for point in _points(line, known)}
    order = list(known)
    points = tuple(found[place] for place in sorted(found, key=lambda place: (order.index(place[0]), place[1])))
    return BatchSizes(points=points, advice=advice(points), doubts=(*_doubts(races), *_too_few(points)))


def _too_few(points: Sequence[BatchPoint]) -> list[str]:
    """Where there were too few requests for an interval: a short budget has few of the largest batches."""
    eager = points[0].candidate_id
    timed = [point for point in points if point.candidate_id != eager and point.call_s is not None]
    where = sorted({point.batch for point in timed if point.versus_eager is None})
    what = f"too few requests for a speed-up at batch size {', '.join(map(str, where))}"
    return [f"{what}; give a larger budget"] if where else []


def engines_of_plans(lines: Sequence[JournalLine]) -> dict[str, str]:
    """The engine of each whole plan that was replayed, by its id."""
    arms = [arm for line in lines if isinstance(line, ReplayLine) for arm in line.replay.arms]
    return {arm.id: arm.engine for arm in arms if arm.policy is not ShapePolicy.EAGER}


def _doubts(races: Sequence[BatchRaceLine]) -> tuple[str, ...]:
    """Where eager against itself varied so much that a step of a few percent says nothing."""
    noise = {line.batch: aa_noise(line.race) or 0.0 for line in races if line.race is not None}
    noisy = {batch: value for batch, value in noise.items() if value > NOISY}
    if not noisy:
        return ()
    where = f"batch size {', '.join(map(str, sorted(noisy)))}"
    return (f"{varied(max(noisy.values()))} at {where}; measure again on a quieter machine before you rely on it",)


def _points(line: BatchRaceLine, known: Mapping[str, str]) -> Iterator[BatchPoint]:
    """known: labels of candidates and policies."""
    for candidate_id, why in line.lost.items():
        label = known[candidate_id]
        yield BatchPoint(candidate=label, candidate_id=candidate_id, batch=line.batch, call_s=None, why=why)
    for candidate_id in dict.fromkeys(line.race.arms if line.race is not None else ()):
        assert line.race is not None
        yield _point(line.race, candidate_id, known[candidate_id], line.batch)


def _point(race: Race, candidate_id: str, label: str, batch: int) -> BatchPoint:
    call_s = statistics.median(column(race, race.arms.index(candidate_id)))
    versus = None if candidate_id == race.arms[0] else compare(race, candidate_id, race.arms[0])
    return BatchPoint(
        candidate=label,
        candidate_id=candidate_id,
        batch=batch,
        call_s=call_s,
        samples_per_s=batch / call_s,
        versus_eager=versus if versus is not None and versus.pairs else None,
    )


def write_batches_csv(run_dir: Path) -> Path | None:
    """Write RUN_DIR/batches.csv, one line per candidate and batch size; nothing where no batch size was measured."""
    found, path = batch_sizes(RunDir(run_dir).lines()), RunDir(run_dir).batches_csv
    if found is None:
        return None
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for point in found.points:
        versus, call_s = point.versus_eager, point.call_s
        figures = [None if call_s is None else call_s * 1e3, point.samples_per_s]
        figures += [versus.ratio, versus.low, versus.high] if versus is not None else [None] * 3
        told = ["" if figure is None else f"{figure:.{DIGITS}g}" for figure in figures]
        writer.writerow([point.candidate, point.candidate_id, point.batch, *told, point.why])
    try:
        atomic.write_bytes(path, text.getvalue().encode())
    except OSError as problem:
        raise cannot_write(path, problem.strerror) from problem
    return path


def sentences(found: BatchSizes) -> tuple[str, ...]:
    """What is recommended for each candidate, and what has no figures."""
    told = []
    for one in found.advice:
        rate = f"{_rate(one.samples_per_s)} samples/s"
        text = f"{one.candidate}: max_batch_size {one.max_batch_size} ({rate}); {one.because}."
        for batch, parts in one.splits.items():
            text += f" A batch of {batch} is faster in parts: {_parts(parts)}."
        told.append(text)
    missing: dict[tuple[str, str], list[str]] = {}
    for point in found.points:
        if point.why:
            missing.setdefault((point.candidate, point.why), []).append(str(point.batch))
    told += [f"{name} has no figure at batch size {', '.join(sizes)}: {why}." for (name, why), sizes in missing.items()]
    return (*told, *(f"{doubt[0].upper()}{doubt[1:]}." for doubt in found.doubts))


def _parts(parts: Sequence[int]) -> str:
    """ "2 x 4 + 1 x 1"."""
    return " + ".join(f"{number} x {size}" for size, number in Counter(parts).items())


def _rate(per_s: float) -> str:
    return f"{per_s:,.0f}" if per_s >= 100 else f"{per_s:.3g}"


def shown(found: BatchSizes) -> list[RenderableType]:
    """The table, and what it suggests."""
    from rich.text import Text

    return [batch_table(found), *(Text(sentence) for sentence in sentences(found))]


def batch_table(found: BatchSizes) -> Table:
    """One line per batch size; of each candidate the time of a call, samples per second and the speed-up."""
    from rich.table import Table

    view = Table(title="batch sizes", title_style="bold", title_justify="left", box=None, padding=(0, 2, 0, 0))
    view.add_column("batch", justify="right")
    names = {point.candidate_id: point.candidate for point in found.points}
    first = next(iter(names))
    for candidate_id, name in names.items():
        view.add_column(f"{name}\np50 ms", justify="right")
        view.add_column("\nsamples/s", justify="right")
        if candidate_id != first:
            view.add_column("\nspeed-up", justify="right")
    by_place = {(point.candidate_id, point.batch): point for point in found.points}
    for batch in sorted({point.batch for point in found.points}):
        cells = [str(batch)]
        for candidate_id in names:
            cells += _cells(by_place.get((candidate_id, batch)), versus=candidate_id != first)
        view.add_row(*cells)
    return view


def _cells(point: BatchPoint | None, *, versus: bool) -> list[str]:
    if point is None or point.call_s is None or point.samples_per_s is None:
        return ["-"] * (3 if versus else 2)
    cells = [f"{point.call_s * 1e3:.4g}", _rate(point.samples_per_s)]
    if versus:
        cells.append(f"{point.versus_eager.ratio:.2f}x" if point.versus_eager is not None else "-")
    return cells
