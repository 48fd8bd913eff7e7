"""A whole examination by the doctor. In: a shipped model. Out: a `DoctorReport`.

The model runs in a child process of its own: tracing leaves nothing behind in the caller's process, and a model that
crashes ends in one sentence. A step that fails costs what it would have shown, never what was found before it; the
report says what was not looked at (`unseen`). Covered: progress by step, a deadline. Not covered: the report's files
(`report_files`), showing it (`compilot.report`), exit codes (`compilot.cli.doctor`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from compilot.diagnose.report_records import DoctorReport
from compilot.diagnose.untimed import without_times
from compilot.errors import CompilotError, EnvironmentProblem, InputError
from compilot.identity.differences import differences
from compilot.records import CallSizes, Candidate, DimRange, Plan, Settings, Shipment
from compilot.trials.child import Child, Dead
from compilot.trials.limits import Limits, default_memory_limit, worker_env
from compilot.trials.opening import ask_to_open, opening
from compilot.trials.protocol import Examine, Examined, ExamineStep, ExamineTimes
from compilot.trials.replies import answered

STEP_LIMIT_S = 1800.0  # a large model traces for minutes; beyond this it hangs
LEAST_STEP_S = 2.0  # at a deadline: what was found must still be written down
_WORDS = {
    ExamineStep.EAGER: "running the model in eager",
    ExamineStep.CAPTURE: "tracing the first call",
    ExamineStep.WEIGH: "timing the code between the graphs",
    ExamineStep.DRIVE: "calling the model with all its inputs",
    ExamineStep.REPORT: "writing the report",
}
_LATER = {  # steps that make many calls, and what is not known without them
    ExamineStep.WEIGH: "what the graph breaks cost is not known",
    ExamineStep.DRIVE: "graph breaks and recompiles of other calls than the first may be missing",
}
_PATIENT = Candidate(settings=Settings(), label="doctor", rationale="examined, not measured")

_TIMING = "timing the eager call and a compile with torch's defaults"

Tell = Callable[[str], None]


def run(
    shipment: Shipment,
    folder: Path,
    tell: Tell = lambda text: None,
    *,
    env: Mapping[str, str] | None = None,
    shapes: Sequence[CallSizes] = (),
    ranges: Mapping[str, DimRange] | None = None,
) -> DoctorReport:
    """Examine a shipped model in a child process: its graphs; `tell` hears of each step.

    shapes: the calls to drive it with; ranges: the sizes of the whole trace that they are from.
    """
    child = _child(folder, env)
    try:
        return _steps(child, shipment, folder, tell, shapes=tuple(shapes), ranges=dict(ranges or {}))
    finally:
        child.kill()


@contextmanager
def beside(shipment: Shipment, folder: Path, *, total_s: float) -> Iterator[Callable[[], DoctorReport]]:
    """The same while the caller does something else; what it gets waits for the report, or raises as `run` does.

    After total_s the report is what there is by then. It has no times: the other work makes all of them longer, by
    how much nobody knows. They only decide the order of the findings.
    """
    child = _child(folder)
    try:
        with ThreadPoolExecutor(1, thread_name_prefix="compilot-doctor") as pool:
            report = pool.submit(_steps, child, shipment, folder, lambda text: None, time.monotonic() + total_s)
            try:
                yield lambda: without_times(report.result())
            finally:
                child.end()  # the caller may leave early; the thread then hears of a death
    finally:
        child.kill()


def add_times(
    report: DoctorReport,
    shipment: Shipment,
    folder: Path,
    tell: Tell = lambda text: None,
    *,
    plan: Plan | None = None,
) -> DoctorReport:
    """The report with where the time goes, from a process of its own: its compile is really cold.

    What was found before is not lost when that process fails or dies: it leaves a note.
    """
    child = _child(folder)
    try:
        _open(child, shipment, folder, tell)
        tell(_TIMING)
        request = ExamineTimes(report=report, plan=plan)
        found = answered(child.ask(request, Examined, limit_s=STEP_LIMIT_S, doing=_TIMING)).report
        assert found is not None  # it was asked for
        return found
    except (Dead, CompilotError) as problem:
        return _noted(report, f"where the time goes could not be measured: {problem}")
    finally:
        child.kill()


def must_fit(plan: Plan, report: DoctorReport) -> None:
    """Another model's plan says nothing about this one; the machine may differ, the plan's speed-up is a ratio."""
    if report.fingerprint is None:
        return
    changed = [one for one in differences(plan.fingerprint, report.fingerprint) if one.field.startswith("model.")]
    if changed:
        why = changed[0].sentence.rstrip(".")
        raise InputError(f"the plan is not about this model: {why}; give a plan of this model, or leave it out.")


def _child(folder: Path, env: Mapping[str, str] | None = None) -> Child:
    return Child(
        _PATIENT.id,
        log=folder / "doctor.log",
        env={**worker_env(folder), **(env or {})},
        memory_limit_bytes=default_memory_limit(),
    )


def _open(child: Child, shipment: Shipment, folder: Path, tell: Tell, end_s: float = math.inf) -> None:
    tell("opening the model")
    limits = Limits(open_s=_limit_s(Limits().open_s, end_s))
    answered(ask_to_open(child, opening(shipment, _PATIENT, folder), limits, doing="opening the model"))


def _limit_s(own_s: float, end_s: float) -> float:
    """How long one step may take: its own limit, or what is left until the deadline."""
    return min(own_s, max(end_s - time.monotonic(), LEAST_STEP_S))


def _steps(
    child: Child,
    shipment: Shipment,
    folder: Path,
    tell: Tell,
    end_s: float = math.inf,
    *,
    shapes: tuple[CallSizes, ...] = (),
    ranges: dict[str, DimRange] | None = None,
) -> DoctorReport:
    """Every step in order; a death before there is anything to report is the environment's problem."""

    def take(step: ExamineStep) -> Any:
        if step is not ExamineStep.REPORT:
            tell(_WORDS[step])
        limit_s = _limit_s(STEP_LIMIT_S, end_s)
        request = Examine(step=step, shapes=shapes, ranges=ranges or {})
        return answered(child.ask(request, Examined, limit_s=limit_s, doing=_WORDS[step])).report

    try:
        _open(child, shipment, folder, tell, end_s)
        take(ExamineStep.EAGER)
        take(ExamineStep.CAPTURE)
        found: DoctorReport = take(ExamineStep.REPORT)
    except Dead as death:
        raise EnvironmentProblem(f"the examination ended early: {death.reason}.") from None
    return _later_steps(found, take)


def _later_steps(found: DoctorReport, take: Callable[[ExamineStep], Any]) -> DoctorReport:
    """The steps after which more is known; one that fails or kills the process takes away nothing of what was found."""
    missing: dict[ExamineStep, Exception] = {}
    for step in _LATER:
        try:
            missing |= _failure(step, take)
            found = take(ExamineStep.REPORT)
        except CompilotError as problem:
            missing.setdefault(step, problem)
        except Dead as death:
            for later in list(_LATER)[list(_LATER).index(step) :]:
                missing.setdefault(later, death)
            break
    return _without(found, missing)


def _failure(step: ExamineStep, take: Callable[[ExamineStep], Any]) -> dict[ExamineStep, Exception]:
    """Take the step; an error leaves the process alive: it can write down what was seen until then."""
    try:
        take(step)
    except CompilotError as problem:
        return {step: problem}
    return {}


def _without(found: DoctorReport, missing: Mapping[ExamineStep, Exception]) -> DoctorReport:
    """The report with what is missing; costs that are not known hide no finding, so that is a note."""
    said = {step: f"{_WORDS[step]} did not finish, so {_LATER[step]}: {problem}" for step, problem in missing.items()}
    if note := said.pop(ExamineStep.WEIGH, ""):
        found = _noted(found, note)
    return msgspec.structs.replace(found, unseen=(*found.unseen, *said.values()))


def _noted(report: DoctorReport, note: str) -> DoctorReport:
    return msgspec.structs.replace(report, notes=(*report.notes, note))
