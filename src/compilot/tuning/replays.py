"""Whole plans over the requests of a trace, in several sets of fresh processes.

In: a runner that has opened a trace, arms with their records. Out: one `Replay`. An arm that fails is left out, with
its reason, and the sets begin anew: every set has the same arms. The first set is always made. A further one of a
replay that chooses is begun only if it fits into what is left, since the confirmation comes after it; one of a
confirmation is begun while time is left. Used by `tune` and `bench`. Not covered: one set (trials/replaying.py), which
arms there are, what the seconds mean (verdict/replays.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from compilot.engines.eager.build import EAGER
from compilot.progress import Observer
from compilot.records import PolicyArm, Race, Replay, ShapePolicy
from compilot.trials.runner import Arm, ArmLost, ArmSeen, FreshReplay, ReplayRules, Runner
from compilot.verdict.words import count

CONFIRM = "confirm"  # purpose of a replay of the chosen plan in fresh processes
CONFIRMING = 1000  # the number of the first set that confirms


class Made(NamedTuple):
    """A way to serve the trace, as it is replayed."""

    arm: Arm
    record: PolicyArm
    forecast: Callable[[int], float] | None = None  # of a replay of so many requests; None: nobody forecast it


class ReplayPlan(NamedTuple):
    """How much is replayed."""

    processes: int
    requests: Callable[[int], int]  # from the number of arms
    left_s: Callable[[], float] = lambda: math.inf
    calls: int = 0  # of the whole trace
    distinct: int = 0  # sizes among them
    purpose: str = "replay"  # or "confirm": the chosen one again
    batch_sizes: bool = False  # there is no trace: requests are of the batch sizes that were asked for

    @property
    def confirms(self) -> bool:
        """Whether nothing comes after it."""
        return self.purpose != "replay"

    def number(self, done: int) -> int:
        """Of the next set: those that confirm have orders of their own."""
        return CONFIRMING + done if self.confirms else done

    def affords(self, last_set_s: float) -> bool:
        """Whether a further set may begin, when the last one took so long."""
        return self.left_s() > (0.0 if self.confirms else last_set_s)


def replayed(runner: Runner, arms: Sequence[Made], how: ReplayPlan, observer: Observer) -> Replay | None:
    """Set after set; None: no arm was left, or there are none."""
    left, lost, sets, last_set_s = list(arms), dict[str, str](), list[FreshReplay](), 0.0
    while left and len(sets) < how.processes and (not sets or how.affords(last_set_s)):
        begin_s = how.left_s()
        requests = min((len(one.samples.rounds) for one in sets), default=how.requests(len(left)))
        observer.stage(_stage(how, requests, len(sets) + 1))
        for_s = max(0.0, begin_s) / (how.processes - len(sets))
        try:
            rules = ReplayRules(requests, how.number(len(sets)), for_s, purpose=how.purpose)
            sets.append(runner.replay([one.arm for one in left], rules))
            last_set_s = begin_s - how.left_s() if math.isfinite(begin_s) else 0.0
        except ArmLost as gone:
            observer.note(f"{gone.owner} is left out: {gone.reason}")
            lost[gone.owner] = gone.reason
            left, sets = [one for one in left if one.arm.id != gone.owner], []
    return _record(arms, left, sets, lost, how) if sets else None


def _stage(how: ReplayPlan, requests: int, number: int) -> str:
    again = " again with the chosen plan" if how.confirms else ""
    of = count(how.distinct, "batch size") if how.batch_sizes else "the trace"
    return f"replaying {count(requests, 'request')} of {of}{again}: set {number} of {how.processes}"


def _record(
    arms: Sequence[Made], left: Sequence[Made], sets: Sequence[FreshReplay], lost: dict[str, str], how: ReplayPlan
) -> Replay:
    with_aa = all(one.with_aa for one in sets)
    race = Race(
        arms=(EAGER.id, *([EAGER.id] if with_aa else []), *(one.arm.id for one in left)),
        with_aa=with_aa,
        processes=tuple(one.samples for one in sets),
        purpose=how.purpose,
        load=next((one.load for one in sets if one.load), ""),
    )
    eager = PolicyArm(id=EAGER.id, label="eager", engine="eager", policy=ShapePolicy.EAGER)
    requests = min(len(one.samples.rounds) for one in sets)
    records = [eager, *(_with_forecast(one, requests) for one in left)]
    gone = [msgspec.structs.replace(one.record, lost=lost[one.arm.id]) for one in arms if one.arm.id in lost]
    return Replay(
        race=race,
        arms=(*(_with_seen(record, [one.seen[record.id] for one in sets]) for record in records), *gone),
        requests=requests,
        calls=how.calls,
        distinct=how.distinct,
        batch_sizes=how.batch_sizes,
    )


def _with_forecast(one: Made, requests: int) -> PolicyArm:
    if one.forecast is None:
        return one.record
    return msgspec.structs.replace(one.record, forecast=one.forecast(requests))


def _with_seen(record: PolicyArm, seen: Sequence[ArmSeen]) -> PolicyArm:
    """The arm with what its processes said, over all sets."""
    shares = [one.fast_share for one in seen if one.fast_share is not None]
    return msgspec.structs.replace(
        record,
        loaded_s=sorted(one.loaded_s for one in seen)[len(seen) // 2],
        fast_share=min(shares, default=None),
        recompiles=max(one.recompiles for one in seen),
        peak_rss_bytes=max(one.peak_rss_bytes for one in seen),
    )
