"""What a worker does for each request: one table from request type to handler, split by who asks.

In: a request. Out: the handler's reply. `state` is what a worker keeps between requests; `trial` serves the runner,
`sizes` those who serve a trace, `training` the runner where the work is a training step, `doctor` the
examination, `packing` those who make bundles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compilot.records import Kind
from compilot.trials.protocol import Reply, Request
from compilot.trials.steps import doctor, packing, sizes, trial
from compilot.trials.steps.state import Handlers, WorkerState

__all__ = ["HANDLERS", "WorkerState", "handler"]

HANDLERS: Handlers = {**trial.HANDLERS, **sizes.HANDLERS, **doctor.HANDLERS, **packing.HANDLERS}


def handler(worker: WorkerState, request: Request) -> Callable[[WorkerState, Any], Reply]:
    """Who answers a request: the kind of work that was opened may have its own."""
    if worker.kind is Kind.TRAINING:
        from compilot.trials.steps import training  # here: a worker that only calls a model does without

        return training.HANDLERS.get(type(request)) or HANDLERS[type(request)]
    return HANDLERS[type(request)]
