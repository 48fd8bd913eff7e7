"""Integers that leave the example's values: negative, larger, and at the limits of their type.

In: an example call and a seed. Out: named calls of the same shapes. Covered: all integer inputs at once, and one at a
time where there are several, because eager may refuse one of them (an index) and take the others. Two kinds of
growing boldness: twice beyond the example's largest number, both signs; then the ends of the dtype, where sums and
products wrap around. Left out of the second kind: masks, and tensors of one number, which are mostly counts, steps or
sizes. Not covered: whether eager accepts them, and how much memory and time it takes over a size that one of them
becomes: whoever runs a bold case sets bounds (measure/bounds.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from compilot._tree import Call, call_leaves
from compilot.inputs.values import can_vary, copied, generator, is_mask, like, map_tensors

BEYOND = 2  # times the largest number of the example
AT_LEAST = 4  # an example of zeros and ones goes from -4 to 4
ALONE = 3  # inputs that get cases of their own; each case costs every candidate a call
ENDS = (127, 255, 2**15 - 1, 2**24 + 1, 2**31 - 1, 2**53 + 1)  # of narrower integers, and of whole numbers in floats
_SEED = 2000  # apart from the seeds of variations.py
_INTS = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}

_Numbers = Callable[[torch.Tensor, torch.Generator], torch.Tensor]


def bold(call: Call, seed: int) -> Iterator[tuple[str, Call]]:
    """The cases, each with tensors of its own."""
    found = {leaf.path: leaf.value for leaf in call_leaves(call) if can_vary(leaf.value)}
    integers = [path for path, tensor in found.items() if tensor.dtype in _INTS and tensor.numel()]
    wrapping = [path for path in integers if not is_mask(found[path]) and found[path].numel() > 1]
    for paths, name, numbers in ((integers, "beyond the example", _beyond), (wrapping, "at the limits", _limits)):
        if paths:
            yield f"integers {name}", _with(call, paths, numbers, seed)
        if len(paths) > 1:
            yield from ((f"{path} {name}", _with(call, [path], numbers, seed)) for path in paths[:ALONE])


def _with(call: Call, paths: list[str], numbers: _Numbers, seed: int) -> Call:
    def one(path: str, tensor: torch.Tensor) -> torch.Tensor:
        if path not in paths:
            return copied(tensor)
        return like(tensor, numbers(tensor, generator(seed + _SEED, path)).to(tensor.device, tensor.dtype))

    return map_tensors(call, one)


def _beyond(tensor: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    """Both signs where the dtype has them."""
    info = torch.iinfo(tensor.dtype)
    most = max(AT_LEAST, BEYOND * max(abs(int(tensor.min())), abs(int(tensor.max()))))
    low, high = max(info.min, -most), min(info.max, most)
    return torch.randint(low, min(high, 2**62) + 1, tensor.shape, generator=random, dtype=torch.int64)


def _limits(tensor: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    """The ends of the dtype and of narrower ones, numbers whose sums wrap around, and small ones between them."""
    info = torch.iinfo(tensor.dtype)
    ends = [info.min, info.max, info.min + 1, info.max - 1, info.max // 2 + 1, info.max // 3, 0, 1, info.max // 7]
    ends += [-1, -7, info.min // 3] if info.min < 0 else [7]
    ends += [end for end in ENDS if end <= info.max]
    chosen = torch.randint(len(ends), tensor.shape, generator=random)
    return torch.tensor(ends, dtype=torch.int64)[chosen]
