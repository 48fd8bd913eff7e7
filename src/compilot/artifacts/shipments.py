"""How a run's workload is rebuilt, kept beside its plan.

In: a Shipment. Out: shipment.json in the run directory, and the record back, for whoever goes on with the run later
(packing). It speaks of this machine's paths and stays in the run directory: it never travels.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from compilot.errors import RunDirError, cannot_write
from compilot.files import atomic
from compilot.records import Shipment, encode

FILE_NAME = "shipment.json"


def keep_shipment(shipment: Shipment, folder: Path) -> None:
    """Note beside the plan how its workload is rebuilt."""
    path = folder / FILE_NAME
    try:
        atomic.write_bytes(path, encode(shipment) + b"\n")
    except OSError as problem:
        raise cannot_write(path, problem.strerror) from problem


def read_shipment(folder: Path) -> Shipment:
    """The shipment of a run."""
    path = folder / FILE_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=Shipment)
    except OSError as problem:
        text = f"there is no {FILE_NAME} in {folder}, which says how the model is built"
        raise RunDirError(f"{text}; run 'compilot tune' again.") from problem
    except msgspec.DecodeError as problem:
        raise RunDirError(f"{path} is damaged ({problem}); run 'compilot tune' again.") from problem
