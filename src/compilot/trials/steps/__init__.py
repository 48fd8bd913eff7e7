"""What a worker does for each request: one table from request type to handler, split by who asks.

In: a request. Out: the handler's reply. `state` is what a worker keeps between requests; `trial` serves the runner,
`doctor` the examination, `packing` those who make bundles.
"""

from __future__ import annotations

from compilot.trials.steps import doctor, packing, trial
from compilot.trials.steps.state import Handlers, WorkerState

__all__ = ["HANDLERS", "WorkerState"]

HANDLERS: Handlers = {**trial.HANDLERS, **doctor.HANDLERS, **packing.HANDLERS}
