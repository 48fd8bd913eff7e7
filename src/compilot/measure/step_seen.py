"""What one training step did. In: a loop and the batches of a step. Out: `StepSeen`: losses, gradients, how far every
parameter moved, buffers and the optimizer's state afterwards, by name.

Tensors of more than SAMPLE values are looked at in so many places, the same ones in every process, beside their whole
norm: eager, its float64 self and every candidate are compared where they have the same values. Not covered: whether it
is right (step_check.py).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from compilot.workload.loop import Loop
from compilot.workload.state import seeded

SAMPLE = 1 << 18  # values of a tensor that are kept: 2 MB in float64


class StepSeen(NamedTuple):
    """One step."""

    losses: tuple[float, ...]  # of its micro-batches
    gradients: dict[str, Tensor | None]  # as given to the optimizer, flat; None where there was none
    norms: dict[str, float]  # of the whole gradients
    moved: dict[str, Tensor]  # parameters: after minus before, in float64
    state: dict[str, Tensor]  # buffers and the optimizer's tensors afterwards


def see_step(loop: Loop, batches: Sequence[Any], seed: int | None = None) -> StepSeen:
    """Make one step and note what it did; seed: torch's before it, None: as it comes."""
    before = parameters_of(loop)
    with seeded(seed):
        losses = loop.window(batches)
    return seen_after(loop, before, tuple(float(value) for value in losses))


def see_update(loop: Loop, number: int, sizes: Mapping[str, float]) -> StepSeen:
    """Give the optimizer made-up gradients of usual sizes, the same in every process, and note how it moves."""
    before = parameters_of(loop)
    for parameter in loop.parameters:
        name = loop.name_of(parameter)
        if name in sizes:
            parameter.grad = _made_up(parameter, f"{number} {name}", sizes[name])
    loop.step.clip_and_step()
    loop.advance()
    return seen_after(loop, before, ())


def sampled(name: str, tensor: Tensor) -> Tensor:
    """A copy of its values, flat; of a large one those at places that depend on its name alone."""
    dense = tensor.detach().to_dense() if tensor.layout is not torch.strided else tensor.detach()
    flat = dense.reshape(-1)
    if flat.numel() <= SAMPLE:
        return flat.clone()
    made = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    return flat[torch.randint(flat.numel(), (SAMPLE,), generator=made)]


def parameters_of(loop: Loop) -> dict[str, Tensor]:
    """Their values before a step."""
    named = ((loop.name_of(parameter), parameter) for parameter in loop.parameters)
    return {name: sampled(name, parameter).double() for name, parameter in named}


def seen_after(loop: Loop, before: Mapping[str, Tensor], losses: tuple[float, ...]) -> StepSeen:
    """What the step did that was made since."""
    after, gradients = parameters_of(loop), loop.gradients()
    state = {name: sampled(name, t) for name, t in loop.tensors().items() if not name.startswith("parameter ")}
    return StepSeen(
        losses,
        {name: None if one is None else sampled(name, one) for name, one in gradients.items()},
        {name: float(one.detach().double().norm()) for name, one in gradients.items() if one is not None},
        {name: after[name] - values for name, values in before.items()},
        state,
    )


def _made_up(parameter: Tensor, what: str, size: float) -> Tensor:
    made = torch.Generator().manual_seed(zlib.crc32(what.encode()))
    values = torch.randn(parameter.shape, generator=made, dtype=torch.float32) * size
    like = torch.empty_like(parameter)  # with the strides that a gradient of it would have
    return like.copy_(values)
