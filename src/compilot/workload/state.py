"""What a unit of work changes, saved and put back in place.

In: tensors; the process's random state; a model's plain attributes. Out: copies that can be put back: values go into
the very tensor that they were taken from, since others (a clone, an optimizer) may hold it too. Attributes are only
described, so that a change can be named. Not covered: which tensors a unit changes (unit.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy.random  # noqa: F401  # so that its state is saved, too
import torch
from torch import Tensor, nn

from compilot.modules.randomness import RandomState
from compilot.workload.outputs import flatten, plain, same_values

__all__ = ["Kept", "RandomState", "changed_attributes", "save_attributes", "seeded"]


class Kept(NamedTuple):
    """One tensor, and its values when it was saved."""

    tensor: Tensor
    values: Tensor

    @classmethod
    def of(cls, tensor: Tensor) -> Kept:
        """Save a tensor."""
        return cls(tensor, tensor.detach().clone())

    def put_back(self) -> None:
        """Copy only on change: a copy raises the version counter, which looks like an update to those who watch it."""
        tensor, values = self
        if same_values(tensor, values):
            return
        with torch.inference_mode(tensor.is_inference()), torch.no_grad():
            if tensor.shape == values.shape and tensor.dtype == values.dtype:
                tensor.copy_(values)
            else:  # it was resized
                tensor.data = values.clone()


@contextmanager
def seeded(seed: int | None) -> Iterator[None]:
    """With torch's random numbers of a seed, after which the process's own go on; None: with the process's own."""
    if seed is None:
        yield
        return
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def save_attributes(model: nn.Module) -> dict[str, str]:
    """A comparable description of every module's plain attributes."""
    found: dict[str, str] = {}
    for prefix, module in model.named_modules():
        for name, value in vars(module).items():
            if name not in ("_parameters", "_buffers", "_modules"):
                found[f"{prefix}.{name}".lstrip(".")] = _describe_attribute(value)
    return found


def changed_attributes(model: nn.Module, saved: dict[str, str]) -> list[str]:
    """Names of the plain attributes that a call changed."""
    now = save_attributes(model)
    return sorted(name for name in now.keys() | saved.keys() if now.get(name) != saved.get(name))


def _describe_attribute(value: Any) -> str:
    try:
        flat = flatten(value, "")
    except RecursionError:  # it contains itself
        return f"object {type(value).__name__}"
    sums = {path: str(plain(tensor).to(torch.complex128).sum().item()) for path, tensor in flat.tensors.items()}
    return f"{flat.structure} {sums}"
