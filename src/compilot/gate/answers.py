"""Does the head give the base's answers? In: the files of answers that the arms kept. Out: a `MetricResult` per arm.

Only where names and shapes of parameters are equal, and their values and the inputs were copied from the base. Judged
as every candidate of `tune` is: against the base in float64 where that runs, with the base's own error as the measure.
Needs torch, so it is imported when there is something to compare.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from compilot.gate.judging import not_measured
from compilot.gate.metrics import NUMBERS
from compilot.gate.report_records import GateVerdict, MetricResult
from compilot.gate.sides import BASE, HEAD
from compilot.trials.protocol import StateTaken

if TYPE_CHECKING:
    from torch import Tensor

OTHER_PARAMETERS = "the model has other parameters"


class Compared(NamedTuple):
    """What came of comparing two files of answers."""

    wrong: str = ""  # the first output that differs; "": none does
    relative: float = 0.0  # worst relative error
    limit: float = 0.0  # the largest relative error that was let pass
    cases: int = 0
    tensors: int = 1  # that were compared in all cases
    non_finite: bool = False  # a NaN or an infinity is among what is wrong


def why_not(taken: StateTaken, repeats: bool) -> str:
    """Why numbers cannot be compared; "": they can."""
    if taken.parameters:
        return f"{OTHER_PARAMETERS}: {taken.parameters}"
    if taken.inputs:
        return f"the example inputs are others: {taken.inputs}"
    return (
        "" if repeats else "the model gives other answers to the same inputs each time; call model.eval(), or seed it"
    )


def judge_numbers(
    answers: Mapping[str, Path], arms: Sequence[str], *, why: str = "", allowed: bool = False
) -> list[MetricResult]:
    """Every arm of the head against the base's first arm."""
    if why:
        return [not_measured(NUMBERS, arm, why) for arm in arms if f"{HEAD} {arm}" in answers]
    reference = answers.get(f"{BASE} {arms[0]}")
    return [
        _judged(arm, reference, answers.get(f"{BASE} {arm}"), answers[f"{HEAD} {arm}"], allowed)
        for arm in arms
        if f"{HEAD} {arm}" in answers and reference is not None
    ]


def _judged(arm: str, reference: Path, own: Path | None, head: Path, allowed: bool) -> MetricResult:
    found = compare_files(reference, head)
    if not found.wrong and not found.tensors:
        return not_measured(NUMBERS, arm, "the answers hold no tensors and no numbers to compare")
    if not found.wrong:
        text = f"the same answers in {found.cases} cases (relative error {found.relative:.1e})"
        because = f"{text}; {found.limit:.1e} or more would have been seen"
        return _result(arm, GateVerdict.PASS, because, found)
    if own is not None and own != reference and _is_as_off(reference, own, head) and not found.non_finite:
        because = f"{found.wrong}; the base's own answers are off, too, and the same"
        return _result(arm, GateVerdict.PASS, because, found)
    if allowed:
        return _result(arm, GateVerdict.PASS, f"{found.wrong}; a change is allowed", found)
    return _result(arm, GateVerdict.WORSE, found.wrong, found)


def _is_as_off(reference: Path, own: Path, head: Path) -> bool:
    """Whether the base's own arm is off as well, and the head gives its answers."""
    return bool(compare_files(reference, own).wrong) and not compare_files(own, head).wrong


def _result(arm: str, verdict: GateVerdict, because: str, found: Compared) -> MetricResult:
    return MetricResult(
        metric=NUMBERS,
        arm=arm,
        verdict=verdict,
        because=because,
        unit="",
        head=found.relative,
        mde=found.limit,
        races=1,
    )


def compare_files(reference: Path, other: Path) -> Compared:
    """The answers of one file against those of another, to the cases that both have.

    An arm answers every example; values that we made up and its model refuses are left out of its file.
    """
    import torch

    kept, given = (torch.load(path, weights_only=True) for path in (reference, other))
    shared = {case: answers for case, answers in kept["answers"].items() if case in given["answers"]}
    return compare_answers(shared, kept["double"] or {}, given["answers"])


def compare_answers(
    base: Mapping[str, Any], exact: Mapping[str, Any], head: Mapping[str, Any], *, tolerance: float | None = None
) -> Compared:
    """By case and by path of the output, all of them.

    tolerance: the relative error of each output that is let pass, in place of the usual limits. Another structure, a
    NaN or an infinity at another place and another integer are wrong at any tolerance.
    """
    seen: list[_Seen] = []
    for case, outputs in base.items():
        given = head.get(case, {})
        if why := _structure(outputs, given):
            return Compared(f"{why} (case {case})", cases=len(base))
        for path, tensor in outputs.items():
            seen.append(_closeness(case, path, given[path], tensor, exact.get(case, {}).get(path), tolerance))
    return Compared(
        wrong=next((one.wrong for one in seen if one.wrong), ""),
        relative=max((one.relative for one in seen), default=0.0),
        limit=max((one.allowed for one in seen), default=0.0),
        cases=len(base),
        tensors=len(seen),
        non_finite=any(one.non_finite for one in seen),
    )


def _structure(base: Mapping[str, Tensor], head: Mapping[str, Tensor]) -> str:
    for path in base:
        if path not in head:
            return f"output{path} is gone"
    for path, tensor in head.items():
        if path not in base:
            return f"output{path} is new"
        if tensor.shape != base[path].shape or tensor.dtype != base[path].dtype:
            was, now = (f"{tuple(one.shape)} {one.dtype}" for one in (base[path], tensor))
            return f"output{path} was {was} and is {now}"
    return ""


class _Seen(NamedTuple):
    """What came of comparing one output."""

    wrong: str
    relative: float
    allowed: float
    non_finite: bool = False


def _closeness(
    case: str, path: str, head: Tensor, base: Tensor, exact: Tensor | None, tolerance: float | None
) -> _Seen:
    from compilot.measure import closeness

    usual = closeness.rms(base) if base.is_floating_point() else 0.0
    coarsest = base.dtype if base.is_floating_point() else _double()
    close = closeness.compare(head, base, exact, case=case, output=f"output{path}", typical=usual, coarsest=coarsest)
    place = f"at output{path} (case {case})"
    relative, allowed = close.relative or 0.0, close.check.limit / usual if usual else 0.0
    if close.non_finite:
        return _Seen(f"{close.non_finite} {place}", relative, allowed, non_finite=True)
    if tolerance is not None and close.relative is not None:  # integers have none, and must be equal
        return _within(tolerance, close.relative, close.check.rmse, place)
    if close.check.passed:
        return _Seen("", relative, allowed)
    return _Seen(f"{close.check.why or 'differs'} {place}", relative, allowed)


def _within(tolerance: float, relative: float, rmse: float, place: str) -> _Seen:
    """By the user's limit alone, be it stricter than ours or not."""
    if rmse and not relative:  # the base is all zeros, so no error is small beside it
        relative = math.inf
    wrong = "" if relative <= tolerance else f"relative error {relative:.1e} > {tolerance:.1e} {place}"
    return _Seen(wrong, relative, tolerance)


def _double() -> Any:
    import torch

    return torch.float64
