"""New values for example inputs, the same ones for the same seed everywhere.

In: an example tensor or call, a seed, maybe a new shape. Out: tensors of the same dtype and device (and strides and
requires_grad where the shape is kept) with plausible values.
Rules: floats are normal with the example's mean and deviation (constants stay constant); integers are uniform between
the example's smallest and largest; masks (bool, integers that are all 0 or 1, floats that are all 0 or one very low
number) keep or repeat the example.
Not covered: what a model needs beyond that (sorted offsets, unit quaternions): give `Workload(inputs=...)`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from compilot._tree import Call, is_tensor, map_call

VERY_LOW = -1e3  # masks hold -1e4, -1e9, the dtype's lowest number or -inf; nothing else has it beside zeros alone


def vary(call: Call, seed: int) -> Call:
    """The call with new values in every tensor, shapes kept."""
    return map_tensors(call, lambda path, tensor: like(tensor, draw(tensor, tensor.shape, generator(seed, path))))


def map_tensors(call: Call, fn: Callable[[str, torch.Tensor], torch.Tensor]) -> Call:
    """The call with fn applied to every tensor; a tensor met twice stays one tensor."""
    made: dict[int, torch.Tensor] = {}

    def one(path: str, value: Any) -> Any:
        if not can_vary(value):
            return value
        if id(value) not in made:
            made[id(value)] = fn(path, value)
        return made[id(value)]

    return map_call(call, one)


def can_vary(value: Any) -> bool:
    """True for tensors whose values can be replaced: dense and with memory; others are passed on as they are."""
    return is_tensor(value) and value.layout is torch.strided and not value.is_quantized and value.device.type != "meta"


def generator(seed: int, path: str) -> torch.Generator:
    """Random numbers for one leaf: other leaves get others, every process gets the same."""
    return torch.Generator().manual_seed(zlib.crc32(f"{seed} {path}".encode()))  # torch reads 32 bits of a seed


def is_mask(tensor: torch.Tensor) -> bool:
    """True for bools and for integers that are all 0 or 1."""
    if tensor.dtype == torch.bool:
        return True
    return is_integer(tensor) and (tensor.numel() == 0 or bool(((tensor == 0) | (tensor == 1)).all()))


def is_additive_mask(tensor: torch.Tensor) -> bool:
    """True for floats that are all 0 or one very low number, both among them: they are added to scores."""
    if not tensor.is_floating_point() or not tensor.numel():
        return False
    tensor = tensor.detach()
    low = tensor.min()
    return float(low) <= VERY_LOW and bool((tensor == low).logical_xor(tensor == 0).all()) and bool((tensor == 0).any())


def masking(tensor: torch.Tensor) -> torch.Tensor:
    """A mask of ones with a zero at its end: models leave out a mask that masks nothing, whatever its size is."""
    if not is_mask(tensor) or not tensor.numel() or not bool((tensor == 1).all()):
        return tensor
    flat = tensor.flatten().clone()
    flat[-1] = 0
    return like(tensor, flat.reshape(tensor.shape))


def is_integer(tensor: torch.Tensor) -> bool:
    """True for integer tensors, bool not among them."""
    return not tensor.is_floating_point() and not tensor.is_complex() and tensor.dtype != torch.bool


def draw(example: torch.Tensor, shape: Sequence[int], random: torch.Generator) -> torch.Tensor:
    """Plausible values of the example's kind in a contiguous tensor of this shape, on the example's device."""
    example = example.detach()
    if example.numel() == 0:
        return torch.zeros(tuple(shape), dtype=example.dtype, device=example.device)
    if is_mask(example) or is_additive_mask(example):
        return repeated(example, shape)
    if is_integer(example):
        low, high = int(example.min()), int(example.max())
        above = min(high + 1, torch.iinfo(torch.int64).max)  # which itself is never drawn
        numbers = torch.randint(low, above, tuple(shape), generator=random, dtype=torch.int64)
        return numbers.to(example.device, example.dtype)
    return _normal(example, shape, random).to(example.device, example.dtype)


def _normal(example: torch.Tensor, shape: Sequence[int], random: torch.Generator) -> torch.Tensor:
    wide = torch.complex128 if example.is_complex() else torch.float64
    values = example.to("cpu", wide)
    finite = values[torch.isfinite(values)]
    if finite.numel() == 0:
        return repeated(values, shape)
    noise = torch.randn(tuple(shape), generator=random, dtype=wide)
    return noise * finite.std(correction=0) + finite.mean()


def repeated(example: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """The example cut or repeated to this shape."""
    for dim, size in enumerate(shape):
        if size != example.shape[dim]:
            index = torch.arange(size, device=example.device) % max(example.shape[dim], 1)
            example = example.index_select(dim, index)
    return example.clone(memory_format=torch.contiguous_format)


def copied(example: torch.Tensor) -> torch.Tensor:
    """An equal tensor with memory of its own."""
    return like(example, example.detach().clone(memory_format=torch.contiguous_format))


def like(example: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The values with the example's strides (at another shape: its memory format) and requires_grad."""
    if values.shape == example.shape and values.stride() != example.stride():
        values = _with_strides(example, values)
    elif values.shape != example.shape and _is_channels_last(example):
        values = values.contiguous(memory_format=torch.channels_last)
    if example.requires_grad and not values.requires_grad:
        values.requires_grad_(True)
    return values


def _is_channels_last(tensor: torch.Tensor) -> bool:
    last = tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
    return last and not tensor.is_contiguous()


def _with_strides(example: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    out = torch.empty_strided(example.shape, example.stride(), dtype=values.dtype, device=values.device)
    if any(stride == 0 and size > 1 for stride, size in zip(example.stride(), example.shape, strict=True)):
        return _expanded(example, values)  # an expanded tensor: one element stands for many
    return out.copy_(values)


def _expanded(example: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    for dim, stride in enumerate(example.stride()):
        if stride == 0:
            values = values.narrow(dim, 0, 1)
    return values.clone(memory_format=torch.contiguous_format).expand(example.shape)
