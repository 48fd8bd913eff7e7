"""What a model is: the source of its classes, its structure and its parameters. Never a module's name or a path.

In: an nn.Module. Out: ModelFingerprint; the same file loaded under another name, or by another process, gives the same.
Covered: the text of every class in the tree (see source.py); submodule names, plain attributes, hooks and training
flags; names, shapes, dtypes and ties of parameters and buffers.
Not covered: functions and globals that the classes call; attributes that are no plain values count by their type.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from compilot.identity.source import class_text
from compilot.records import ModelFingerprint

# of every nn.Module: parameters and buffers are counted apart, the others change with use, not with the model
_INTERNALS = frozenset(vars(nn.Module())) - {"training"}
_NOTES = frozenset({"name_or_path"})  # where Hugging Face models note the folder they came from
_MAX_DEPTH = 8  # of nested plain values; deeper ones (configurations that refer to themselves) count by their type


def model_fingerprint(model: nn.Module, weights: bool = False) -> ModelFingerprint:
    """The identity of a model; weights=True adds a digest of the values, for artifacts that froze them."""
    tensors: list[tuple[str, torch.Tensor]] = []
    tensors += sorted(model.named_parameters(remove_duplicate=False), key=_name)
    tensors += sorted(model.named_buffers(remove_duplicate=False), key=_name)
    counted = {id(tensor): tensor for _, tensor in tensors}.values()
    return ModelFingerprint(
        class_name=type(model).__name__,
        source_sha256=_digest(sorted(_sources(model))),
        structure_sha256=_digest(_structure(model)),
        parameters_sha256=_digest(_parameters(tensors)),
        parameter_count=sum(tensor.numel() for tensor in counted),
        parameter_bytes=sum(tensor.numel() * tensor.element_size() for tensor in counted),
        weights_sha256=_weights(tensors) if weights else None,
    )


def _name(pair: tuple[str, Any]) -> str:
    return pair[0]


def _parameters(tensors: Iterable[tuple[str, torch.Tensor]]) -> list[str]:
    first: dict[int, str] = {}
    return [f"{name} {tuple(t.shape)} {t.dtype} {first.setdefault(id(t), name)}" for name, t in tensors]


def _digest(texts: Iterable[str]) -> str:
    result = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        result.update(len(data).to_bytes(8, "little") + data)
    return result.hexdigest()


def _sources(model: nn.Module) -> set[str]:
    classes = {kind for module in model.modules() for kind in type(module).__mro__}
    classes -= {object, nn.Module}
    return {class_text(kind) for kind in classes}


def _structure(model: nn.Module) -> list[str]:
    lines = []
    for name, module in model.named_modules(remove_duplicate=False):
        lines.append(f"{name}: {type(module).__name__}")
        lines += [f"{name}.{key} = {_plain(value, _MAX_DEPTH)}" for key, value in _attributes(module)]
    return lines


def _attributes(module: nn.Module) -> list[tuple[str, Any]]:
    own = [(key, value) for key, value in vars(module).items() if key not in _INTERNALS | _NOTES]
    hooks = [(key, value) for key, value in vars(module).items() if key.endswith("_hooks") and key in _INTERNALS]
    own += [(key, [*value.values()]) for key, value in hooks if value]
    return sorted(own, key=_name)


def _plain(value: Any, depth: int) -> str:
    """A text that is equal in every process for equal plain values; addresses and paths never get into it."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return repr(value)
    if isinstance(value, enum.Enum | torch.dtype | torch.device | torch.Size | torch.memory_format | range | slice):
        return str(value)
    if isinstance(value, torch.Tensor):
        return f"tensor {tuple(value.shape)} {value.dtype}"
    if depth == 0:
        return type(value).__name__
    return _composite(value, depth - 1)


def _composite(value: Any, depth: int) -> str:
    if isinstance(value, Mapping):
        pairs = [f"{_plain(key, depth)}: {_plain(part, depth)}" for key, part in value.items()]
        return f"{type(value).__name__}{{{', '.join(pairs)}}}"
    if isinstance(value, set | frozenset):
        return f"{type(value).__name__}{{{', '.join(sorted(_plain(part, depth) for part in value))}}}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}[{', '.join(_plain(part, depth) for part in value)}]"
    if isinstance(value, type) or callable(value):
        return getattr(value, "__qualname__", type(value).__name__)
    return _object(value, depth)


def _object(value: Any, depth: int) -> str:
    """An object by its type and plain attributes (a configuration, say)."""
    attributes = getattr(value, "__dict__", {})
    public = {key: part for key, part in attributes.items() if not key.startswith("_")}
    return f"{type(value).__name__}({_composite(public, depth) if public else ''})"


def _weights(tensors: Iterable[tuple[str, torch.Tensor]]) -> str:
    result = hashlib.sha256()
    for name, tensor in tensors:
        host = tensor.detach().cpu().contiguous()
        result.update(f"{name} {tuple(host.shape)} {host.dtype}\n".encode())
        result.update(host.reshape(-1).view(torch.uint8).numpy().data)
    return result.hexdigest()
