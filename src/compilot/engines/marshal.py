"""Marshalling as source code for one signature: flat tensors out of a call, the model's structure around the results.

In: a guard, a Structure and the engine's own lines. Out: a function with the call pattern of the guard. A generic
flatten costs 17 microseconds and a generic rebuild 14-17; the code made here costs under 2 for a BERT with a Hugging
Face output. Everything that comes from a file is checked before it becomes code: paths are parsed, sizes may only be
arithmetic, constants are literals, classes are found by classes.py. Covered: equal sizes that the export relies on
(NotTaken when they differ). Not covered: the guard itself; it has passed when this code runs.
"""

from __future__ import annotations

import ast
import keyword
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from compilot.engines.classes import find_class, maker
from compilot.engines.protocol import Infeasible, LoadRequest, NotTaken
from compilot.engines.sizes import size_code, size_lines
from compilot.engines.structure import InputTensor, Kind, Node, OutputTensor, Structure
from compilot.inputs.paths import parse
from compilot.records import Guard

_DISPLAYS = {Kind.LIST: "[{}]", Kind.TUPLE: "({},)", Kind.SIZE: "_Size(({},))"}


class Names(NamedTuple):
    """Names in the generated function that the engine's lines may use."""

    inputs: tuple[str, ...]  # the flat input tensors, row-major unless declared otherwise
    outputs: tuple[str, ...]  # to be assigned by the engine's lines: the flat output tensors


def no_builds() -> int:
    """Engines that come as files build nothing when they are called."""
    return 0


def names_of(structure: Structure) -> Names:
    """The names that go with a structure."""
    return Names(
        tuple(f"_i{i}" for i in range(len(structure.inputs))),
        tuple(f"_o{i}" for i in range(len(structure.outputs))),
    )


def make_call(
    request: LoadRequest, structure: Structure, engine_lines: Sequence[str], namespace: dict[str, Any]
) -> Callable[..., Any]:
    """The callable. engine_lines run between picking and rebuilding and find their own names in namespace."""
    namespace.update(_NotTaken=NotTaken, _Size=torch.Size, _OrderedDict=OrderedDict, _max=max, _min=min)
    header, roots = _header(request.guard)
    body = [
        *_pick(structure, roots),
        *size_lines(structure),
        *engine_lines,
        f"return {_Builder(structure, request, namespace).code(structure.tree)}",
    ]
    source = "\n".join([header, *(f"    {line}" for line in body)]) + "\n"
    exec(compile(source, "<compilot marshalling>", "exec"), namespace)
    return namespace["call"]  # type: ignore[no-any-return]


def _header(guard: Guard) -> tuple[str, dict[int | str, str]]:
    """The def line in the guard's own pattern, and the variable of each argument."""
    roots: dict[int | str, str] = {i: f"_a{i}" for i in range(guard.positional)}
    parameters = [*roots.values(), "/"] if roots else []
    if not guard.keywords:
        return f"def call({', '.join(parameters)}):", roots
    if all(key.isidentifier() and not keyword.iskeyword(key) and not key.startswith("_") for key in guard.keywords):
        roots.update({key: key for key in guard.keywords})
        return f"def call({', '.join([*parameters, '*', *guard.keywords])}):", roots
    roots.update({key: f"_k[{key!r}]" for key in guard.keywords})
    return f"def call({', '.join([*parameters, '**_k'])}):", roots


def _pick(structure: Structure, roots: dict[int | str, str]) -> list[str]:
    lines = []
    for i, tensor in enumerate(structure.inputs):
        where = parse(tensor.path).code(roots)
        lines += [f"_i{i} = {where}"] if tensor.dense else [f"_u{i} = {where}", f"_i{i} = _u{i}.contiguous()"]
    return lines


def empty_code(structure: Structure, index: int, namespace: dict[str, Any]) -> str:
    """An expression that makes the memory of one output, whatever torch's default dtype and device are.

    `new_empty` of a kept tensor with separate sizes takes 1.15 microseconds, torch.empty with dtype and device 1.4.
    """
    output = structure.outputs[index]
    assert output.shape is not None
    namespace[f"_new{index}"] = torch.empty(0, dtype=dtype_of(output), device="cpu").new_empty
    return f"_new{index}({', '.join(size_code(structure, size) for size in output.shape) or '()'})"


def dtype_of(tensor: InputTensor | OutputTensor) -> torch.dtype:
    """The torch dtype of a flat tensor."""
    found = getattr(torch, tensor.dtype.removeprefix("torch."), None)
    if not isinstance(found, torch.dtype):
        raise Infeasible(f"{tensor.dtype!r} is not a dtype; run 'compilot tune' again")
    return found


class _Builder:
    """Turns the output tree into one expression."""

    def __init__(self, structure: Structure, request: LoadRequest, namespace: dict[str, Any]) -> None:
        self._structure = structure
        self._request = request
        self._namespace = namespace
        self._named = 0

    def code(self, node: Node) -> str:
        """The expression that makes this node."""
        if node.kind is Kind.TENSOR:
            return self._at("_o", node.index, len(self._structure.outputs))
        if node.kind is Kind.INPUT:
            return self._given(node.index)
        if node.kind is Kind.CONSTANT:
            return self._name(_constant(node))
        parts = [self.code(part) for part in node.parts]
        if node.kind in _DISPLAYS:
            return _DISPLAYS[node.kind].format(", ".join(parts)) if parts else _EMPTY[node.kind]
        if node.kind in (Kind.DICT, Kind.ORDERED_DICT):
            return self._dict(node, parts)
        return self._object(node, parts)

    def _at(self, prefix: str, index: int, count: int) -> str:
        if not 0 <= index < count:
            raise Infeasible("the output structure names a tensor that is not there; run 'compilot tune' again")
        return f"{prefix}{index}"

    def _given(self, index: int) -> str:
        """The user's own tensor: what came in, not the contiguous copy of it."""
        name = self._at("_i", index, len(self._structure.inputs))
        return name if self._structure.inputs[index].dense else f"_u{index}"

    def _name(self, value: Any) -> str:
        if value is None or isinstance(value, bool):
            return repr(value)
        self._named += 1
        self._namespace[f"_c{self._named}"] = value
        return f"_c{self._named}"

    def _dict(self, node: Node, parts: Sequence[str]) -> str:
        keys = [self._name(literal(key)) for key in node.keys]
        shown = "{" + ", ".join(f"{key}: {part}" for key, part in zip(keys, parts, strict=True)) + "}"
        return shown if node.kind is Kind.DICT else f"_OrderedDict({shown})"

    def _object(self, node: Node, parts: Sequence[str]) -> str:
        found = find_class(node, self._request.model, plain=self._request.plain_outputs)
        make = found if node.kind is Kind.NAMED_TUPLE else maker(found, node.keys)[0]
        return f"{self._name(make)}({', '.join(parts)})"


_EMPTY = {Kind.LIST: "[]", Kind.TUPLE: "()", Kind.SIZE: "_Size(())"}


def _constant(node: Node) -> Any:
    if node.type == "dtype":
        return dtype_of(OutputTensor(dtype=node.value, shape=None))
    if node.type == "device":
        return torch.device(node.value)
    if node.type == "float":  # also what has no literal: nan and infinities
        return float(node.value)
    return literal(node.value)


def literal(text: str) -> Any:
    """A Python literal's value; anything else is a damaged file."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError) as error:
        raise Infeasible(f"{text!r} in the output structure is not a literal; run 'compilot tune' again") from error
