"""What a worker does for the doctor: the steps of an examination, and where the time goes."""

from __future__ import annotations

from compilot._torch import compiling
from compilot.identity.machine import machine_fingerprint
from compilot.records import Fingerprint
from compilot.trials.protocol import Examine, Examined, ExamineStep, ExamineTimes
from compilot.trials.steps.state import Handlers, WorkerState


def examine(worker: WorkerState, request: Examine) -> Examined:
    """One step of the doctor; the report at the end."""
    from compilot.diagnose.examination import Examination  # here: eager's worker does without dynamo

    if worker.examination is None:
        worker.examination = Examination(worker.workload, request.shapes, request.ranges)
    if request.step is not ExamineStep.REPORT:
        getattr(worker.examination, request.step)()
        return Examined()
    fingerprint = Fingerprint(machine=machine_fingerprint(), model=worker.model_fingerprint)
    return Examined(report=worker.examination.report(fingerprint))


def examine_times(worker: WorkerState, request: ExamineTimes) -> Examined:
    """The doctor's half that is about time; needs a process that has compiled nothing yet."""
    from compilot.diagnose.timing import times

    compiling.import_dynamo()  # before its clock
    load = worker.workload
    return Examined(report=times.add_times(request.report, load, load.call, worker.workspace, plan=request.plan))


HANDLERS: Handlers = {Examine: examine, ExamineTimes: examine_times}
