"""Edge values: what floats and masks may hold that random numbers never do.

In: an example call. Out: named calls of the same shapes. Covered: zeros everywhere and in one input at a time; large,
small, tiny and negative floats; NaN and infinity (SPECIAL: a difference there is a note); masks whose first row masks
everything, the other inputs as in the example. A small case has two sizes of small numbers, a negative one reaches from
-1 to -30: functions that saturate are told from those that give up. Not covered: integers other than masks (bold.py);
an input beyond the first few gets no case of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from compilot._tree import Call, call_leaves
from compilot.inputs.values import (
    can_vary,
    copied,
    generator,
    is_additive_mask,
    is_integer,
    is_mask,
    like,
    map_tensors,
)

SPECIAL = frozenset({"nan", "inf"})
LARGE = 1e3  # leaves the range models are trained in, yet squares and sums stay finite in float32, values in float16
TINY_POWER = 0.8  # of the smallest normal number, 4e-31 in float32: squares vanish, but no input is denormal itself
SMALL = (1e-3, 1e-6)  # in turn: 1 + x still differs from 1 in float32, but has only some digits of x
LOWEST, HIGHEST = -30.0, -1.0  # exp(-30) is 1e-13: lost beside 1, and far from the smallest float32
ALONE = 4  # inputs that get a case of their own; each case costs every candidate a call

_FIRST_ROW = "first row of "
_Fill = Callable[[torch.Tensor], torch.Tensor]
_Named = tuple[str, Call]


def edges(call: Call) -> Iterator[_Named]:
    """The cases, each with tensors of its own."""
    tensors = _tensors(call)
    floating = any(_is_floating(tensor) for tensor in tensors.values())
    if floating or any(_may_be_zero(tensor) for tensor in tensors.values()):
        yield "zeros", _filled(call, torch.zeros_like, _may_be_zero)
    if floating:
        yield "large", _filled(call, lambda t: _scaled(t, LARGE))
        yield "small", _filled(call, _small)
        yield "tiny", _filled(call, lambda t: _scaled(t, torch.finfo(t.dtype).tiny ** TINY_POWER))
        yield "negative", _filled(call, _negative)
    yield from _alone(call, tensors)
    if floating:
        yield "nan", _filled(call, lambda t: _spotted(t, float("nan"), float("nan")))
        yield "inf", _filled(call, lambda t: _spotted(t, float("inf"), float("-inf")))


def masks(name: str) -> bool:
    """Whether a case of this name sets a mask."""
    return name.startswith(_FIRST_ROW)


def _tensors(call: Call) -> dict[str, torch.Tensor]:
    """Those that can vary, each once."""
    found = {leaf.path: leaf.value for leaf in call_leaves(call) if can_vary(leaf.value)}
    first = {id(tensor): path for path, tensor in reversed(found.items())}
    return {path: tensor.detach() for path, tensor in found.items() if first[id(tensor)] == path}


def _alone(call: Call, tensors: dict[str, torch.Tensor]) -> Iterator[_Named]:
    """One input at its edge, the others as they are: all of them at once would hide what a mask does to values."""
    masks = [path for path, tensor in tensors.items() if _masks_nothing(tensor) is not None]
    for path in masks[:ALONE]:
        yield f"{_FIRST_ROW}{path} masked", _at(call, path, _masked_row)
    if len(tensors) > 1:
        floats = [path for path, t in tensors.items() if path not in masks and _is_floating(t) and bool(t.any())]
        for path in floats[:ALONE]:
            yield f"zeros in {path}", _at(call, path, torch.zeros_like)


def _at(call: Call, where: str, fill: _Fill) -> Call:
    return map_tensors(call, lambda path, t: like(t, fill(copied(t).detach())) if path == where else copied(t))


def _masks_nothing(tensor: torch.Tensor) -> float | None:
    """The value with which a mask masks, None for what is no mask, or one whose first row masks everything as it is."""
    if not tensor.numel():
        return None
    value = 0.0 if is_mask(tensor) else float(tensor.min()) if is_additive_mask(tensor) else None
    return value if value is not None and bool((_first_row(tensor) != value).any()) else None


def _first_row(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1, tensor.shape[-1] if tensor.dim() else 1)[0]


def _masked_row(tensor: torch.Tensor) -> torch.Tensor:
    rows = tensor.reshape(-1, tensor.shape[-1] if tensor.dim() else 1).clone()
    rows[0] = float(tensor.min()) if is_additive_mask(tensor) else 0
    return rows.reshape(tensor.shape)


def _is_floating(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _may_be_zero(tensor: torch.Tensor) -> bool:
    """Floats, and integers whose own range has a zero; masks are kept, they have cases of their own."""
    if _is_floating(tensor):
        return not is_additive_mask(tensor)
    return is_integer(tensor) and not is_mask(tensor) and int(tensor.min()) <= 0 <= int(tensor.max())


def _is_plain(tensor: torch.Tensor) -> bool:
    return _is_floating(tensor) and not is_additive_mask(tensor)


def _filled(call: Call, fill: _Fill, wanted: Callable[[torch.Tensor], bool] = _is_plain) -> Call:
    return map_tensors(call, lambda _, t: like(t, fill(copied(t).detach())) if wanted(t) else copied(t))


def _scaled(tensor: torch.Tensor, factor: float | torch.Tensor) -> torch.Tensor:
    wide = torch.complex128 if tensor.is_complex() else torch.float64
    return (tensor.to(wide) * factor).to(tensor.dtype)


def _small(tensor: torch.Tensor) -> torch.Tensor:
    """In half precision only the larger of the two sizes: the other one is denormal in float16."""
    large, small = SMALL if torch.finfo(tensor.dtype).eps < SMALL[0] / 2 else (SMALL[0], SMALL[0])
    factor = torch.full((tensor.numel(),), large, dtype=torch.float64, device=tensor.device)
    factor[1::2] = small
    return _scaled(tensor, factor.reshape(tensor.shape))


def _negative(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers for every input of a shape would make differences vanish: each shape and dtype has its own."""
    random = generator(0, f"{tuple(tensor.shape)} {tensor.dtype}")
    share = torch.rand(tensor.shape, generator=random, dtype=torch.float64)
    return (LOWEST + (HIGHEST - LOWEST) * share).to(tensor.device, tensor.dtype)


def _spotted(tensor: torch.Tensor, first: float, last: float) -> torch.Tensor:
    """One odd number at each end: everywhere would only show that everything becomes NaN."""
    flat = tensor.flatten().clone()
    if flat.numel():
        flat[-1], flat[0] = last, first
    return flat.reshape(tensor.shape)
