"""The judge of a way to train. In: a candidate's loop, its first step, the reference files. Out: a `Check`.

The six checks: gradients, the optimizer alone, whole steps, buffers (all in step_compare.py), random numbers
(step_masks.py), and the loss over many steps, which finalists alone have to pass (step_curve.py). A candidate that
trains differently from eager is refused with the tensor and the step. Not covered: building it (trials/steps).

Gradients jump at kinks: where a ReLU is nearly zero, or two values of a max pooling are nearly equal, rounding decides
which side is taken, and the gradient of every layer below is another one (ResNet-18 in channels-last: 0.2 % off in
one of four runs, right to rounding in the other three; eager itself jumps like that a step later). So a gradient that
is a little off is looked at again from weights that are one rounding away: what is wrong is wrong there, too. What was
passed over so is among the check's notes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from compilot.measure.reference import describe_error
from compilot.measure.step_compare import Judged, judge_step
from compilot.measure.step_reference import (
    FIRST,
    LATER,
    UPDATE,
    WARM,
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

NUDGES = (2, 3, 4, 5, 6)  # seeds; 1 is that of eager's own run
ENOUGH = 2  # of them must be right, to rounding: what is wrong is right from none


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
    before = loop.save()
    judged: list[Judged] = []
    try:
        for name in reference.cases:
            seen = [first] if name == FIRST and first is not None else None
            if name == FIRST and first is None:
                continue
            judged += _beyond_kinks(name, seen, loop, training, folder, tolerance)
            if judged[-1].failure:
                break
    except Exception as error:
        judged.append(Judged(f"raises {describe_error(error)}"))
    finally:
        loop.restore(before)
    return _concluded(judged, reference, tolerance)


def _beyond_kinks(
    name: str, seen: list[StepSeen] | None, loop: Loop, training: Training, folder: Path, tolerance: float | None
) -> list[Judged]:
    """A case; where a gradient is off, what runs from weights one rounding away say of the steps until then.

    Not of those behind it: each step has its own kinks, and other cases judge further ones.
    """
    found = _case(name, seen, loop, training, folder, tolerance)
    if not found[-1].may_be_kink:
        return found
    right: list[list[Judged]] = []
    for seed in NUDGES:
        again = _case(name, None, loop, training, folder, tolerance, nudge_seed=seed, most=len(found))
        right += [] if again[-1].failure else [again]
        if len(right) == ENOUGH:
            note = f"{found[-1].failure}: passed over, from weights one rounding away it is right"
            return [*right[0][:-1], right[0][-1]._replace(note=note)]
    return found


def _case(
    name: str,
    seen: list[StepSeen] | None,
    loop: Loop,
    training: Training,
    folder: Path,
    tolerance: float | None,
    nudge_seed: int | None = None,
    most: int | None = None,
) -> list[Judged]:
    """nudge_seed: of the start; most: steps that are judged, None: all."""
    expected = load_expected(folder, name)
    if seen is None:
        loop.restore(load_begin(folder) if name == FIRST else load_state(folder))
        if nudge_seed is not None:
            nudge(loop, nudge_seed)
        seen = see_case(name, training, loop, gradient_sizes(folder) if name == UPDATE else {})
    found: list[Judged] = []
    for number, (own, right) in enumerate([*zip(seen, expected.exact, strict=True)][:most]):
        runs = [run[number] for run in expected.eager]
        where = _where(name, number)
        found.append(judge_step(own, right, runs, where, tolerance=tolerance))
        if found[-1].failure:
            break
    return found


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
