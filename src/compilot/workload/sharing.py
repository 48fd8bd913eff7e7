"""Which outputs of a call share memory with each other, so that writing into one changes the other.

In: tensors by path. Out: pairs of paths. Covered: views, slices, transposed and expanded tensors, other dtypes over the
same bytes; two halves of one memory do not share. Not covered: memory shared with inputs (observing.py) or with later
calls (`Watch` there).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import torch
from torch import Tensor

from compilot.workload.outputs import storage_address


def sharing(tensors: Mapping[str, Tensor]) -> list[list[str]]:
    """Pairs of paths, in the order of the outputs, whose tensors have a byte in common."""
    by_storage: dict[int, list[str]] = {}
    for path, tensor in tensors.items():
        by_storage.setdefault(storage_address(tensor), []).append(path)
    by_storage.pop(0, None)
    pairs = (pair for paths in by_storage.values() for pair in combinations(paths, 2))
    return [[one, other] for one, other in pairs if overlap(tensors[one], tensors[other])]


def overlap(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors over the same storage have a byte in common."""
    (low, high), (other_low, other_high) = _extent(one), _extent(other)
    if high <= other_low or other_high <= low:
        return False
    begin = min(low, other_low)
    touched = torch.zeros(max(high, other_high) - begin, dtype=torch.uint8)
    _bytes_of(one, touched, begin).fill_(1)
    return bool(_bytes_of(other, touched, begin).any())


def _extent(tensor: Tensor) -> tuple[int, int]:
    """First byte, and the one after the last, within the storage."""
    size = tensor.element_size()
    begin = int(tensor.storage_offset()) * size
    last = sum((int(n) - 1) * int(step) for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return begin, begin + (last + 1) * size


def _bytes_of(tensor: Tensor, memory: Tensor, begin: int) -> Tensor:
    """The same places in other memory, one element per byte."""
    size = tensor.element_size()
    strides = [step * size for step in tensor.stride()]
    return memory.as_strided((*tensor.shape, size), (*strides, 1), tensor.storage_offset() * size - begin)
