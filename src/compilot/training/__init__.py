"""Training in the run plane: one step of a training loop, as a plan says and with the user's own objects.

Read in this order: apply.py (`train_step`, what the user calls), building.py (parts of a plan -> `TrainStep`), step.py
(one micro-batch, and the end of a window), answering.py (the plan's pass, and eager behind it), passes.py (forward and
backward), updates.py and compiled_updates.py (the optimizer); applied.py for programs that own the loop, and beside it
what Trainer, accelerate and Lightning need.
The tuner times the very object that the user gets. Nothing here imports the tuning plane.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compilot.training.applied import Applied, apply_parts
    from compilot.training.apply import train_step
    from compilot.training.building import make_step
    from compilot.training.stats import StepStats
    from compilot.training.step import TrainStep

_HOMES = {
    "Applied": "applied",
    "StepStats": "stats",
    "TrainStep": "step",
    "apply_parts": "applied",
    "make_step": "building",
    "train_step": "apply",
}

__all__ = ["Applied", "StepStats", "TrainStep", "apply_parts", "make_step", "train_step"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
