"""The run plane: a plan and the user's model in, a callable that is fast and always right out.

Read in this order: apply.py (what the user calls), start.py (plan or bundle -> Source -> model; its steps: plans,
bundles, staleness, attachment, proving), fast.py (being the user's module), dispatch.py (one call), gate.py (when the
hot path may take it), codegen.py (that path), guards.py and matching.py (which calls), variants.py (what is prepared),
weight_watch.py (weights), recording.py (the sizes of calls, in a file). Nothing here imports the tuning plane. Names
load on first use: a bundle's files are checked while the rest is imported.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compilot.runtime.apply import apply_process, compile  # noqa: A004  # the public name
    from compilot.runtime.fast import Fast, restore
    from compilot.runtime.notices import Stats
    from compilot.runtime.recording import Recorded, record
    from compilot.runtime.start import load

_HOMES = {
    "Fast": "fast",
    "Recorded": "recording",
    "Stats": "notices",
    "apply_process": "apply",
    "compile": "apply",
    "load": "start",
    "record": "recording",
    "restore": "fast",
}

__all__ = ["Fast", "Recorded", "Stats", "apply_process", "compile", "load", "record", "restore"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
