"""Hooks that a call of a model runs, and whether any was registered since. Checked on torch 2.13.0.

In: a model. Out: the hook objects of all its modules and the global ones. Every registration of torch makes a
RemovableHandle, and those are numbered: while the number is the same, no hook can have come. Not covered: hooks of
tensors and optimizers, which no call of a module runs; functions written into a module's dictionaries by hand.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.modules import module as torch_module
from torch.utils.hooks import RemovableHandle

NAMES = {"_Handle": RemovableHandle}  # what CONDITION needs, besides `_registered`
CONDITION = "_Handle.next_id == _registered"  # as code of the hot path: 20 nanoseconds
NONE = -1  # a number that is never reached: always look
_KINDS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_GLOBAL = tuple(getattr(torch_module, f"_global{kind}", {}) for kind in _KINDS)  # torch changes them in place


def registrations() -> int:
    """How many hooks of any kind were registered in this process so far."""
    return RemovableHandle.next_id


def hooks_on(model: nn.Module) -> list[Any]:
    """Every hook that a call of the model could run, in order."""
    found = [hook for hooks in _GLOBAL for hook in hooks.values()]
    for module in model.modules():
        state = module.__dict__
        for kind in _KINDS:
            if hooks := state.get(kind):
                found += hooks.values()
    return found


def is_hooked(module: nn.Module) -> bool:
    """Whether a call of this very module runs hooks, of its own or for every module."""
    state = module.__dict__
    return any(state[kind] for kind in _KINDS) or any(_GLOBAL)
