"""Which policy serves a trace: decided by the replay.

In: a `Replay`, a horizon of calls. Out: comparisons by total time, and the arm that is to be the plan, with the reason.
An arm is chosen only if it was shown faster than eager over the whole sample; of those that are not shown slower than
the best and are within 2 % of it, the one that serves most calls, cuts none and has the fewest programs. With a horizon
each call carries its share of the arm's start. Not covered: running it (trials/replaying.py), fresh figures of the
chosen one (replay_confirmation.py), forecasts (policies.py).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from compilot.measure.noise import FALLBACK_MARGIN, MIN_MARGIN, mde
from compilot.measure.totals import total_interval, total_noise
from compilot.records import Comparison, Outcome, PolicyArm, Race, Replay, ShapePolicy, SizesVerdict
from compilot.verdict.compare import outcome_of, race_doubts
from compilot.verdict.shape_costs import start_of
from compilot.verdict.words import count, percent, seconds, shown, times

AS_GOOD = 0.02  # of the best total: less is not worth more programs
FORECAST_ERROR = 0.10  # beyond it a plan says that its forecast was wrong


class Decided(NamedTuple):
    """What a replay came to."""

    arm: PolicyArm | None  # None: eager is kept
    verdict: SizesVerdict
    why: str = ""  # this one and no other, as the end of a sentence
    given: tuple[str, ...] = ()  # notes that do not depend on figures


def compare_totals(
    race: Race, candidate_id: str, baseline_id: str, *, more_s: tuple[float, float] = (0.0, 0.0)
) -> Comparison:
    """Speed-up of one arm over another by the total of the requests; more_s: of each call, candidate's, baseline's."""
    columns = race.arms.index(candidate_id), race.arms.index(baseline_id)
    interval, noise = total_interval(race, *columns, more_s=more_s), total_noise(race)
    margin = max(MIN_MARGIN, FALLBACK_MARGIN if noise is None else noise)
    ratio, low, high = (
        (math.exp(interval.estimate), math.exp(interval.low), math.exp(interval.high)) if interval else (1.0, 1.0, 1.0)
    )
    requests = [len(process.rounds) for process in race.processes]
    return Comparison(
        candidate_id=candidate_id,
        baseline_id=baseline_id,
        ratio=ratio,
        low=low,
        high=high,
        outcome=outcome_of(low, high, margin) if interval else Outcome.UNDECIDED,
        margin=margin,
        mde=mde(interval.half_width if interval else 0.0, margin),
        aa_noise=noise or 0.0,
        processes=len(race.processes),
        pairs=min(requests, default=0),
        all_pairs=sum(requests),
        doubts=race_doubts(race, len(race.processes), noise, interval),
    )


def decide_replay(replay: Replay, *, horizon_calls: int | None = None, notes: tuple[str, ...] = ()) -> Decided:
    """The arm that is to be the plan, if fresh figures confirm it."""
    eager = replay.race.arms[0]
    able = [arm for arm in replay.arms if not arm.lost and arm.id != eager]
    versus = {
        arm.id: compare_totals(replay.race, arm.id, eager, more_s=start_share(arm, horizon_calls)) for arm in able
    }
    faster = [arm for arm in able if versus[arm.id].outcome is Outcome.FASTER]
    comparisons = tuple(versus.values())
    if not faster:
        return Decided(None, _kept(replay, able, versus, notes))
    best = max(faster, key=lambda arm: versus[arm.id].ratio)
    peers = [arm for arm in faster if _as_good(replay, best, arm, versus, horizon_calls)]
    chosen = min(peers, key=lambda arm: (*_preference(arm), -versus[arm.id].ratio))
    ratio, why = versus[chosen.id].ratio, _why(chosen, best, able, versus, horizon_calls)
    return Decided(
        chosen,
        SizesVerdict(
            policy=chosen.policy or ShapePolicy.DYNAMIC,
            arm_id=chosen.id,
            because=f"{chosen.label}: {shown(versus[chosen.id])} over {sample_of(replay)}{why}",
            comparisons=comparisons,
            forecast=chosen.forecast,
            replayed=ratio,
            notes=(*notes, *notes_of(chosen, ratio)),
        ),
        why,
        notes,
    )


def _preference(arm: PolicyArm) -> tuple[float, bool, bool, int]:
    """What serves most of the trace, then every declared size, then whole calls, then with the fewest programs."""
    return -round(arm.fast_share or 0.0, 3), not arm.serves_all, arm.splits, len(arm.programs)


def start_share(arm: PolicyArm, horizon_calls: int | None) -> tuple[float, float]:
    """What a horizon adds to each call: the arm's, eager's."""
    return (start_of(arm.start_s, arm.size_bytes) / horizon_calls if horizon_calls else 0.0, 0.0)


def _as_good(
    replay: Replay, best: PolicyArm, other: PolicyArm, versus: dict[str, Comparison], horizon_calls: int | None
) -> bool:
    if other is best:
        return True
    more = (start_share(best, horizon_calls)[0], start_share(other, horizon_calls)[0])
    direct = compare_totals(replay.race, best.id, other.id, more_s=more)
    near = versus[other.id].ratio * (1.0 + AS_GOOD) >= versus[best.id].ratio
    return direct.outcome is not Outcome.FASTER and near


def _kept(replay: Replay, able: list[PolicyArm], versus: dict[str, Comparison], notes: tuple[str, ...]) -> SizesVerdict:
    if not able:
        why = "no policy could be replayed"
    else:
        best = max(able, key=lambda arm: versus[arm.id].ratio)
        why = f"best policy {best.label}: {shown(versus[best.id])} over {sample_of(replay)}"
    lost = [f"{arm.label} was left out: {arm.lost}" for arm in replay.arms if arm.lost]
    return SizesVerdict(
        policy=ShapePolicy.EAGER,
        arm_id=replay.race.arms[0],
        because=why,
        comparisons=tuple(versus.values()),
        notes=(*notes, *lost),
    )


def _why(
    chosen: PolicyArm,
    best: PolicyArm,
    able: list[PolicyArm],
    versus: dict[str, Comparison],
    horizon_calls: int | None,
) -> str:
    text = f"; forecast {times(chosen.forecast)}" if chosen.forecast is not None else ""
    if chosen is not best:
        text += f"; no difference from {best.label} shown ({times(versus[best.id].ratio)}), and it is simpler"
    else:
        others = sorted((arm for arm in able if arm is not chosen), key=lambda arm: -versus[arm.id].ratio)
        text += f"; next best {others[0].label}, {times(versus[others[0].id].ratio)}" if others else ""
    if horizon_calls:
        text += f"; with the start ({seconds(chosen.start_s)}) over {count(horizon_calls, 'call')}"
    return text


def sample_of(replay: Replay) -> str:
    """How much was replayed."""
    if replay.batch_sizes:
        return f"{count(replay.requests, 'request')} of {count(replay.distinct, 'batch size')}"
    return f"{count(replay.requests, 'request')} of a trace of {count(replay.calls, 'call')}"


def notes_of(chosen: PolicyArm, ratio: float) -> list[str]:
    """What a reader of these figures should know."""
    return [*_served(chosen), *_forecast_note(chosen.forecast, ratio)]


def _served(chosen: PolicyArm) -> list[str]:
    told = []
    if chosen.fast_share is not None and chosen.fast_share < 1.0:
        told.append(f"{percent(1.0 - chosen.fast_share)} of the replayed calls were left to eager")
    if not chosen.serves_all:
        told.append("sizes that have no program are left to eager")
    if chosen.recompiles:
        told.append(f"{count(chosen.recompiles, 'program')} had to be built after the warm-up")
    return told


def _forecast_note(forecast: float | None, replayed: float) -> list[str]:
    if forecast is None or abs(forecast / replayed - 1.0) <= FORECAST_ERROR:
        return []
    what = f"the forecast was {times(forecast)} and the replay gave {times(replayed)}"
    return [f"{what}: between the measured sizes the costs are not as assumed"]
