"""Shipping a target by name. In: a target string. Out: a Shipment that a worker opens; the user's code is not run here.

Needs no torch, so the parent of a run stays small and quick.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from compilot.engines import registry
from compilot.records import DynamicDim, Shipment
from compilot.workload.place import absolute_target


def ship_target(
    target: str,
    *,
    seed: int | None = None,
    extra_dynamic: Sequence[DynamicDim] = (),
    padding: Mapping[str, bool | int | float] | None = None,
) -> Shipment:
    """A shipment of a target that a worker will open first."""
    path = tuple(os.path.abspath(entry) for entry in sys.path)
    return Shipment(
        target=absolute_target(target),
        sys_path=path,
        cwd=str(Path.cwd()),
        seed=seed,
        extra_dynamic=tuple(extra_dynamic),
        padding=dict(padding or {}),
        engine_modules=registry.registered_modules(),
    )
