"""Weights that were baked into files: the same model, or stale numbers.

In: a model. Out: a digest of every parameter, buffer and attribute tensor. It is compared when files are loaded, so
that a model whose weights changed since the build is refused and never served old numbers (SHA-256: 1.2 GB/s, 40 ms for
ResNet-18): by the engine itself where its files hold the digest, else by the runtime with the plan's. Not covered:
tensors inside of other objects (see modules/attributes.py); changes after loading (the runtime watches those).
"""

from __future__ import annotations

import hashlib

import torch
from torch import nn

from compilot.engines.protocol import Infeasible, Loaded, LoadRequest
from compilot.modules.attributes import attribute_tensors

Named = list[tuple[str, torch.Tensor]]


def weights_digest(model: nn.Module) -> str:
    """Names, shapes, dtypes and values; tied tensors are read once, layouts do not matter."""
    return digest_of(weight_tensors(model))


def weight_tensors(model: nn.Module) -> Named:
    """What a model's answers are made of: parameters and buffers, then tensors that are attributes."""
    tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return sorted(tensors, key=lambda pair: pair[0]) + sorted(attribute_tensors(model), key=lambda pair: pair[0])


def digest_of(tensors: Named) -> str:
    """The digest of tensors that were found before: running a model may add caches of its own."""
    result = hashlib.sha256()
    first: dict[int, str] = {}
    for name, tensor in tensors:
        owner = first.setdefault(id(tensor), name)
        result.update(f"{name} {owner} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        if owner == name:
            result.update(_bytes(tensor))
    return result.hexdigest()


def _bytes(tensor: torch.Tensor) -> memoryview | bytes:
    if tensor.is_meta or tensor.layout is not torch.strided:
        return str(tensor.layout).encode()  # no values, or none that can be read as they lie
    host = tensor.detach().cpu().contiguous()
    return host.reshape(-1).view(torch.uint8).numpy().data


class OtherWeights(Infeasible):
    """The model's weights are not those that were baked in."""


def refuse_other_weights(request: LoadRequest, expected: str) -> None:
    """OtherWeights unless the model has the very weights that were baked in; a stand-in has none to compare."""
    if not request.stand_in and weights_digest(request.model) != expected:
        raise OtherWeights(
            "the model's weights are not those that were baked into the files; give it the same weights (load the same "
            "checkpoint, or seed the factory that draws them), or run 'compilot tune' again with these"
        )


def compared(loaded: Loaded, request: LoadRequest, expected: str | None) -> Loaded:
    """The engine as loaded, with its weights checked: OtherWeights unless its files hold the model's.

    expected: the plan's digest; None where it has none. An engine that compared the weights itself is believed.
    """
    if not loaded.in_files or loaded.weights_sha256 is not None or expected is None:
        return loaded
    refuse_other_weights(request, expected)
    return loaded._replace(weights_sha256=expected)


def digest_in_files(loaded: Loaded, tensors: Named) -> str | None:
    """The digest of the weights that the build put into files; None: there are none in them."""
    if not loaded.in_files:
        return None
    return loaded.weights_sha256 or digest_of(tensors)
