"""What is asked of a node, what it answers, and when two questions are the same. Records and digests, no work.

In: a line of the manifest, the model's fingerprint, the machine's. Out: `Job`; its key is equal exactly where the same
model with the same weights, on the same machine with the same versions, is asked for in the same way: then the store's
bundle answers. The budget is no part of it, nor priority and deadline: they say how hard to look, not for what. Nor is
compilot's own version: a bundle of this schema serves later versions, and an update must not redo a whole fleet.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from compilot._choices import names_in
from compilot.artifacts.store.layout import machine_id, model_id
from compilot.fleet.manifest import Line
from compilot.records import BUNDLE_SCHEMA, DynamicDim, MachineFingerprint, ModelFingerprint, Record


class Job(Record, frozen=True, kw_only=True):
    """Tune and pack one model on one node."""

    key: str
    name: str  # the line's
    target: str  # from the folder on, in which the node works
    dynamic: tuple[DynamicDim, ...] = ()
    trace: bytes = b""  # the file's content: it is small, and the node may not see the file
    budget_s: float
    options: dict[str, Any] = {}  # keywords of `compilot.tune` besides
    carry_weights: bool = False
    work: str = ""  # folder for runs and bundles; "": one of the node's own
    upload: str = ""  # URL of the store, where the node's files cannot be read by whoever asks; "": they can
    progress: bool = True
    again: bool = False  # an earlier run of this node is not used


class Identify(Record, frozen=True, kw_only=True):
    """Open targets, to know what models they are."""

    targets: tuple[str, ...]


class Identified(Record, frozen=True, kw_only=True):
    """What they are, in the same order; a sentence where one cannot be opened."""

    models: tuple[ModelFingerprint | str, ...]


class Made(Record, frozen=True, kw_only=True):
    """What a node made of a job."""

    eager: bool = False  # nothing was shown to be faster, and nothing is packed
    final: bool = True  # False: the budget was too short to tell
    because: str
    engine: str = ""
    speedup: float | None = None
    bundle: str = ""  # its path on the node, not signed
    uploaded: str = ""  # its name in the store, for whoever signs it
    sha256: str = ""
    size_bytes: int = 0
    run_dir: str = ""
    seconds: float = 0.0


def request_of(line: Line) -> dict[str, Any]:
    """What is asked for, besides the model: keywords of `compilot.tune` that are given."""
    given = line.given
    asked = {
        "objective": given.objective,
        "preset": given.preset,
        "engines": tuple(dict.fromkeys(names_in(given.engines))),  # "a, b" and ["a", "b"] are one wish
        "allow_precision": tuple(dict.fromkeys(names_in(given.precision))),
        "tolerance": given.tolerance,
        "max_error": given.max_error,
        "max_memory": given.max_memory,
        "seed": given.seed,
    }
    return {name: value for name, value in asked.items() if value not in ("", (), None)}


def trace_bytes(line: Line) -> bytes:
    """The content of a line's trace; b"": it has none."""
    return Path(line.trace).read_bytes() if line.trace is not None else b""


def key_of(line: Line, model: ModelFingerprint, machine: MachineFingerprint) -> str:
    """Equal where a bundle that was made for one serves the other."""
    facts = {
        "model": model_id(model),
        "weights": model.weights_sha256 or "",
        "machine": machine_id(machine),
        "bundles": BUNDLE_SCHEMA,
        "request": request_of(line),
        "dynamic": line.dynamic,
        "trace": hashlib.sha256(trace_bytes(line)).hexdigest() if line.trace else "",
        "carry_weights": line.given.carry_weights,
    }
    return hashlib.sha256(msgspec.json.encode(facts, order="sorted")).hexdigest()
