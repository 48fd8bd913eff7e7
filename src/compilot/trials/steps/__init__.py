"""What a worker does for each request: one table from request type to handler, split by who asks.

In: a request. Out: the handler's reply. `state` is what a worker keeps between requests; `trial` serves the runner,
`doctor` the examination, `packing` those who make bundles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from compilot.trials.protocol import Reply, Request
from compilot.trials.steps import doctor, packing, trial
from compilot.trials.steps.state import WorkerState

Handler = Callable[[WorkerState, Any], Reply]

HANDLERS: Mapping[type[Request], Handler] = {**trial.HANDLERS, **doctor.HANDLERS, **packing.HANDLERS}
