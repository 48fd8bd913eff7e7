"""Calls and answers on the wire: JSON or safetensors, in the form of the example call.

In: a request's body, and the example that says names, structure and dtypes. Out: a Call; of an answer, bytes. JSON: one
key for each parameter of forward, tensors as nested lists. Safetensors: one tensor for each leaf, named by its
parameter ("x", "batch['image']"); answers by their path ("output", "output['logits']"). Nothing is ever unpickled.
Covered: other sizes than the example's, missing plain values (the example's), what does not fit as one sentence.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import torch

from compilot._tree import Call, children, output_leaves, parameter_names, rebuild
from compilot.errors import InputError

JSON, SAFETENSORS = "application/json", "application/vnd.safetensors"
KINDS = {JSON: JSON, SAFETENSORS: SAFETENSORS, "application/octet-stream": SAFETENSORS}


class Wire:
    """The form of a model's calls."""

    def __init__(self, forward: Any, example: Call) -> None:
        names = parameter_names(forward, example)
        self._example = example
        self._names = {path: names.get(path, path) for path in self._roots()}

    def _roots(self) -> dict[str, Any]:
        positional = {f"args[{i}]": value for i, value in enumerate(self._example.args)}
        return positional | {f"kwargs[{key!r}]": value for key, value in self._example.kwargs.items()}

    def inputs(self) -> dict[str, str]:
        """Every tensor of a call with its dtype and sizes in the example, for people."""
        found = {}
        for path, value in self._roots().items():
            for leaf in _tensors(value, self._names[path]):
                found[leaf[0]] = f"{str(leaf[1].dtype).removeprefix('torch.')} {list(leaf[1].shape)}"
        return found

    def call(self, body: bytes, kind: str) -> Call:
        """The call in a request; InputError says what does not fit."""
        read = self._from_safetensors if kind == SAFETENSORS else self._from_json
        found = read(body)
        args = tuple(found[f"args[{i}]"] for i in range(len(self._example.args)))
        return Call(args, {key: found[f"kwargs[{key!r}]"] for key in self._example.kwargs})

    def _from_json(self, body: bytes) -> dict[str, Any]:
        try:
            given = json.loads(body)
        except ValueError as problem:
            raise InputError(f"the body is not JSON: {problem}.") from problem
        if not isinstance(given, dict):
            raise InputError(f"the body is one object with {', '.join(self._names.values())} in it.")
        self._refuse_unknown(given)
        roots = self._roots()
        return {path: _as_example(roots[path], given.get(name, _MISSING), name) for path, name in self._names.items()}

    def _refuse_unknown(self, given: Mapping[str, Any]) -> None:
        if odd := sorted(given.keys() - set(self._names.values())):
            raise InputError(f"there is no input '{odd[0]}'; the model takes {', '.join(self._names.values())}.")

    def _from_safetensors(self, body: bytes) -> dict[str, Any]:
        from safetensors import SafetensorError
        from safetensors.torch import load

        try:
            given: dict[str, torch.Tensor] = load(body)
        except (SafetensorError, ValueError, KeyError, RuntimeError) as problem:
            raise InputError(f"the body is not in the safetensors format: {problem}.") from problem
        wanted = {name for path, value in self._roots().items() for name, _ in _tensors(value, self._names[path])}
        if odd := sorted(given.keys() ^ wanted):
            what = "there is no input" if odd[0] in given else "the body has no"
            raise InputError(f"{what} '{odd[0]}'; the model takes {', '.join(sorted(wanted))}.")

        def taken(name: str, value: Any) -> Any:
            return _checked(value, given[name], name) if isinstance(value, torch.Tensor) else value

        return {path: rebuild(value, taken, self._names[path]) for path, value in self._roots().items()}


_MISSING = object()


def _tensors(value: Any, name: str) -> list[tuple[str, torch.Tensor]]:
    from compilot._tree import leaves

    return [(leaf.path, leaf.value) for leaf in leaves(value, name) if isinstance(leaf.value, torch.Tensor)]


def _as_example(example: Any, given: Any, name: str) -> Any:
    """A JSON value in the form of the example's."""
    if isinstance(example, torch.Tensor):
        return _as_tensor(example, given, name)
    parts = children(example)
    if parts is None:
        return example if given is _MISSING else given
    if isinstance(example, Mapping):
        items = {} if given is _MISSING else given
        if not isinstance(items, dict):
            raise InputError(f"input '{name}' is an object.")
        made = {
            key: _as_example(part, items.get(str(key), _MISSING), f"{name}[{key!r}]") for key, part in example.items()
        }
        return made if type(example) is dict else type(example)(**made)
    if not isinstance(given, list) or len(given) != len(parts):
        raise InputError(f"input '{name}' is a list of {len(parts)}.")
    numbered = zip(parts, given, strict=True)
    new = [_as_example(part, value, f"{name}{suffix}") for (suffix, part), value in numbered]
    return type(example)(*new) if hasattr(example, "_fields") else type(example)(new)


def _as_tensor(example: torch.Tensor, given: Any, name: str) -> torch.Tensor:
    if given is _MISSING:
        raise InputError(f"input '{name}' is missing.")
    try:
        return _checked(example, torch.tensor(given, dtype=example.dtype), name)
    except (TypeError, ValueError, RuntimeError, OverflowError) as problem:
        raise InputError(f"input '{name}' is no tensor of {example.dtype}: {problem}.") from problem


def _checked(example: torch.Tensor, given: torch.Tensor, name: str) -> torch.Tensor:
    if given.dtype != example.dtype:
        raise InputError(f"input '{name}' is {given.dtype}, the model takes {example.dtype}.")
    if given.dim() != example.dim():
        raise InputError(f"input '{name}' has {given.dim()} dimensions, the model takes {example.dim()}.")
    return given.to(example.device)


# ------------------------------------------------------------------------------------------------------------ answers


def answer(output: Any, kind: str) -> bytes:
    """A model's answer as bytes."""
    if kind == SAFETENSORS:
        from safetensors.torch import save

        found = {leaf.path: leaf.value for leaf in output_leaves(output) if isinstance(leaf.value, torch.Tensor)}
        return bytes(save({path: value.detach().cpu().contiguous().clone() for path, value in found.items()}))
    return json.dumps({"output": _plain(output)}, allow_nan=False).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return _numbers(value.detach().cpu().tolist())
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    parts = children(value)
    if parts is None:
        return _numbers(value) if isinstance(value, float) else value if isinstance(value, _JSON) else str(value)
    if isinstance(value, list) or (isinstance(value, tuple) and not hasattr(value, "_fields")):
        return [_plain(part) for _, part in parts]
    return {suffix.lstrip("."): _plain(part) for suffix, part in parts}


_JSON = (int, str, bool, type(None))


def _numbers(value: Any) -> Any:
    """JSON has no NaN and no infinity: they are the texts "NaN", "Infinity" and "-Infinity"."""
    if isinstance(value, list):
        return [_numbers(part) for part in value]
    if isinstance(value, complex):
        return [_numbers(value.real), _numbers(value.imag)]
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
