"""One candidate's trial: build -> check -> warm-up -> single calls -> pairs with eager, in its own process.

In: the run's workers, a candidate, when to end. Out: the fields of its Trial; Failure or Dead where a step is the end
of it. Every step gets what is left of the time and no step more than its own limit. Not covered: how the story ends up
in a record (runner.py), what the samples mean (verdict/).
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import msgspec

from compilot.measure.racing import race
from compilot.measure.tolerance import tolerance_of
from compilot.records import Candidate, Measurement, Reference, State
from compilot.trials.child import Child
from compilot.trials.limits import Limits
from compilot.trials.protocol import CallsTimed, Failed, TimeCalls, Verified, Verify, Warmed
from compilot.trials.workers import Failure, Workers

SCREENING_PAIRS = 8  # enough to sort candidates; who wins is decided in the race
FEWEST_SCREENING_PAIRS = 2  # of a model so slow that the trial's time is up
TAIL_CALLS = 660  # an honest p99 needs about this many
SCREENING_TAIL_S = 1.5


class Judge(NamedTuple):
    """What answers are held against."""

    reference: Reference | None
    tolerance: float | None  # of lower precisions; None: each one's default


def attempt(
    workers: Workers, candidate: Candidate, judge: Judge, known_code: dict[str, str], end: float
) -> dict[str, Any]:
    """Every step of one trial."""

    def limits() -> Limits:
        return workers.limits.capped(end - time.monotonic())

    child = workers.live(candidate.id) or workers.open(candidate, limits())
    story = workers.build(child, candidate, known_code, limits())
    fields: dict[str, Any] = {
        "guard": story.built.guard,
        "artifacts": story.built.artifacts,
        "code_sha256": story.built.code_sha256,
        "measurement": story.measurement,
        "frozen_weights": story.built.frozen_weights,
        "weights_sha256": story.built.weights_sha256,
    }
    if not candidate.is_eager:  # eager is what the others are judged by
        _check(workers, child, candidate, judge, fields, limits())
    _steady(workers, child, candidate, fields, limits())
    if not candidate.is_eager:
        fields["screening"] = _screen(workers, child, end)
    return fields


def _check(
    workers: Workers, child: Child, candidate: Candidate, judge: Judge, fields: dict[str, Any], limits: Limits
) -> None:
    workers.observer.doing("checking its answers")
    judged_by: dict[str, Any] = {
        "references": str(workers.run_dir / "reference"),
        "reference": judge.reference,
        "tolerance": tolerance_of(candidate.settings.precision, judge.tolerance),
    }
    reply = child.ask(Verify, Verified, limit_s=limits.check_s, doing="checking", **judged_by)
    if isinstance(reply, Failed):
        raise Failure(child.owner, reply.state, reply.reason, **fields)
    fields["check"] = reply.check
    if not reply.check.passed:
        raise Failure(child.owner, State.WRONG, reply.check.why, **fields)


def _steady(workers: Workers, child: Child, candidate: Candidate, fields: dict[str, Any], limits: Limits) -> None:
    workers.observer.doing("warming up and timing single calls")
    warmed = workers.warm_up(child, limits)
    fields["measurement"] = timed(child, fields["measurement"], warmed, SCREENING_TAIL_S)
    if not candidate.is_eager and (why := too_large(fields["measurement"], workers.limits.memory_bytes)):
        raise Failure(candidate.id, State.INFEASIBLE, why, **fields)


def _screen(workers: Workers, child: Child, end: float) -> tuple[tuple[float, float], ...]:
    workers.observer.doing("pairing with eager")
    samples = race(
        [workers.eager, child],
        looks=(SCREENING_PAIRS,),
        stop=lambda _: True,
        seed=0,
        time_is_up=lambda: time.monotonic() > end,
        discard=1,
        fewest=FEWEST_SCREENING_PAIRS,
    )
    return tuple((row[0], row[1]) for row in samples.rounds)


def timed(child: Child, first: Measurement, warmed: Warmed, for_s: float) -> Measurement:
    """The measurement of a warm worker, with single calls for the tail."""
    tail = child.ask(TimeCalls, CallsTimed, limit_s=120.0, doing="timing", calls=TAIL_CALLS, for_s=for_s)
    if isinstance(tail, Failed):
        raise Failure(child.owner, tail.state, tail.reason)
    return msgspec.structs.replace(
        first,
        warm_up=warmed.warm_up,
        calls_per_batch=warmed.calls_per_batch,
        call_s=tail.call_s,
        samples_per_call=warmed.samples_per_call,
        peak_rss_bytes=max(warmed.peak_rss_bytes, tail.peak_rss_bytes),
        steady_rss_bytes=warmed.rss_bytes,
        doubts=() if warmed.warm_up.steady else ("unsteady",),
    )


def too_large(measured: Measurement, limit_bytes: int | None) -> str:
    """Why a candidate uses too much memory, "" where it does not: looks while it runs may have missed the peak."""
    if limit_bytes is None or measured.peak_rss_bytes <= limit_bytes:
        return ""
    peak, steady, limit = (n / 2**20 for n in (measured.peak_rss_bytes, measured.steady_rss_bytes, limit_bytes))
    return f"peak memory {peak:.0f} MiB ({steady:.0f} MiB steady) is above the limit of {limit:.0f} MiB"
