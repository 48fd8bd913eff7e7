"""The run plane: a plan and the user's model in, a callable that is fast and always right out.

Read in this order: apply.py (plan -> model), fast.py (being the user's module), dispatch.py (one call), codegen.py (its
hot path), guards.py and matching.py (which calls), frozen.py (weights). Nothing here imports the tuning plane.
"""

from compilot.runtime.apply import apply_process, compile  # noqa: A004  # the public name
from compilot.runtime.bundles import load
from compilot.runtime.fast import Fast, restore
from compilot.runtime.notices import CompilotWarning, StalePlanWarning, Stats

__all__ = ["CompilotWarning", "Fast", "StalePlanWarning", "Stats", "apply_process", "compile", "load", "restore"]
