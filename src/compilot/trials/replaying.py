"""Whole plans over the requests of a trace, request by request.

In: the run's workers, arms (each a plan's entries, or none for eager), how much. Out: one set of fresh processes: the
seconds of every request in every arm, in the same order, and who answered. A window is a few requests in a row; in
each window every arm has its turn, in random order, one at a time, and the others are idle. A turn is long enough for a
clock: where an arm answers the window faster, it does so several times, and the mean counts. So each request is a pair
with eager's. Not covered: what the seconds mean (verdict/replays.py), which policies there are.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from compilot.engines.eager.build import EAGER
from compilot.engines.of_candidate import traits_of
from compilot.errors import WorkerError
from compilot.records import Candidate, ProcessSamples, Shipment
from compilot.trials.child import Child
from compilot.trials.load import LoadWatch
from compilot.trials.opening import opening
from compilot.trials.protocol import (
    AskServed,
    AttachPlan,
    Opened,
    PlanAttached,
    RequestsTimed,
    Served,
    TimeRequests,
)
from compilot.trials.runner import Arm, ArmSeen, FreshReplay, ReplayRules
from compilot.trials.workers import Workers, must

WINDOW_S = 0.020  # as a batch of an ordinary race: what a clock and a waking processor need
LONGEST_WINDOW = 8  # requests: an interval needs many windows
MOST_PASSES = 100  # over a window in one turn
FEWEST_WINDOWS = 6  # of a whole replay
FEWEST_REQUESTS = LONGEST_WINDOW * FEWEST_WINDOWS  # of a replay that runs out of time: less has no interval
CALIBRATED = 32  # requests that tell how long an arm takes
REPLAY_LIMIT_S = 900.0  # of one step: a pass over the trace in a slow model


class _Live(NamedTuple):
    arm: Arm
    child: Child
    attached: PlanAttached


def replay(
    workers: Workers, arms: Sequence[Arm], rules: ReplayRules, on_request: Callable[[int, int], None]
) -> FreshReplay:
    """One set of fresh processes, eager's first; with eager twice where `rules` say so. Raises Failure and Dead."""
    eager = Arm(EAGER.id, ())
    order = [eager, *([eager] if rules.with_aa else []), *arms]
    shipment = _shipment(workers, rules.requests)
    children = [_begun(workers, shipment, arm, f"replay-{number}") for number, arm in enumerate(order)]
    live = [_attached(workers, arm, child) for arm, child in zip(order, children, strict=True)]
    watch = LoadWatch([one.child.pid for one in live])
    samples = timed([one.child for one in live], live[0].attached.requests, rules, on_request)
    seen = {one.arm.id: _seen(one) for one in reversed(live)}  # of eager the first
    return FreshReplay(samples, rules.with_aa, seen, watch.odd())


def _shipment(workers: Workers, requests: int) -> Shipment:
    if workers.shipment is None or not workers.shipment.replay:
        raise WorkerError("no trace was opened.")
    calls = workers.shipment.replay[:requests]
    return msgspec.structs.replace(workers.shipment, replay=calls, replay_later=False)


def _begun(workers: Workers, shipment: Shipment, arm: Arm, name: str) -> Child:
    """A process that opens the model; several do so side by side."""
    candidate = _opener(arm)
    child = workers.begin_arm(arm.id, name, candidate, compiles=any(traits_of(c).through_dynamo for c in _of(arm)))
    child.send(opening(shipment, candidate, workers.run_dir.workspace(name)), doing="opening")
    return child


def _of(arm: Arm) -> list[Candidate]:
    return [entry.candidate for entry in arm.entries]


def _opener(arm: Arm) -> Candidate:
    """What a worker is opened with: the process settings of the plan, on the workload's own example."""
    return msgspec.structs.replace(arm.entries[0].candidate, sizes={}) if arm.entries else EAGER


def _attached(workers: Workers, arm: Arm, child: Child) -> _Live:
    must(child, child.receive(Opened, limit_s=workers.limits.open_s))
    request = AttachPlan(entries=arm.entries, folder=str(arm.folder or workers.run_dir.path))
    attached = must(child, child.ask(request, PlanAttached, limit_s=REPLAY_LIMIT_S, doing="loading the plan"))
    return _Live(arm, child, attached)


def timed(
    arms: Sequence[Child], total: int, rules: ReplayRules, on_request: Callable[[int, int], None]
) -> ProcessSamples:
    """Every request in every arm, window after window; fewer where time is up."""
    end = time.monotonic() + rules.for_s
    means_s = [_mean_s(arm, min(total, CALIBRATED)) for arm in arms]
    width = window_of(means_s[0], total)
    passes = [passes_of(mean_s, width) for mean_s in means_s]
    order, rows, late = random.Random(rules.number), list[tuple[float, ...]](), 0
    for first in range(0, total, width):
        columns: list[tuple[float, ...]] = [()] * len(arms)
        for index in order.sample(range(len(arms)), len(arms)):  # the row keeps the arms' own order
            columns[index] = _times(arms[index], first, width, passes[index])
            late += not arms[index].settle()
        rows += zip(*columns, strict=True)
        on_request(len(rows), total)
        if len(rows) >= FEWEST_REQUESTS and time.monotonic() > end:
            break
    return ProcessSamples(rounds=tuple(rows), settle_timeouts=late, window=width)


def _mean_s(child: Child, count: int) -> float:
    return sum(_times(child, 0, count, 1)) / count


def _times(child: Child, first: int, count: int, passes: int) -> tuple[float, ...]:
    request = TimeRequests(first=first, count=count, passes=passes)
    reply = child.ask(request, RequestsTimed, limit_s=REPLAY_LIMIT_S, doing="answering requests of the trace")
    return must(child, reply).seconds


def window_of(mean_s: float, total: int) -> int:
    """Requests of a window, from what one takes in eager and how many there are."""
    return max(1, min(LONGEST_WINDOW, total // FEWEST_WINDOWS, math.ceil(WINDOW_S / max(mean_s, 1e-9))))


def passes_of(mean_s: float, width: int) -> int:
    """How often an arm answers a window in one turn, so that the turn is long enough."""
    return max(1, min(MOST_PASSES, math.ceil(WINDOW_S / max(mean_s * width, 1e-9))))


def _seen(one: _Live) -> ArmSeen:
    reply = one.child.ask(AskServed(), Served, limit_s=60.0, doing="counting")
    counts = must(one.child, reply)
    share = counts.fast / counts.calls if counts.calls else None
    reasons = one.attached.fallbacks
    return ArmSeen(one.attached.loaded_s, share, counts.compiles, counts.peak_rss_bytes, reasons)
