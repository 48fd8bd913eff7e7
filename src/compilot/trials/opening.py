"""Opening the user's target in a worker: how long it may take, and what is said when that was too long.

In: a worker, what to open, a limit. Out: its reply; TargetError where the target did not open in time, since nothing
can go on without it. Covered: the limit of a run, which follows its budget; the fixed one of commands that have no
budget. Not covered: a candidate's own opening, once eager's has worked: that is the candidate's failure (workers.py).
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from compilot.errors import EnvironmentProblem, TargetError
from compilot.records import Candidate, Shipment, State
from compilot.trials.child import Child, Dead
from compilot.trials.limits import LEAST_OPEN_S, Limits
from compilot.trials.protocol import PROTOCOL, Failed, Open, Opened

LONGER_BUDGET = f"give a larger budget: half of it, and at least {LEAST_OPEN_S:.0f} s, is for this"


def opening(shipment: Shipment, candidate: Candidate, workspace: Path) -> Open:
    """What a worker is told first; a candidate for other sizes than the example's has an example of those."""
    if candidate.sizes:
        shipment = msgspec.structs.replace(shipment, example_sizes=candidate.sizes)
    return Open(protocol=PROTOCOL, shipment=shipment, candidate=candidate, workspace=str(workspace))


def ask_to_open(child: Child, request: Open, limits: Limits, *, doing: str = "opening") -> Opened | Failed:
    """The worker's reply. Raises TargetError when the target takes too long."""
    try:
        return child.ask(request, Opened, limit_s=limits.open_s, doing=doing)
    except Dead as dead:
        if dead.state is not State.TIMED_OUT:
            raise
        raise _too_slow(request.shipment, limits) from dead


def _too_slow(shipment: Shipment, limits: Limits) -> TargetError | EnvironmentProblem:
    what = f"'{shipment.target}'" if shipment.target else "the model's copy in another process"
    story = f"{what} did not open within {limits.open_s:.0f} s and was ended; every process of a run opens it again"
    advice = f", or {LONGER_BUDGET}" if limits.follows_budget else ""
    if shipment.target is None:
        return EnvironmentProblem(f"{story}. Use a smaller model{advice}.")
    return TargetError(f"{story}. Make its imports and its factory return sooner{advice}.")
