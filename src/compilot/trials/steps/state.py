"""What a worker keeps between requests: the workload, the candidate, the callable and its unit of work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compilot.identity.model import model_fingerprint
from compilot.measure import build_cost
from compilot.records import Candidate, Guard, ModelFingerprint
from compilot.trials.protocol import Reply, Request
from compilot.trials.serving import Serving
from compilot.workload import Workload
from compilot.workload.unit import Unit

if TYPE_CHECKING:
    from compilot.diagnose.examination import Examination


class WorkerState:
    """One worker's own."""

    def __init__(self) -> None:
        self.compiler = build_cost.CompilerRuns().install()
        self.workload: Workload
        self.model_fingerprint: ModelFingerprint
        self.candidate: Candidate
        self.workspace: Path
        self.fn: Callable[..., Any]
        self.serving: Serving
        self.unit: Unit
        self.batch = 1
        self.examination: Examination | None = None

    def use(self, fn: Callable[..., Any], guard: Guard) -> None:
        """This callable is the one to judge and to time; its first call is made."""
        self.fn = fn
        self.serving = Serving(fn, self.workload.model, guard)
        self.unit = self.workload.unit(fn)
        self.unit.call()

    def weights_sha256(self) -> str:
        """Digest of the model's weight values."""
        return model_fingerprint(self.workload.model, weights=True).weights_sha256 or ""


Handlers = Mapping[type[Request], Callable[[WorkerState, Any], Reply]]  # who answers which request
