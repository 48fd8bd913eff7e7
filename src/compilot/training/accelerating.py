"""A plan for accelerate: what `accelerator.prepare` returns, with the plan's parts in place.

In: an Accelerator and what it has prepared. Out: an `Applied` (applied.py): the loop stays the user's own, with
`accelerator.backward`. Needs the package accelerate. Not covered: accelerate's own compiling (`dynamo_backend`), which
would compile twice and is refused; DeepSpeed, Megatron and FSDP.
"""

from __future__ import annotations

import os
from typing import Any

from torch import nn
from torch.optim import Optimizer

from compilot.errors import InputError
from compilot.records import Plan
from compilot.training.applied import Applied, apply_parts

_SERVED = ("NO", "MULTI_CPU")  # accelerate's names: one process, or DDP


def apply_prepared(
    accelerator: Any,
    model: nn.Module,
    optimizer: Optimizer,
    plan: Plan | str | os.PathLike[str],
    *,
    allow_stale: bool = False,
) -> Applied:
    """Put the plan's parts in place for a prepared model and optimizer."""
    if str(accelerator.state.dynamo_plugin.backend.value).upper() != "NO":
        raise InputError("this Accelerator compiles models itself (dynamo_backend); set it to 'no' to use a plan.")
    if (kind := accelerator.distributed_type.name) not in _SERVED:
        raise InputError(f"a plan is not served under accelerate's {kind}; use one process, or DDP on CPUs.")
    return apply_parts(accelerator.unwrap_model(model), optimizer, plan, allow_stale=allow_stale)
