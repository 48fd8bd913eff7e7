"""The unit of work: what is timed, and how a stateful model is put back afterwards.

In: a callable, the example calls and the model whose state it changes. Out: `Unit` with call(), state() and restore().
Covered: inference over every example; module buffers, the examples' own tensors, and torch's, Python's and numpy's
random state. Not covered: state that a model keeps in plain attributes (lists, dicts, tensors that are no buffers).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from compilot._tree import Call, call_leaves, is_tensor


class UnitState(NamedTuple):
    """What restore() puts back."""

    buffers: dict[str, torch.Tensor]
    inputs: tuple[torch.Tensor, ...]
    torch_rng: torch.Tensor
    cuda_rng: tuple[torch.Tensor, ...]
    python_rng: Any
    numpy_rng: Any


class Unit:
    """One unit of work: fn over every example, under the workload's grad mode."""

    def __init__(self, fn: Callable[..., Any], examples: Sequence[Call], model: nn.Module, grad: bool) -> None:
        self._fn, self._model, self._grad = fn, model, grad
        self._examples = tuple((call.args, call.kwargs) for call in examples)

    @property
    def calls(self) -> int:
        """How often fn is called by one call()."""
        return len(self._examples)

    def call(self) -> None:
        """Do the work once; the results are dropped."""
        fn = self._fn
        with torch.set_grad_enabled(self._grad):
            for args, kwargs in self._examples:
                fn(*args, **kwargs)

    def state(self) -> UnitState:
        """A copy of everything that call() may change."""
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        return UnitState(
            buffers={name: buffer.detach().clone() for name, buffer in self._model.named_buffers()},
            inputs=tuple(tensor.detach().clone() for tensor in self._inputs()),
            torch_rng=torch.get_rng_state(),
            cuda_rng=tuple(cuda),
            python_rng=random.getstate(),
            numpy_rng=np.random.get_state(),
        )

    def restore(self, state: UnitState) -> None:
        """Put everything back; a tensor that did not change is not touched."""
        for name, buffer in list(self._model.named_buffers()):
            _put_back_buffer(self._model, name, buffer, state.buffers.get(name))
        for tensor, saved in zip(self._inputs(), state.inputs, strict=True):
            _put_back(tensor, saved)
        torch.set_rng_state(state.torch_rng)
        if state.cuda_rng:
            torch.cuda.set_rng_state_all(list(state.cuda_rng))
        random.setstate(state.python_rng)
        np.random.set_state(state.numpy_rng)

    def _inputs(self) -> list[torch.Tensor]:
        calls = [Call(args, kwargs) for args, kwargs in self._examples]
        return [leaf.value for call in calls for leaf in call_leaves(call) if is_tensor(leaf.value)]


def _put_back(tensor: torch.Tensor, saved: torch.Tensor) -> None:
    """Copy only on change: a copy raises the version counter, which looks like an update to those who watch it."""
    if _same(tensor, saved):
        return
    with torch.inference_mode(tensor.is_inference()), torch.no_grad():
        tensor.copy_(saved)


def _put_back_buffer(model: nn.Module, name: str, buffer: torch.Tensor, saved: torch.Tensor | None) -> None:
    if saved is None:  # the call registered it; a later call may rely on it, so it stays
        return
    if buffer.shape == saved.shape and buffer.dtype == saved.dtype:
        _put_back(buffer, saved)
        return
    owner, _, attribute = name.rpartition(".")
    setattr(model.get_submodule(owner), attribute, saved.clone())


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.is_floating_point() or a.is_complex():
        return bool(((a == b) | ((a != a) & (b != b))).all())
    return torch.equal(a, b)
