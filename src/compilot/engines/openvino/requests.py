"""Infer requests with memory of their own: what one call under way needs.

In: a compiled model and the flat tensors of its calls. Out: a Request whose small inputs are copied in and whose
outputs are copied out. Giving a request other memory makes it prepare itself again, which costs 20 microseconds per
tensor; copying a small tensor costs 1. So the memory is given once, and again only when sizes change. Large inputs of
fixed size are shared instead of copied. Not covered: outputs whose sizes are only known after the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

SHARE_FROM_BYTES = 256 * 1024  # copying this much takes about as long as giving a request other memory


class Slot(NamedTuple):
    """One input or output port with memory that the request keeps."""

    port: int
    dtype: torch.dtype


class NativeRequest:
    """One infer request. Its pool hands it to one call at a time."""

    def __init__(self, native: Any, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> None:
        self.native = native
        self.inputs: list[torch.Tensor] = []
        self.outputs: list[torch.Tensor] = []
        self.sizes: tuple[int, ...] | None = None
        self._slots = inputs, outputs

    def fit(self, sizes: tuple[int, ...], inputs: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]]) -> None:
        """Give the request memory of these shapes; sizes names them for the next call."""
        self.sizes = None  # a failure half-way must not look like success
        with torch.inference_mode(False):  # else the memory could not be written to outside of inference mode
            self.inputs = [_memory(slot, shape) for slot, shape in zip(self._slots[0], inputs, strict=True)]
            self.outputs = [_memory(slot, shape) for slot, shape in zip(self._slots[1], outputs, strict=True)]
        for slot, memory in zip(self._slots[0], self.inputs, strict=True):
            self.native.set_input_tensor(slot.port, shared(memory))
        for slot, memory in zip(self._slots[1], self.outputs, strict=True):
            self.native.set_output_tensor(slot.port, shared(memory))
        self.sizes = sizes


def _memory(slot: Slot, shape: Sequence[int]) -> torch.Tensor:
    return torch.empty(tuple(shape), dtype=slot.dtype, device="cpu")


def shared(tensor: torch.Tensor) -> Any:
    """The engine's tensor over torch's memory; whether the tensor wants gradients does not matter here."""
    import openvino

    plain = tensor.detach()
    if plain.dtype is torch.bfloat16:  # numpy has no such type
        return openvino.Tensor(plain.view(torch.int16).numpy(), openvino.Shape(list(plain.shape)), openvino.Type.bf16)
    return openvino.Tensor(plain.numpy(), True)
