"""Fleets: many models for many kinds of machines, and one store that they all start from.

    report = compilot.fleet.run("fleet.toml", store="s3://models/bundles", sign="release")
    fast = compilot.fleet.load_together(build)  # of a distributed job: one rank builds, the others load

In: a manifest (models, machines), a store, and a cluster or this machine alone. Out: a `FleetReport`; the confirmed
plans are packed, signed and pushed. running.py is the story. A job runs on a node (on_node.py), whoever calls it
(crew.py). Not covered: Ray itself (cluster/), what a store is (artifacts/store). Light to import: names load on use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compilot.cluster.runner import RayRunner
    from compilot.fleet.ranks import load_together
    from compilot.fleet.rows import FleetReport, FleetRow
    from compilot.fleet.running import run

__all__ = ["FleetReport", "FleetRow", "RayRunner", "load_together", "run"]

_HOMES = {
    "FleetReport": "compilot.fleet.rows",
    "FleetRow": "compilot.fleet.rows",
    "RayRunner": "compilot.cluster.runner",
    "load_together": "compilot.fleet.ranks",
    "run": "compilot.fleet.running",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
