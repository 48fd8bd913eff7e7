"""What charts show of a run's rows. In: RunData. Out: points, curves and bars as named tuples.

Covered: the Pareto front, total times of eager and the finalists, where the seconds of trials went. Every figure is the
one of the table or follows from it. Pure. Not covered: the course of a search (course.py), how it is drawn (charts.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from compilot.records import State, Trial
from compilot.report.data import Row, RunData, paid_back
from compilot.report.pareto import pareto_front, point_of
from compilot.verdict.breakeven import total_time_s

RACED = ("race", "confirm", "bench", "twin")  # where a finalist's speed-up comes from
STEPS = ("opening", "building", "checking", "warming up", "pairing", "single calls")  # in their order
REST = "other"  # seconds of a trial that no step has
LEAST_REST_S = 0.05  # less is rounding and the writing of records
CALLS_BEYOND = 10  # times the last break-even: so far the lines go on
FEWEST_CALLS = 1000  # that the lines show at the least
CURVE_POINTS = 48
LEAST_S = 1e-4  # a logarithmic axis has no zero


class ParetoPoint(NamedTuple):
    """One candidate with all three figures."""

    label: str
    engine: str
    latency: float  # relative to eager's
    start_s: float
    memory_mib: float
    on_front: bool
    chosen: bool


class Curve(NamedTuple):
    """What a process that starts and calls spends, by its number of calls."""

    label: str
    engine: str
    start: str  # "cold" or "warm"
    first_s: float
    per_call_s: float
    break_even: int | None = None  # calls; None: eager itself, or no gain was shown
    break_even_low: int | None = None  # its 95 % interval, as in a BreakEven
    break_even_high: int | None = None

    def total_s(self, calls: int) -> float:
        """Seconds for so many calls, the start included."""
        return max(total_time_s(calls, self.first_s, self.per_call_s), LEAST_S)


class StepSeconds(NamedTuple):
    """Seconds that one step of one trial took."""

    trial: str  # "3 inductor freezing": numbers keep labels apart
    step: str
    seconds: float
    state: State


def pareto_points(data: RunData) -> list[ParetoPoint]:
    """Those that have latency, start and memory, in the order tried."""
    front = pareto_front(data.rows)
    return [
        ParetoPoint(
            label=row["candidate"],
            engine=row["engine"],
            latency=point.latency,
            start_s=max(point.start_s, LEAST_S),
            memory_mib=point.memory_mib,
            on_front=row["id"] in front,
            chosen=row["chosen"],
        )
        for row in data.rows
        if (point := point_of(row)) is not None
    ]


def curves(data: RunData) -> list[Curve]:
    """Eager's and, after a cold and a warm start, those of the finalists; nothing where no race was run."""
    eager = next((row for row in data.rows if data.trials[row["id"]].candidate.is_eager), None)
    raced = [row for row in data.rows if row["speedup_from"] in RACED]
    if eager is None or not raced or eager["p50_ms"] is None or eager["cold_s"] is None:
        return []
    base = Curve(eager["candidate"], eager["engine"], "cold", eager["cold_s"], eager["p50_ms"] / 1e3)
    return [base, *(curve for row in raced for curve in _finalist(data, row, base.per_call_s))]


def _finalist(data: RunData, row: Row, eager_s: float) -> list[Curve]:
    """A cold start, and a warm one where it was measured; a call as eager's by the speed-up."""
    if not row["speedup"]:
        return []
    even = paid_back(data, data.trials[row["id"]])
    cold = (even.cold_calls, even.cold_low, even.cold_high) if even else ()
    warm = (even.warm_calls, even.warm_low, even.warm_high) if even else ()
    per_call_s = eager_s / row["speedup"]
    return [
        Curve(row["candidate"], row["engine"], name, first_s, per_call_s, *calls)
        for name, first_s, calls in (("cold", row["cold_s"], cold), ("warm", row["warm_s"], warm))
        if first_s is not None
    ]


def most_calls(found: Iterable[Curve]) -> int:
    """How far to draw: well beyond the last break-even, to a power of ten."""
    wanted = max(FEWEST_CALLS, CALLS_BEYOND * max((curve.break_even or 0 for curve in found), default=0))
    return int(10 ** len(str(wanted - 1)))


def call_counts(most: int) -> list[int]:
    """Numbers of calls to draw at: from one to the most, evenly on a logarithmic axis."""
    return sorted({round(float(most) ** (n / (CURVE_POINTS - 1))) for n in range(CURVE_POINTS)})


def step_seconds(data: RunData) -> list[StepSeconds]:
    """Every trial that says where its seconds went, in the order tried."""
    return [
        StepSeconds(f"{number} {trial.candidate.label}", step, seconds, trial.state)
        for number, trial in enumerate(data.trials.values(), 1)
        for step, seconds in _steps(trial)
    ]


def _steps(trial: Trial) -> list[tuple[str, float]]:
    unknown = [step for step in trial.steps_s if step not in STEPS]
    found = [(step, trial.steps_s[step]) for step in (*STEPS, *unknown) if step in trial.steps_s]
    rest = trial.wall_s - sum(seconds for _, seconds in found)
    return [*found, (REST, rest)] if found and rest >= LEAST_REST_S else found
