"""What a model is: its code, its structure and its parameters. Never a module's name, a file or how it is laid out.

In: an nn.Module. Out: ModelFingerprint, the same in every process, and short digests that name what changed.
Settings that only calls with a certain input read are apart from the structure (input_settings.py).
Covered: the byte code of every class in the tree and of what it can reach (reach.py); submodule names, attributes
by what they are (values.py), hooks and training flags; names, shapes, dtypes and ties of parameters and buffers.
Not covered: what nobody can read (uncovered.py); values of parameters, unless asked for.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from compilot.identity import origin
from compilot.identity.input_settings import input_settings
from compilot.identity.tokens import SCALARS, SHORT, digest, joined, text
from compilot.identity.values import Reader, own_attributes, settings_of
from compilot.records import MAX_NAMED, ModelFingerprint

_SHOWN = (bool, int, float, type(None))  # attributes whose values may be read by whoever reads the plan
_INT_BITS = 64  # a longer number is data; Python refuses to write out very long ones
_WORD = re.compile("[a-z_]{1,40}")  # a choice such as "gelu"; keys and passwords have more than that in them


class Survey(NamedTuple):
    """One look at a model."""

    reader: Reader
    structure: str
    attributes: dict[str, str]  # of the user's modules, and of configurations: path -> value or short digest
    input_settings: dict[str, str]  # in the same way; no part of the structure


def model_fingerprint(model: nn.Module, weights: bool = False, survey: Survey | None = None) -> ModelFingerprint:
    """The identity of a model; weights=True adds a digest of the values, for artifacts that froze them.

    survey: what `read_model` has just found, where somebody needs more of it than the fingerprint.
    """
    tensors = _tensors(model)
    counted = {id(tensor): tensor for _, tensor in tensors}.values()
    survey = survey or read_model(model)
    units = survey.reader.units
    versions = {package: origin.version_of(package) for package in sorted(units.packages)}
    versions = {package: version for package, version in versions.items() if version}
    return ModelFingerprint(
        class_name=type(model).__name__,
        code_sha256=digest(_code(units.contents, versions)),
        structure_sha256=survey.structure,
        parameters_sha256=digest(_parameters(tensors)),
        parameter_count=sum(tensor.numel() for tensor in counted),
        parameter_bytes=sum(tensor.numel() * tensor.element_size() for tensor in counted),
        weights_sha256=_weights(tensors) if weights else None,
        code={label: _short(content) for label, content in [*units.contents.items()][:MAX_NAMED]},
        libraries=versions,
        attributes=survey.attributes,
        input_settings=survey.input_settings,
    )


def parameters_sha256(model: nn.Module) -> str:
    """The fingerprint's digest of names, shapes and dtypes of parameters and buffers, alone: it is quick."""
    return digest(_parameters(_tensors(model)))


def read_model(model: nn.Module) -> Survey:
    """Read everything that a model holds and reaches, besides the values of its weights."""
    apart = input_settings(model)
    reader = Reader(model, [(one.owner, one.name) for one in apart])
    lines: list[bytes] = []
    named: dict[str, str] = {}
    settings: dict[str, str] = {}
    known: set[int] = set()  # a configuration that many modules hold is named once
    for name, module in model.named_modules(remove_duplicate=False):
        lines += [text(name), reader.units.ref(type(module))]
        is_users = reader.units.is_users(type(module))
        for key, value in own_attributes(module):
            path = f"{name}.{key}".lstrip(".")
            token = reader.part(vars(module), key, path, value)
            lines += [text(key), token]
            if is_users and len(named) < MAX_NAMED:
                named[path] = _shown(value, token)
            if id(value) not in known and len(settings) < MAX_NAMED:
                settings |= _settings(value, path, token)
                known.add(id(value))
    reader.units.settle()
    shown = {one.path: _setting(one.owner, one.name, one.value) for one in apart}
    attributes = [(path, value) for path, value in (*named.items(), *settings.items()) if path not in shown]
    return Survey(reader, digest(lines), dict(attributes[:MAX_NAMED]), shown)


def _settings(value: Any, path: str, token: bytes) -> dict[str, str]:
    """The parts of a configuration, and the whole for what changes in it elsewhere."""
    parts = {f"{path}.{key}": _setting(value, key, one) for key, one in settings_of(value)}
    return {path: _shown(value, token), **parts} if parts else {}


def _setting(owner: Any, key: str, value: Any) -> str:
    """As any attribute; and a word, where the class itself has a setting of that name: that is no secret."""
    is_declared = any(key in vars(base) for base in type(owner).__mro__)
    if is_declared and type(value) is str and _WORD.fullmatch(value):
        return repr(value)
    return _shown(value, SCALARS[type(value)](value))


def _code(contents: dict[str, bytes], versions: dict[str, str]) -> Iterator[bytes]:
    for label in sorted(contents):
        yield joined("unit", [text(label), contents[label]])
    for package, version in versions.items():
        yield joined("library", [text(package), text(version)])


def _shown(value: Any, token: bytes) -> str:
    is_short = type(value) in _SHOWN and not (type(value) is int and value.bit_length() > _INT_BITS)
    return repr(value) if is_short else f"{type(value).__name__} {_short(token)}"


def _short(token: bytes) -> str:
    return hashlib.sha256(token).hexdigest()[:SHORT]


def _name(pair: tuple[str, Any]) -> str:
    return pair[0]


def _tensors(model: nn.Module) -> list[tuple[str, torch.Tensor]]:
    found = sorted(model.named_parameters(remove_duplicate=False), key=_name)
    return [*found, *sorted(model.named_buffers(remove_duplicate=False), key=_name)]


def _parameters(tensors: Iterable[tuple[str, torch.Tensor]]) -> list[bytes]:
    first: dict[int, str] = {}
    return [text(f"{name} {tuple(t.shape)} {t.dtype} {first.setdefault(id(t), name)}") for name, t in tensors]


def _weights(tensors: Iterable[tuple[str, torch.Tensor]]) -> str:
    result = hashlib.sha256()
    for name, tensor in tensors:
        host = tensor.detach().cpu().contiguous()
        result.update(f"{name} {tuple(host.shape)} {host.dtype}\n".encode())
        result.update(host.reshape(-1).view(torch.uint8).numpy().data)
    return result.hexdigest()
