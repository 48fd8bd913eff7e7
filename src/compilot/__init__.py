"""compilot: finds the fastest correct way to run a PyTorch model on this machine, proves it, and applies it.

    plan = compilot.tune(model, args)
    fast = compilot.compile(model, plan)

Names load on first use: `import compilot` imports neither torch nor rich.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from compilot._version import __version__

if TYPE_CHECKING:
    from compilot.api.tuning import examine, load_plan, save_plan, tune
    from compilot.errors import (
        BundleError,
        CompilotError,
        EnvironmentProblem,
        InputError,
        PlanError,
        StaleBundle,
        StalePlan,
        TargetError,
        UserError,
    )
    from compilot.records import Candidate, Plan, ProcessSettings, Settings
    from compilot.runtime import apply_process, compile, load  # noqa: A004  # the verb users know from torch
    from compilot.workload import Workload

_HOMES = {
    "BundleError": "compilot.errors",
    "Candidate": "compilot.records",
    "CompilotError": "compilot.errors",
    "EnvironmentProblem": "compilot.errors",
    "InputError": "compilot.errors",
    "Plan": "compilot.records",
    "PlanError": "compilot.errors",
    "ProcessSettings": "compilot.records",
    "Settings": "compilot.records",
    "StaleBundle": "compilot.errors",
    "StalePlan": "compilot.errors",
    "TargetError": "compilot.errors",
    "UserError": "compilot.errors",
    "Workload": "compilot.workload",
    "apply_process": "compilot.runtime",
    "compile": "compilot.runtime",
    "examine": "compilot.api.tuning",
    "load": "compilot.runtime",
    "load_plan": "compilot.api.tuning",
    "save_plan": "compilot.api.tuning",
    "tune": "compilot.api.tuning",
}

__all__ = [
    "BundleError",
    "Candidate",
    "CompilotError",
    "EnvironmentProblem",
    "InputError",
    "Plan",
    "PlanError",
    "ProcessSettings",
    "Settings",
    "StaleBundle",
    "StalePlan",
    "TargetError",
    "UserError",
    "Workload",
    "__version__",
    "apply_process",
    "compile",
    "examine",
    "load",
    "load_plan",
    "save_plan",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
