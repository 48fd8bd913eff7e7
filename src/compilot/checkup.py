"""A whole examination by the doctor. In: a target, a live model or a Workload. Out: a `DoctorReport`, and its file.

The model runs in a child process of its own: tracing leaves nothing behind in the caller's process, and a model that
crashes ends in one sentence. Covered: progress by step, `report.json`, what changed since the last report.
Not covered: showing it (`compilot.report`), exit codes (`compilot.cli.doctor`).
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from compilot.artifacts.atomic import write_bytes
from compilot.diagnose.report_records import REPORT_SCHEMA, DoctorReport
from compilot.errors import CompilotError, EnvironmentProblem, InputError, RunDirError
from compilot.records import Candidate, Plan, Settings, Shipment
from compilot.trials.child import Child, Dead
from compilot.trials.limits import Limits, default_memory_limit, worker_env
from compilot.trials.protocol import PROTOCOL, Examine, Examined, ExamineStep, ExamineTimes, Failed, Open, Opened
from compilot.trials.replies import raise_user_error

if TYPE_CHECKING:
    from torch import nn

    from compilot.workload import Workload
    from compilot.workload.dynamic import DynamicSpec

REPORTS = Path("compilot-doctor")
REPORT_FILE = "report.json"
PAGE_FILE = "report.html"
STEP_LIMIT_S = 1800.0  # a large model traces for minutes; beyond this it hangs
_WORDS = {
    ExamineStep.EAGER: "running the model in eager",
    ExamineStep.CAPTURE: "tracing the first call",
    ExamineStep.WEIGH: "timing what lies between the graphs",
    ExamineStep.DRIVE: "driving the model over its inputs",
    ExamineStep.REPORT: "writing the report",
}
_PATIENT = Candidate(settings=Settings(), label="doctor", rationale="examined, not measured")

_TIMING = "timing the eager call and a compile with torch's defaults"

Tell = Callable[[str], None]


def examine(
    model: nn.Module | Workload | str,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic: DynamicSpec | None = None,
    quick: bool = False,
    out: str | os.PathLike[str] | None = None,
) -> DoctorReport:
    """What is wrong with compiling this model, where, what it costs, how to mend it.

    quick leaves out what takes longest: the compile that is timed. out keeps the report in that folder.
    """
    from compilot.api import ship_model

    with tempfile.TemporaryDirectory(prefix="compilot-doctor-") as folder:
        shipment = ship_model(model, args, kwargs, dynamic, Path(folder))
        report = run(shipment, Path(folder))
        if not quick:
            report = add_times(report, shipment, Path(folder))
    if out is not None:
        save(report, Path(out))
    return report


def run(
    shipment: Shipment,
    folder: Path,
    tell: Tell = lambda text: None,
    *,
    env: Mapping[str, str] | None = None,
    limit_s: float = STEP_LIMIT_S,
) -> DoctorReport:
    """Examine a shipped model in a child process: its graphs; `tell` hears of each step."""
    child = _child(folder, env)
    try:
        return _steps(child, shipment, folder, tell, limit_s)
    finally:
        child.kill()


@contextmanager
def beside(shipment: Shipment, folder: Path, *, limit_s: float = STEP_LIMIT_S) -> Iterator[Callable[[], DoctorReport]]:
    """The same while the caller does something else; what it gets waits for the report, or raises as `run` does."""
    child = _child(folder)
    try:
        with ThreadPoolExecutor(1, thread_name_prefix="compilot-doctor") as pool:
            report = pool.submit(_steps, child, shipment, folder, lambda text: None, limit_s)
            try:
                yield report.result
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
        reply = child.ask(ExamineTimes, Examined, limit_s=STEP_LIMIT_S, doing=_TIMING, report=report, plan=plan)
        return _must(reply).report  # type: ignore[no-any-return]
    except (Dead, CompilotError) as problem:
        return _noted(report, f"where the time goes could not be measured: {problem}")
    finally:
        child.kill()


def _child(folder: Path, env: Mapping[str, str] | None = None) -> Child:
    return Child(
        _PATIENT.id,
        log=folder / "doctor.log",
        env={**worker_env(folder), **(env or {})},
        memory_limit_bytes=default_memory_limit(),
    )


def _open(child: Child, shipment: Shipment, folder: Path, tell: Tell) -> None:
    tell("opening the model")
    fields = {"protocol": PROTOCOL, "shipment": shipment, "candidate": _PATIENT, "workspace": str(folder)}
    _must(child.ask(Open, Opened, limit_s=Limits().open_s, doing="opening the model", **fields))


def _steps(child: Child, shipment: Shipment, folder: Path, tell: Tell, limit_s: float) -> DoctorReport:
    """Every step in order; a death before there is anything to report is the environment's problem."""
    try:
        return _all_steps(child, shipment, folder, tell, limit_s)
    except Dead as death:
        raise EnvironmentProblem(f"the examination ended early: {death.reason}.") from None


def _all_steps(child: Child, shipment: Shipment, folder: Path, tell: Tell, limit_s: float) -> DoctorReport:
    _open(child, shipment, folder, tell)

    def take(step: ExamineStep) -> DoctorReport:
        reply = child.ask(Examine, Examined, limit_s=limit_s, doing=_WORDS[step], step=step)
        return _must(reply).report  # type: ignore[no-any-return]

    for step in (ExamineStep.EAGER, ExamineStep.CAPTURE, ExamineStep.WEIGH):
        tell(_WORDS[step])
        take(step)
    so_far = take(ExamineStep.REPORT)
    try:
        for step in (ExamineStep.DRIVE, ExamineStep.REPORT):
            tell(_WORDS[step])
            report = take(step)
    except (Dead, CompilotError) as problem:  # the drive makes many calls; what was found before it stands
        return _noted(so_far, f"{_WORDS[ExamineStep.DRIVE]} ended early, so recompiles may be missing: {problem}")
    return report


def _noted(report: DoctorReport, note: str) -> DoctorReport:
    return msgspec.structs.replace(report, notes=(*report.notes, note))


def _must(reply: Any) -> Any:
    if isinstance(reply, Failed):
        raise_user_error(reply)
    return reply


def default_folder(name: str) -> Path:
    """compilot-doctor/NAME: one place per model, so that the next examination finds the last one."""
    return REPORTS / (re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-") or "model")


def save(report: DoctorReport, folder: Path) -> Path:
    """Write the report into the folder, as JSON and as a page; a reader sees the old files or the new ones, whole."""
    from compilot.report.doctor_html import write_page

    path = folder / REPORT_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes(path, msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
        write_page(report, folder / PAGE_FILE)
    except OSError as problem:
        raise RunDirError(f"cannot write {path}: {problem.strerror}; choose another --out.") from problem
    return path


def last_report(folder: Path) -> DoctorReport:
    """The report of the last examination."""
    path = folder / REPORT_FILE
    try:
        report = msgspec.json.decode(path.read_bytes(), type=DoctorReport)
    except FileNotFoundError:
        raise InputError(
            f"there is no earlier report in {folder}; run 'compilot doctor' once without --fix-check first."
        ) from None
    except (OSError, msgspec.DecodeError) as problem:
        raise InputError(f"{path} cannot be read: {problem}; run 'compilot doctor' once without --fix-check.") from None
    if report.schema != REPORT_SCHEMA:
        raise InputError(
            f"{path} has schema {report.schema}, written by compilot {report.compilot}; this one reads schema "
            f"{REPORT_SCHEMA}. Run 'compilot doctor' once without --fix-check."
        )
    return report
