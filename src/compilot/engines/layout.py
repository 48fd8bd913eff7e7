"""Channels-last: inputs converted on the way in, outputs laid out as eager's on the way out.

In: a guard. Out: the two conversions (conversions.py puts them around a callable).
Covered: 4-D floating-point inputs and outputs. Not covered: other ranks; they pass untouched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from compilot._tree import Call, leaves, map_call, rebuild
from compilot.records import Guard


def converter(guard: Guard) -> Callable[[tuple[Any, ...], dict[str, Any]], Call]:
    """A function that makes the 4-D inputs of a call channels-last."""
    images = {t.path for t in guard.tensors if len(t.shape) == 4}
    if images == {"args[0]"}:  # the usual case, without walking the call
        return lambda args, kwargs: Call((_channels_last(args[0]), *args[1:]), kwargs)

    def convert(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        return map_call(Call(args, kwargs), lambda path, leaf: _channels_last(leaf) if path in images else leaf)

    return convert


def plain_layout(output: Any) -> Any:
    """The output with its 4-D tensors contiguous, as eager returns them for contiguous inputs."""
    if isinstance(output, torch.Tensor):
        return _contiguous(output)
    if any(_contiguous(leaf.value) is not leaf.value for leaf in leaves(output, "output")):
        return rebuild(output, lambda path, leaf: _contiguous(leaf), "output")
    return output


def _channels_last(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous(memory_format=torch.channels_last)


def _contiguous(leaf: Any) -> Any:
    channels_last = isinstance(leaf, torch.Tensor) and leaf.dim() == 4 and not leaf.is_contiguous()
    return leaf.contiguous() if channels_last else leaf
