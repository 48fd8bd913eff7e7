"""torch's private names for what goes on inside an optimizer's step.

In: a live optimizer. Out: the tensors of a group in torch's own order, its state made as torch makes it; whether hooks
are waiting; what schedulers look at. Not covered: the arithmetic of an update (training/kernels.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer


def group_state(optimizer: Optimizer, group: dict[str, Any], lists: int) -> list[list[Any]]:
    """Parameters with gradients, gradients and state of a group, made where there is none. Checked on torch 2.13.0.

    lists: how many the optimizer fills: parameters, gradients, and one for each tensor of its state.
    """
    found: list[list[Any]] = [[] for _ in range(lists)]
    optimizer._init_group(group, *found)  # type: ignore[attr-defined]
    return found


def add_one(tensors: list[torch.Tensor]) -> None:
    """One more in each, at once."""
    torch._foreach_add_(tensors, 1)


def note_step(optimizer: Optimizer) -> None:
    """Schedulers ask whether the optimizer has stepped before them. Checked on torch 2.13.0."""
    optimizer._opt_called = True  # type: ignore[attr-defined]


def has_step_hooks(optimizer: Optimizer, besides: Callable[..., None] | None = None) -> bool:
    """Whether somebody wants to be called around each step; besides: who does not count. Checked on torch 2.13.0."""
    from torch.optim import optimizer as module

    everywhere = [*module._global_optimizer_pre_hooks.values(), *module._global_optimizer_post_hooks.values()]
    own = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks
    return bool(own) or any(hook is not besides for hook in everywhere)
