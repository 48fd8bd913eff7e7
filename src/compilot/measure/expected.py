"""One case's expectations on disk: what eager gave and did, and the more exact outputs.

In: what was seen of eager on a case. Out: one file per case, a plain dict of tensors, strings and numbers, read back
memory-mapped and without unpickling code. Not covered: making it (reference.py), comparing with it (correctness.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from compilot._tree import Call
from compilot.errors import cannot_write, first_cause
from compilot.workload.observing import Seen
from compilot.workload.outputs import flatten_call, plain
from compilot.workload.unit import Unit


class Judgeable(Protocol):
    """What is needed of a workload."""

    @property
    def model(self) -> nn.Module: ...
    @property
    def seed(self) -> int: ...
    def unit(self, fn: Callable[..., Any], /) -> Unit: ...


class Expected(NamedTuple):
    """One case's file: what eager gave and did, and the more exact outputs where there are any."""

    inputs_sha256: str
    structure: dict[str, str]
    eager: dict[str, Tensor]
    exact: dict[str, Tensor]  # float64 results by path; a path may be missing
    typical: dict[str, float]  # RMS of each output on the first ordinary case
    inputs_after: dict[str, str]
    mutated: dict[str, Tensor]
    aliases: list[list[str]]
    shared: list[list[str]]
    state: dict[str, Tensor]


def load_expected(folder: Path, index: int) -> Expected:
    """Read one kept case back, by its place in `Reference.cases`."""
    return Expected(**torch.load(_case_file(folder, index), weights_only=True, mmap=True))


def digest(call: Call) -> str:
    """Identity of a call's inputs: structure and values."""
    flat = flatten_call(call)
    sha = hashlib.sha256(repr(flat.structure).encode())
    for tensor in flat.tensors.values():
        sha.update(plain(tensor).reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


def _case_file(folder: Path, index: int) -> Path:
    return folder / f"case-{index:03}.pt"


def save_expected(
    folder: Path, index: int, call: Call, seen: Seen, exact: dict[str, Tensor], typical: dict[str, float]
) -> None:
    """Write one kept case, by its place in `Reference.cases`."""
    expected = Expected(
        inputs_sha256=digest(call),
        structure=seen.output.structure,
        eager=seen.values,
        exact=exact,
        typical=typical,
        inputs_after=seen.inputs_after,
        mutated=seen.mutated,
        aliases=seen.aliases,
        shared=seen.shared,
        state=seen.state,
    )
    _write(expected._asdict(), _case_file(folder, index))


def _write(fields: dict[str, Any], path: Path) -> None:
    """Through a file of ours: with one of its own, torch does not tell what the disk said."""
    try:
        with path.open("wb") as file:
            torch.save(fields, file)
    except (OSError, RuntimeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else first_cause(problem)
        raise cannot_write(path, why) from problem
