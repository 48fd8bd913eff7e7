"""Whether the policy that a replay chose is faster on fresh data, too: the best of several noisy arms is flattered.

In: what the replay decided, a second replay of eager and the chosen arm in fresh processes, or none where time was up.
Out: `Decided` with the fresh figures: the plan's evidence is theirs alone. What was not shown again, in enough
processes, keeps eager and is not called faster. Not covered: the choice itself (replays.py), running it (tuning/).
"""

from __future__ import annotations

import msgspec

from compilot.records import Comparison, Outcome, PolicyArm, Replay, ShapePolicy, SizesVerdict
from compilot.verdict.replays import Decided, compare_totals, notes_of, sample_of, start_share
from compilot.verdict.words import shown, times

UNCONFIRMED = "not confirmed in fresh processes"


def confirmed(choice: Decided, fresh: Replay | None, *, horizon_calls: int | None = None, enough: int = 1) -> Decided:
    """The choice with fresh figures; fresh: None where there was no time. A choice of eager stays as it is."""
    if choice.arm is None:
        return choice
    again = _again(choice.arm, fresh)
    done = len(fresh.race.processes) if fresh is not None else 0
    if again is None or fresh is None or done < enough:
        return _unconfirmed(choice, choice.arm, _why_not(choice.arm, fresh, done, enough))
    versus = compare_totals(fresh.race, again.id, fresh.race.arms[0], more_s=start_share(again, horizon_calls))
    if versus.outcome is not Outcome.FASTER:
        was = times(_of(choice.verdict, again.id).ratio)
        because = f"best policy {again.label}: {shown(versus)} in fresh processes ({was} when it was chosen)"
        return _eager(choice, _with(choice.verdict, versus), f"{because}, over {sample_of(fresh)}")
    return _shown(choice, again, fresh, versus)


def _again(arm: PolicyArm, fresh: Replay | None) -> PolicyArm | None:
    """The chosen arm as its fresh processes saw it; None: it has no figures there."""
    return next((one for one in fresh.arms if one.id == arm.id and not one.lost), None) if fresh is not None else None


def _why_not(arm: PolicyArm, fresh: Replay | None, done: int, enough: int) -> str:
    lost = next((one.lost for one in fresh.arms if one.id == arm.id and one.lost), "") if fresh is not None else ""
    return lost or f"{done} of {enough} sets were replayed when the budget ended; give a larger budget"


def _shown(choice: Decided, again: PolicyArm, fresh: Replay, versus: Comparison) -> Decided:
    because = f"{again.label}: {shown(versus)} over {sample_of(fresh)}, in fresh processes{choice.why}"
    verdict = msgspec.structs.replace(
        choice.verdict,
        because=because,
        comparisons=_with(choice.verdict, versus),
        forecast=again.forecast,
        replayed=versus.ratio,
        notes=(*choice.given, *notes_of(again, versus.ratio)),
    )
    return Decided(again, verdict, choice.why, choice.given)


def _unconfirmed(choice: Decided, arm: PolicyArm, why: str) -> Decided:
    """Nothing of it is called faster."""
    was = times(_of(choice.verdict, arm.id).ratio)
    because = f"best policy {arm.label}: {was} when it was chosen, {UNCONFIRMED}: {why}"
    doubted = tuple(_doubted(one) for one in choice.verdict.comparisons)
    return _eager(choice, doubted, because)


def _doubted(one: Comparison) -> Comparison:
    if one.outcome is not Outcome.FASTER:
        return one
    return msgspec.structs.replace(one, outcome=Outcome.UNDECIDED, doubts=(*one.doubts, UNCONFIRMED))


def _eager(choice: Decided, comparisons: tuple[Comparison, ...], because: str) -> Decided:
    eager = comparisons[0].baseline_id
    return Decided(
        None,
        SizesVerdict(
            policy=ShapePolicy.EAGER, arm_id=eager, because=because, comparisons=comparisons, notes=choice.given
        ),
    )


def _of(verdict: SizesVerdict, arm_id: str) -> Comparison:
    return next(one for one in verdict.comparisons if one.candidate_id == arm_id)


def _with(verdict: SizesVerdict, fresh: Comparison) -> tuple[Comparison, ...]:
    """The comparisons of the choice, with the fresh one in its place."""
    return tuple(fresh if one.candidate_id == fresh.candidate_id else one for one in verdict.comparisons)
