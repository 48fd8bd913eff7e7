"""Tensors and numpy arrays by dtype, shape and all of their values.

In: a tensor or an array that is no weight of the model. Out: its token, or a TypeError where its values cannot be read.
Covered: strided, sparse, quantized, nested and meta tensors, conjugate views, every dtype; arrays of every dtype.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from typing import Any

import torch

from compilot.identity.tokens import joined, text


def tensor_token(tensor: torch.Tensor) -> bytes:
    """The token of a tensor's kind and values."""
    head = text(f"{tensor.dtype} {tensor.layout} {tensor.requires_grad}")
    with torch.no_grad():
        return joined("tensor", [head, *_parts(tensor.detach())])


def _parts(tensor: torch.Tensor) -> list[bytes]:
    if tensor.is_nested:
        return [tensor_token(part) for part in tensor.unbind()]
    shape = repr(tuple(tensor.shape)).encode()
    if tensor.is_meta:
        return [shape, b"meta"]
    if tensor.is_quantized:
        return [shape, _values(tensor.int_repr()), _values(tensor.dequantize())]
    return [shape, _values(tensor if tensor.layout is torch.strided else tensor.to_dense())]


def _values(tensor: torch.Tensor) -> bytes:
    host = tensor.cpu().resolve_conj().resolve_neg().contiguous()
    try:
        return hashlib.sha256(host.reshape(-1).view(torch.uint8).numpy().data).digest()
    except RuntimeError as problem:
        raise TypeError(f"its values cannot be read: {problem}") from problem


def is_array(kind: type) -> bool:
    """True for numpy's arrays and scalars; numpy is not imported for that."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(kind, (numpy.ndarray, numpy.generic))


def array_token(array: Any, token: Callable[[Any], bytes]) -> bytes:
    """The token of a numpy array or scalar; token: reads the objects in an array of objects."""
    head = text(f"{array.dtype!r} {array.shape}")
    if array.dtype.hasobject:
        return joined("array", [head, token(array.tolist())])
    return joined("array", [head, hashlib.sha256(array.tobytes()).digest()])
