"""The plan for a trace: many entries, one piece of evidence. In: what the replay decided. Out: a Verdict and a Plan.

Every entry has the figures of the whole plan: the replay timed all of them together. The first one has the sentence.
Not covered: which calls each entry takes (tuning/size_arms.py), the file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from compilot.records import (
    PLAN_SCHEMA,
    BreakEven,
    Candidate,
    Comparison,
    Decision,
    Evidence,
    Plan,
    PlanEntry,
    PolicyArm,
    ProcessSettings,
    Race,
    Replay,
    RunHeader,
    SizesVerdict,
    State,
    Trial,
    Verdict,
)
from compilot.verdict.contenders import column_median
from compilot.verdict.plan import honest_sentence
from compilot.verdict.replays import compare_totals


def verdict_for_sizes(decided: SizesVerdict, arm: PolicyArm | None, eager_id: str, replay: Replay | None) -> Verdict:
    """What the run came to; arm: None keeps eager."""
    if arm is None or replay is None:
        return Verdict(decision=Decision.KEEP_EAGER, chosen_id=eager_id, because=decided.because, sizes=decided)
    return Verdict(
        decision=Decision.USE,
        chosen_id=arm.candidates[0],
        because=decided.because,
        break_even=_break_even(replay, arm),
        sizes=decided,
    )


def plan_for_sizes(
    verdict: Verdict,
    entries: Sequence[PlanEntry],
    replay: Replay | None,
    header: RunHeader,
    trials: Sequence[Trial],
    *,
    plain_id: str | None,
    created: str,
    version: str,
) -> Plan:
    """The plan with these entries; plain_id: of the replay's arm that is plain torch.compile."""
    told: tuple[PlanEntry, ...] = ()
    if verdict.decision is Decision.USE and replay is not None:
        told = _with_evidence(verdict, entries, replay, header, trials, plain_id)
    return Plan(
        schema=PLAN_SCHEMA,
        compilot=version,
        created=created,
        workload=header.workload,
        fingerprint=header.fingerprint,
        because=verdict.because,
        process=told[0].candidate.process if told else ProcessSettings(),
        entries=told,
    )


def _with_evidence(
    verdict: Verdict,
    entries: Sequence[PlanEntry],
    replay: Replay,
    header: RunHeader,
    trials: Sequence[Trial],
    plain_id: str | None,
) -> tuple[PlanEntry, ...]:
    assert verdict.sizes is not None
    arm = next(one for one in replay.arms if one.id == verdict.sizes.arm_id)
    evidence = _evidence(verdict, arm, replay, trials, plain_id)
    sentence = honest_sentence(
        evidence,
        header.fingerprint.machine,
        Candidate(settings=entries[0].candidate.settings, label="", rationale="", process=entries[0].candidate.process),
    )
    found = []
    for number, entry in enumerate(entries):
        own = msgspec.structs.replace(evidence, check=entry.evidence.check)
        found.append(msgspec.structs.replace(entry, evidence=own, sentence=sentence if number == 0 else ""))
    return tuple(found)


def _evidence(
    verdict: Verdict, arm: PolicyArm, replay: Replay, trials: Sequence[Trial], plain_id: str | None
) -> Evidence:
    race = replay.race
    plain = plain_id if plain_id in race.arms and plain_id != arm.id else None
    return Evidence(
        versus_eager=_versus_eager(verdict, arm),
        versus_compile=compare_totals(race, arm.id, plain) if plain else None,
        eager_p50_s=column_median(race, 0),
        p50_s=column_median(race, race.arms.index(arm.id)),
        cold_s=arm.start_s,
        warm_s=arm.loaded_s,
        peak_rss_bytes=arm.peak_rss_bytes or None,
        break_even=verdict.break_even,
        candidates_tried=sum(t.state is not State.PRUNED and not t.candidate.is_eager for t in trials),
    )


def _versus_eager(verdict: Verdict, arm: PolicyArm) -> Comparison | None:
    assert verdict.sizes is not None
    return next((one for one in verdict.sizes.comparisons if one.candidate_id == arm.id), None)


def _break_even(replay: Replay, arm: PolicyArm) -> BreakEven:
    """From the mean request: requests are not alike."""
    saved_s = _mean(replay.race, 0) - _mean(replay.race, replay.race.arms.index(arm.id))
    loaded_s = arm.loaded_s
    return BreakEven(
        cold_calls=math.ceil(arm.start_s / saved_s) if saved_s > 0 else None,
        warm_calls=math.ceil(loaded_s / saved_s) if saved_s > 0 and loaded_s is not None else None,
    )


def _mean(race: Race, column: int) -> float:
    seconds = [row[column] for process in race.processes for row in process.rounds]
    return sum(seconds) / len(seconds)
