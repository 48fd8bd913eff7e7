"""Limits that the user sets for every candidate: what is beyond them, and what is said of it.

In: a cold start, a check, a trial; the limits of a run. Out: why it is beyond them, "" where it is not; an earlier
trial as the limits of now judge it. Covered: --max-compile and --max-error. Eager is what the others are judged by and
is held to neither. Not covered: memory (trials/attempt.py), the limits that hold without being asked for
(measure/closeness.py).
"""

from __future__ import annotations

import msgspec

from compilot.records import Check, RunHeader, State, Trial
from compilot.verdict.words import seconds

TOO_SLOW = "cold start took longer than"
TOO_FAR_OFF = "above the error allowed,"


def too_slow(limit_s: float, cold_s: float | None = None) -> str:
    """Why a candidate with this limit is out; cold_s: what its start took, None: it was ended at the limit."""
    return f"{TOO_SLOW} the {limit_s:g} s allowed" + (f": {seconds(cold_s)}" if cold_s is not None else "")


def too_far_off(check: Check, limit: float | None) -> str:
    """Why answers are too far from the reference, with both figures; "" where they are not."""
    error = check.relative_error
    if limit is None or error is None or error <= limit:
        return ""
    return f"relative error {error:.2g} against {check.reference} is {TOO_FAR_OFF} {limit:g}"


def held_to(check: Check, limit: float | None) -> Check:
    """A check that was passed, with this limit on its error; one that was failed keeps its own reason."""
    why = too_far_off(check, limit) if check.passed else ""
    return msgspec.structs.replace(check, passed=False, why=why) if why else check


def judged_again(trial: Trial, before: RunHeader, now: RunHeader) -> Trial | None:
    """A trial of a part that had other limits, as those of now judge it; None: it has to be tried again."""
    if trial.candidate.is_eager or _limits(before) == _limits(now):
        return trial
    slow = trial.state is State.INFEASIBLE and trial.reason.startswith(TOO_SLOW)
    off = trial.state is State.WRONG and TOO_FAR_OFF in trial.reason
    if (slow or off) and trial.screening:  # it was ok until a later part had a lower limit: all of it is known
        reason = trial.check.why if trial.check is not None else ""
        return _held_again(msgspec.structs.replace(trial, state=State.OK, reason=reason), now)
    if slow:
        return trial if _starts_too_late(trial, before, now) else None
    if off:
        return trial if trial.check is not None and too_far_off(trial.check, now.max_error) else None
    return _held_again(trial, now) if trial.state is State.OK else trial


def _limits(header: RunHeader) -> tuple[float | None, float | None]:
    return header.max_compile_s, header.max_error


def _starts_too_late(trial: Trial, before: RunHeader, now: RunHeader) -> bool:
    """Still, also under the limit of now: by what was measured, or because it was ended at no lower limit."""
    if now.max_compile_s is None:
        return False
    if trial.measurement is not None:
        return trial.measurement.cold_s > now.max_compile_s
    return before.max_compile_s is not None and now.max_compile_s <= before.max_compile_s


def _held_again(trial: Trial, now: RunHeader) -> Trial | None:
    """A trial that was ok; its check stays as it was, so that a higher limit can let it in again."""
    cold_s = trial.measurement.cold_s if trial.measurement is not None else 0.0
    if now.max_compile_s is not None and cold_s > now.max_compile_s:
        reason = too_slow(now.max_compile_s, cold_s)
        return msgspec.structs.replace(trial, state=State.INFEASIBLE, reason=reason)
    if now.max_error is None or trial.check is None:
        return trial
    if trial.check.relative_error is None:
        return None  # nobody measured it
    why = too_far_off(trial.check, now.max_error)
    return msgspec.structs.replace(trial, state=State.WRONG, reason=why) if why else trial
