"""A plan's own engine in an arm: what `compilot.compile` gives the user, built again from the plan's candidate.

In: an arm that has opened its target, in an environment that has compilot; the dimensions that may vary are the
plan's, not the target's. Out: the callable, which counts its own fallbacks. Not covered: everything that an arm does
with a callable (arm.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from compilot.boundary import build as boundary
from compilot.engines.protocol import BuildRequest
from compilot.records import Candidate, DynamicDim
from compilot.runtime.fast import attach
from compilot.runtime.guards import make_guard
from compilot.runtime.process import apply_settings
from compilot.workload import Workload
from compilot.workload.workload import as_call

if TYPE_CHECKING:
    from compilot.gate.arm import Arm


def callable_of(arm: Arm) -> Callable[..., Any]:
    """Build the candidate's files into the workspace, attach them to the model and answer the example call."""
    candidate = msgspec.convert(arm.candidate, Candidate)
    apply_settings(candidate.process)
    load: Workload = arm.work.whole or Workload(arm.work.model, *arm.work.calls[0])
    call = as_call(arm.work.calls[0])
    dynamic = msgspec.convert(arm.dynamic, tuple[DynamicDim, ...])
    guard = make_guard(load.model, call, dynamic=dynamic, shapes=candidate.settings.shapes, grad=load.grad)
    boundary.build(BuildRequest(load.model, call, guard, candidate, arm.workspace, None))
    fast = attach(load.model, candidate, guard, arm.workspace)
    with torch.set_grad_enabled(load.grad):
        fast.prepare(call)
    return fast
