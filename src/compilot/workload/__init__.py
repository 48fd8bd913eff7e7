"""Targets and live objects -> Workload: the model, its example calls, and how both reach a child process.

Names load on first use, so that shipping a target by name needs no torch in the parent.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compilot._tree import Call
    from compilot.workload.dynamic import parse_dynamic
    from compilot.workload.target import load_target
    from compilot.workload.training import Training
    from compilot.workload.unit import Unit
    from compilot.workload.workload import Workload

_HOMES = {
    "Call": "compilot._tree",
    "Training": "compilot.workload.training",
    "Unit": "compilot.workload.unit",
    "Workload": "compilot.workload.workload",
    "load_target": "compilot.workload.target",
    "parse_dynamic": "compilot.workload.dynamic",
}

__all__ = ["Call", "Training", "Unit", "Workload", "load_target", "parse_dynamic"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
