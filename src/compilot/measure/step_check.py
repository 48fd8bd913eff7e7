"""The judge of a way to train. In: a candidate's loop, its first step, the reference files. Out: a `Check`.

The six checks: gradients, the optimizer alone, whole steps, buffers (all in step_compare.py), random numbers
(step_masks.py), and the loss over many steps, which finalists alone have to pass (step_curve.py). A candidate that
trains otherwise than eager is refused with the tensor and the step. Not covered: building it (trials/steps).
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
    load_expected,
    load_state,
    see_case,
)
from compilot.measure.step_seen import StepSeen
from compilot.records import Check, Reference
from compilot.workload.loop import Loop
from compilot.workload.training import Training


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
            judged += _case(name, seen, loop, training, folder, tolerance)
            if judged[-1].failure:
                break
    except Exception as error:
        judged.append(Judged(f"raises {describe_error(error)}"))
    finally:
        loop.restore(before)
    return _concluded(judged, reference, tolerance)


def _case(
    name: str,
    seen: list[StepSeen] | None,
    loop: Loop,
    training: Training,
    folder: Path,
    tolerance: float | None,
) -> list[Judged]:
    expected = load_expected(folder, name)
    if seen is None:
        loop.restore(load_state(folder))
        seen = see_case(name, training, loop, gradient_sizes(folder) if name == UPDATE else {})
    found: list[Judged] = []
    for number, (own, right) in enumerate(zip(seen, expected.exact, strict=True)):
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
        notes=reference.notes,
    )
