"""One built and loaded model, what the building of it left behind, and how answers are compared."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from compilot._tree import output_leaves
from compilot.records import ArtifactFile, Guard, Settings


class Made(NamedTuple):
    """One built and loaded model."""

    model: nn.Module
    guard: Guard
    settings: Settings
    workspace: Path
    files: Sequence[ArtifactFile]
    call: Any
    traces: Sequence[str] = ()  # what the build printed, and what it changed in the model and in torch's settings


TORCHS = ("_parameters", "_buffers", "_modules")  # the dicts that hold a module's parts


def same(answer: Any, expected: Any) -> None:
    """Same structure, same types, same plain values, same numbers; every float tensor within float32 rounding."""
    have, want = output_leaves(answer), output_leaves(expected)
    assert type(answer) is type(expected)
    assert [leaf.path for leaf in have] == [leaf.path for leaf in want]
    for one, other in zip(have, want, strict=True):
        if isinstance(other.value, torch.Tensor):
            assert one.value.shape == other.value.shape, one.path
            torch.testing.assert_close(one.value, other.value, rtol=1e-5, atol=1e-5, equal_nan=True)
        else:
            assert repr(one.value) == repr(other.value), one.path


@contextlib.contextmanager
def left_behind(model: nn.Module) -> Iterator[list[str]]:
    """Filled at the end: what was printed meanwhile, by Python or by native code, and what changed in the model."""
    found: list[str] = []
    before, weights = _state(model), {name: value.clone() for name, value in model.state_dict().items()}
    with _printed(found):
        yield found
    after = _state(model)
    found += [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
    found += [name for name, value in model.state_dict().items() if not torch.equal(value, weights[name])]


def _state(model: nn.Module) -> dict[str, tuple[int, str]]:
    """Every attribute; torch.export puts equal copies in the place of plain containers and puts nothing else there."""
    plain = (dict, list, tuple)
    return {
        f"{name}.{key}": (0 if type(value) in plain and key not in TORCHS else id(value), repr(value))
        for name, module in model.named_modules()
        for key, value in vars(module).items()
    }


@contextlib.contextmanager
def _printed(found: list[str]) -> Iterator[None]:
    """Standard output, on both levels."""
    text, kept = io.StringIO(), os.dup(1)
    sys.stdout.flush()
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            with contextlib.redirect_stdout(text):
                yield
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        file.seek(0)
        found += [said for said in (text.getvalue(), file.read().decode()) if said]
