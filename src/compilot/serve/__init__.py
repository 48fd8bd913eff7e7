"""Serving: eager answers now, the fast plan takes over when it is proven, and gives way when it drifts.

    swap = compilot.serve.Swap(model, "model.cpbundle")      # or a plan, a store's URL, or nothing at all
    answer = swap(x)                                         # called like the model, from the first second on

`asgi(swap)` has /metrics, /healthz and /readyz to mount; `observe(swap)` is for OpenTelemetry; `run(target)` is a whole
server (`compilot serve`); `sentinel_report(file)` says what traffic asked for that the plan does not have. Names load
on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from compilot._collector import no_collector

if TYPE_CHECKING:
    from compilot.serve.metrics import Metrics
    from compilot.serve.probes import asgi
    from compilot.serve.records import Bounds, MissedCalls, Pairs, SwapEvent, SwapState, SwapStats
    from compilot.serve.running import run
    from compilot.serve.sentinel import SentinelReport, sentinel_report
    from compilot.serve.swap import Swap
    from compilot.serve.telemetry import observe

__all__ = [
    "Bounds",
    "Metrics",
    "MissedCalls",
    "Pairs",
    "SentinelReport",
    "Swap",
    "SwapEvent",
    "SwapState",
    "SwapStats",
    "asgi",
    "observe",
    "run",
    "sentinel_report",
]

_NAMES = {
    "compilot.serve.probes": "asgi",
    "compilot.serve.metrics": "Metrics",
    "compilot.serve.records": "Bounds MissedCalls Pairs SwapEvent SwapState SwapStats",
    "compilot.serve.running": "run",
    "compilot.serve.sentinel": "SentinelReport sentinel_report",
    "compilot.serve.swap": "Swap",
    "compilot.serve.telemetry": "observe",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with no_collector():  # torch's many objects would be gone through in the middle of a server's start
        return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
