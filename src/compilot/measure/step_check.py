"""The judge of a way to train. In: a candidate's loop, its first step, the reference files. Out: a `Check`.

The six checks: gradients, the optimizer alone, whole steps, buffers (all in step_compare.py), random numbers
(step_masks.py), and the loss over many steps, which finalists alone have to pass (step_curve.py). A candidate that
trains differently from eager is refused with the tensor and the step. Not covered: building it (trials/steps).

Gradients jump at kinks: where a ReLU is nearly zero, or two values of a max pooling are nearly equal, rounding decides
which side is taken, and the gradient of every layer below is another one (ResNet-18 in channels-last: 0.2 % off in
one of four runs, right to rounding in the other three; eager itself jumps like that a step later). So a gradient that
is a little off is looked at again from weights that are one rounding away: what is wrong is wrong there, too. Only with
the step before it, from eager's own state: of many steps in a row one nearly always has a kink. Twice the limit is
allowed there, for the start's own rounding. What was passed over so is among the check's notes. The steps behind it are
judged from eager's own state before them, since the candidate's is another one by then. The optimizer alone has no
kinks: there what is off is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from compilot.measure.reference import describe_error
from compilot.measure.step_compare import Judged, judge_step
from compilot.measure.step_reference import (
    FIRST,
    LATER,
    UPDATE,
    WARM,
    Expected,
    gradient_sizes,
    load_begin,
    load_expected,
    load_state,
    nudge,
    see_case,
)
from compilot.measure.step_seen import StepSeen
from compilot.records import Check, Reference
from compilot.workload.loop import Loop
from compilot.workload.training import Training

NUDGES = tuple(range(2, 14))  # seeds; 1 is that of eager's own run
ENOUGH = 2  # of them must be right, to a few roundings: what is wrong is right from none


class _Asked(NamedTuple):
    """What is the same for every case."""

    loop: Loop
    training: Training
    folder: Path
    tolerance: float | None


class _Part(NamedTuple):
    """Steps of a case that are looked at in a row."""

    name: str
    expected: Expected
    since: int = 0  # the first of them; eager has made those before it
    until: int | None = None  # the first that is left out, None: none is
    seen: StepSeen | None = None  # the very first step, which was seen before


def check_steps(
    loop: Loop,
    training: Training,
    folder: Path,
    reference: Reference,
    *,
    first: StepSeen | None = None,
    tolerance: float | None = None,
) -> Check:
    """Judge a loop; first: what its very first step did, None: nobody saw it from eager's own random numbers.

    tolerance: relative error that the user allows to a lower precision.
    """
    asked, before = _Asked(loop, training, folder, tolerance), loop.save()
    judged: list[Judged] = []
    try:
        for name in reference.cases:
            if name == FIRST and first is None:
                continue
            judged += _case(asked, _Part(name, load_expected(folder, name), seen=first if name == FIRST else None))
            if judged[-1].failure:
                break
    except Exception as error:
        judged.append(Judged(f"raises {describe_error(error)}"))
    finally:
        loop.restore(before)
    return _concluded(judged, reference, tolerance)


def _case(asked: _Asked, whole: _Part) -> list[Judged]:
    """Every step of a case; behind one that was passed over from eager's own state."""
    found: list[Judged] = []
    while len(found) < len(whole.expected.exact):
        found += _beyond_kinks(asked, whole._replace(since=len(found)))
        if found[-1].failure:
            break
    return found


def _beyond_kinks(asked: _Asked, part: _Part) -> list[Judged]:
    """The steps up to the first that is off; of a gradient that is, what runs from weights one rounding away say.

    Not of the steps behind it: each has its own kinks.
    """
    found = _looked_at(asked, part)
    if part.name == UPDATE or not found[-1].may_be_kink or found[-1].near:
        return found
    end = part.since + len(found)
    again = part._replace(since=max(part.since, end - 2), until=end, seen=None)
    right: list[Judged] = []
    for seed in NUDGES:
        step = _looked_at(asked, again, seed)[-1]
        right += [] if step.failure else [step]
        if len(right) == ENOUGH:
            note = f"{found[-1].failure}: passed over, from weights one rounding away it is right"
            return [*found[:-1], right[0]._replace(note=note)]
    return found


def _looked_at(asked: _Asked, part: _Part, nudge_seed: int | None = None) -> list[Judged]:
    """Judge step by step, up to the first that is off; nudge_seed: of the start, which makes room for its rounding."""
    numbers = range(part.since, part.until or len(part.expected.exact))
    steps = _steps(asked, part, nudge_seed) if part.seen is None else iter([part.seen])
    found: list[Judged] = []
    for number, own in zip(numbers, steps, strict=False):  # what is not asked for is not made
        runs = [run[number] for run in part.expected.eager]
        where = _where(part.name, number)
        one = judge_step(own, part.expected.exact[number], runs, where, tolerance=asked.tolerance)
        found.append(one._replace(failure="") if one.near and nudge_seed is not None else one)
        if found[-1].failure:
            break
    return found


def _steps(asked: _Asked, part: _Part, nudge_seed: int | None) -> Iterator[StepSeen]:
    """The candidate's steps, from eager's state before the first of them."""
    loop, folder = asked.loop, asked.folder
    loop.restore(load_begin(folder) if part.name == FIRST else load_state(folder, part.since))
    if nudge_seed is not None:
        nudge(loop, nudge_seed)
    sizes = gradient_sizes(folder) if part.name == UPDATE else {}
    yield from see_case(part.name, asked.training, loop, sizes, since=part.since)


def _where(name: str, number: int) -> str:
    if name == LATER:
        return f"step {WARM + number + 1}"
    if name == UPDATE:
        return f"{name}, update {number + 1}"
    return "step 1" if name == FIRST else f"step {WARM + 1} on {name}"


def _concluded(judged: Sequence[Judged], reference: Reference, tolerance: float | None) -> Check:
    failure = next((one.failure for one in judged if one.failure), "")
    ratio = max((one.ratio for one in judged), default=0.0)
    relative = max((one.relative for one in judged if one.relative is not None), default=None)
    steps = f"{len(judged)} steps agree with {reference.kind}: gradients, updates, optimizer state, buffers"
    told = f"worst {ratio:.1g}x of the limit" if tolerance is None else f"tolerance {tolerance:.2%}"
    return Check(
        passed=not failure,
        why=failure or f"{steps} ({told})",
        reference=reference.kind,
        tolerance=tolerance,
        relative_error=relative,
        worst=tuple(one.worst for one in judged if one.worst is not None),
        notes=(*reference.notes, *(one.note for one in judged if one.note)),
    )
