"""What a worker keeps between requests: the workload, the candidate, the callable and its unit of work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compilot.identity.model import model_fingerprint
from compilot.measure import build_cost
from compilot.measure.callers import Callers
from compilot.records import Candidate, Guard, Kind, ModelFingerprint
from compilot.trials.protocol import Reply, Request
from compilot.trials.serving import Answers, Serving
from compilot.trials.thread_state import like_this_thread
from compilot.workload import Workload
from compilot.workload.unit import Unit

if TYPE_CHECKING:
    from compilot.diagnose.examination import Examination
    from compilot.measure.step_seen import StepSeen


class WorkerState:
    """One worker's own."""

    callers: Callers | None = None  # None: one, in the worker's own thread

    def __init__(self) -> None:
        self.compiler = build_cost.CompilerRuns().install()
        self.workload: Workload
        self.model_fingerprint: ModelFingerprint
        self.candidate: Candidate
        self.workspace: Path
        self.fn: Callable[..., Any]
        self.serving: Answers
        self.unit: Unit
        self.import_s = 0.0  # importing torch's compiler, where the candidate needs it
        self.compiled = 0  # programs made before the requests of a trace were timed
        self.batch = 1  # calls of the unit, of all callers together
        self.examination: Examination | None = None
        self.first_step: StepSeen | None = None  # of a training: what the very first step did

    @property
    def kind(self) -> Kind | None:
        """Of the work that was opened; None: nothing was."""
        return self.workload.kind if hasattr(self, "workload") else None

    def use(self, fn: Callable[..., Any], guard: Guard) -> None:
        """This callable is the one to judge and to time; its first call is made."""
        self.fn = fn
        self.serving = Serving(fn, self.workload.model, guard)
        self.work_on(self.workload)

    def work_on(self, workload: Workload) -> None:
        """This workload's examples are the ones to time; they are called once."""
        self.unit = workload.unit(self.fn)
        self.call_from(1)
        self.unit.call()

    def call_from(self, number: int) -> None:
        """From here on so many callers make the timed calls, each in a thread like this one."""
        if self.callers is not None:
            self.callers.close()
        within = like_this_thread(self.candidate.process)
        self.callers = Callers(self.unit.call, number, within) if number > 1 else None

    def weights_sha256(self) -> str:
        """Digest of the model's weight values."""
        return model_fingerprint(self.workload.model, weights=True).weights_sha256 or ""


Handlers = Mapping[type[Request], Callable[[WorkerState, Any], Reply]]  # who answers which request
