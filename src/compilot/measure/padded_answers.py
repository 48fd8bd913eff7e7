"""Padded and whole answers side by side: ask, cut back or join, compare.

In: the unit of work (in float64, or with an engine in the model's place), a call, a `Padding`. Out: the outputs by
path; a `Leak` is raised where two of them differ, with the output and the sizes; which output dimensions follow a size,
and how outputs are laid out. Used by the proof on the model and by the one on an engine.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from compilot._tree import Call, call_leaves
from compilot.engines.protocol import NotTaken
from compilot.inputs.values import can_vary, draw, generator, is_mask, map_tensors
from compilot.measure.closeness import Closeness, compare
from compilot.records import OutputLayout, PaddedOutput, Padding, SplitCalls
from compilot.runtime.padding import Cut, Pad
from compilot.runtime.splitting import Divide, Join
from compilot.workload.observing import Seen
from compilot.workload.outputs import Flat, difference, flatten, same_values
from compilot.workload.padding import Sized
from compilot.workload.unit import Unit

POISON = 37.0  # finite, and far from what normal inputs hold: NaN would spread through a product with zero
STRONGER = 10.0  # times the example's own spread, of the other poison


class Sizes(Protocol):
    """A size and what it is padded to."""

    @property
    def size(self) -> int: ...
    @property
    def to(self) -> int: ...


class Leak(Exception):
    """Padding changes something, or nothing can be said about it."""

    def __init__(self, why: str, output: str = "", size: int | None = None, padded_to: int | None = None) -> None:
        super().__init__(why)
        self.why, self.output, self.size, self.padded_to = why, output, size, padded_to


class Asked:
    """One way to run the model, asked again and again."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit

    def whole(self, call: Call) -> Seen:
        """Everything about a call as it is. Leak: the model does not repeat itself, or its outputs cannot be cut."""
        seen = self._run(call)
        again = self.answer(call)
        if not all(same_values(tensor, again.tensors[path]) for path, tensor in seen.values.items()):
            raise Leak("the model gives other answers to the same call: it draws random numbers or keeps state")
        opaque = next((path for path, what in seen.output.structure.items() if what.startswith("object ")), None)
        if opaque is not None:
            kind = seen.output.structure[opaque].removeprefix("object ")
            raise Leak(f"{opaque} is a {kind}, which cannot be cut back; have the model return tensors only", opaque)
        return seen

    def refuse_changes(self, call: Call) -> None:
        """Leak where a call changes its inputs or the model's buffers, or gives an input back."""
        seen = self._run(call)
        if changed := [*seen.mutated, *seen.state]:
            raise Leak(f"the model changes {changed[0]} in each call, and padding would change it otherwise")
        if seen.aliases:
            output, given = seen.aliases[0]
            raise Leak(f"{output} shares memory with {given}, which it would not where it is padded", output)

    def _run(self, call: Call) -> Seen:
        try:
            return self._unit.run(call)
        except Exception as error:
            raise Leak(f"the model raises {type(error).__name__} at these sizes: {_line(error)}") from error

    def answer(self, call: Call) -> Flat:
        """The outputs of a call."""
        return flatten(self._answer(call), "output")

    def _answer(self, call: Call) -> Any:
        try:
            return self._unit.answer(call)
        except Exception as error:
            raise Leak(f"the model raises {type(error).__name__} at these sizes: {_line(error)}") from error

    def padded(self, call: Call, padding: Padding, *, poison: int | None = None, spared: Collection[str] = ()) -> Flat:
        """The outputs of the padded call, cut back. poison: what the padding holds, but for the spared inputs."""
        pad = Pad(padding)
        try:
            sizes = pad.sizes(call.args, call.kwargs)
            if sizes is None:
                return self.answer(call)
            filled = pad(call.args, call.kwargs, sizes)
        except NotTaken as error:
            raise Leak(f"the call cannot be padded: {error}") from error
        if poison is not None:
            filled = poisoned(filled, call, padding, poison, spared)
        answer = self._answer(filled)
        try:
            return flatten(Cut(padding)(answer, sizes), "output")
        except Exception as error:  # an output that is shorter than it should be, or not there
            raise Leak(f"the outputs cannot be cut back at these sizes: {_line(error)}") from error

    def in_parts(self, call: Call, split: SplitCalls) -> Flat:
        """The outputs of the parts of a call, joined. NotTaken: its inputs do not agree on their rows."""
        divide, join = Divide(split), Join(split)
        rows = divide.rows(call.args, call.kwargs)
        parts = [call] if rows is None else list(divide(call.args, call.kwargs, rows))
        answers = [self._answer(part) for part in parts]
        try:
            return flatten(join(answers), "output")
        except Exception as error:
            raise Leak(f"the outputs of parts cannot be joined: {_line(error)}") from error

    def rows_of(self, flat: Flat, outputs: Sequence[PaddedOutput], number: int, of: int) -> Flat:
        """The part of the outputs that belongs to one row of a batch of so many."""
        found = dict(flat.tensors)
        for one in outputs:
            each = flat.tensors[one.path].shape[one.dim] // of
            found[one.path] = flat.tensors[one.path].narrow(one.dim, number * each, each)
        structure = {path: flatten(tensor, path).structure[path] for path, tensor in found.items()}
        return Flat({**flat.structure, **structure}, found)

    def same_bits(self, one: Flat, other: Flat, sizes: Sizes, when: str) -> None:
        """Leak where the outputs are not equal bit by bit."""
        self.refuse_other_structure(one, other, sizes)
        for path, tensor in one.tensors.items():
            if not same_values(tensor, other.tensors[path]):
                raise Leak(_told(path, sizes, when), path, sizes.size, sizes.to)

    def alike(self, found: Flat, expected: Flat, sizes: Sizes, when: str) -> None:
        """Leak where the outputs differ by more than rounding, of a model that computes parts of it in float32."""
        self.refuse_other_structure(expected, found, sizes)
        for path, tensor in expected.tensors.items():
            close = _compared(found.tensors[path], tensor, path)
            if close.all_nan:
                raise Leak(f"{path} is NaN everywhere at size {sizes.size}, so nothing can be proven", path, sizes.size)
            if not close.check.passed or close.non_finite:
                off = close.check.why or close.non_finite
                raise Leak(f"{_told(path, sizes, when)} ({off})", path, sizes.size, sizes.to)

    def refuse_other_structure(self, expected: Flat, found: Flat, sizes: Sizes) -> None:
        """Leak where the outputs are made up otherwise."""
        if text := difference(expected.structure, found.structure):
            where = text.split(" ", 1)[0]
            raise Leak(f"padded from {sizes.size} to {sizes.to}, {text}", where, sizes.size, sizes.to)


def _compared(found: Tensor, expected: Tensor, path: str) -> Closeness:
    return compare(found, expected, expected, case="", output=path, typical=0.0, coarsest=torch.float32)


def _line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "")[:200]


def _told(path: str, sizes: Sizes, when: str) -> str:
    return f"{path} changes at size {sizes.size}, padded to {sizes.to}, when {when}"


def poisoned(filled: Call, call: Call, padding: Padding, kind: int, spared: Collection[str]) -> Call:
    """The padded call with other values in its padding: drawn like the example's and stronger, or one far off."""
    own = {leaf.path: leaf.value for leaf in call_leaves(call)}
    edges = [(one.path, one.dim) for dim in padding.dims for one in dim.inputs if one.path not in spared]

    def poison(path: str, tensor: Tensor) -> Tensor:
        tensor = tensor.clone()
        for dim in (dim for where, dim in edges if where == path):
            size = own[path].shape[dim]
            part = tensor.narrow(dim, size, tensor.shape[dim] - size)
            part.copy_(_poison(own[path], list(part.shape), kind, path))
        return tensor

    return map_tensors(filled, poison)


def _poison(example: Tensor, shape: list[int], kind: int, path: str) -> Tensor:
    if is_mask(example):  # no mask, or it would be spared
        return torch.full(shape, kind, dtype=example.dtype)
    if not example.is_floating_point() and not example.is_complex():
        drawn = draw(example, shape, generator(17, path))  # ids: others do not exist
        return drawn if kind else drawn.fill_(int(example.max()))
    if kind:
        return torch.full(shape, POISON, dtype=example.dtype)
    return (draw(example, shape, generator(17, path)) + 1) * STRONGER


def lively(sized: Sized, asked: Asked) -> tuple[Sized, frozenset[str]]:
    """The example without inputs of one number only, which would hide what rows and positions do to each other.

    Also the paths of integers for which the model takes no other number; those are never poisoned.
    """
    new, fixed = dict[str, Tensor](), set[str]()
    for leaf in call_leaves(sized.call):
        tensor = leaf.value
        if (
            not can_vary(tensor)
            or leaf.path in sized.masks
            or not tensor.numel()
            or bool((tensor != tensor.flatten()[0]).any())
        ):
            continue
        if tensor.is_floating_point() or tensor.is_complex():
            new[leaf.path] = tensor + torch.rand(tensor.shape, generator=generator(19, leaf.path)).to(tensor) + 0.1
        elif (other := _other_number(sized.call, leaf.path, tensor, asked)) is not None:
            new[leaf.path] = other
        else:
            fixed.add(leaf.path)
    call = map_tensors(sized.call, lambda path, tensor: new.get(path, tensor))
    return sized._replace(call=call), frozenset(fixed)


def _other_number(call: Call, where: str, tensor: Tensor, asked: Asked) -> Tensor | None:
    """The integers with a second number among them that the model takes, too; None: it takes none."""
    here = int(tensor.flatten()[0])
    for number in (here + 1, here - 1):
        changed = tensor.clone().contiguous()
        changed.view(-1)[-1] = number
        try:
            asked.answer(map_tensors(call, lambda path, t, new=changed: new if path == where else t))  # type: ignore[misc]
        except Leak:
            continue
        if number >= 0:
            return changed
    return None


def learn_outputs(seen: Mapping[int, Flat]) -> tuple[PaddedOutput, ...]:
    """Which dimensions follow the size, from what was seen at some sizes. Leak: one follows it in no simple way."""
    sizes = sorted(seen)
    first = seen[sizes[0]]
    found = []
    for path, tensor in first.tensors.items():
        shapes = {size: seen[size].tensors[path].shape if path in seen[size].tensors else None for size in sizes}
        if any(shape is None or len(shape) != tensor.dim() for shape in shapes.values()):
            raise Leak(f"{path} has other parts or dimensions at another size", path)
        for dim in range(tensor.dim()):
            lengths = {size: int(shape[dim]) for size, shape in shapes.items() if shape is not None}
            if len(set(lengths.values())) > 1:
                found.append(_followed(path, dim, lengths, first.structure[path]))
    if len(sizes) > 1 and (other := next((p for p in seen[sizes[-1]].tensors if p not in first.tensors), None)):
        raise Leak(f"{other} is there at some sizes only", other)
    return tuple(found)


def _followed(path: str, dim: int, lengths: Mapping[int, int], what: str) -> PaddedOutput:
    low, high = min(lengths), max(lengths)
    times, rest = divmod(lengths[high] - lengths[low], high - low)
    plus = lengths[low] - times * low
    if rest or times < 1 or any(length != times * size + plus for size, length in lengths.items()):
        told = ", ".join(f"{length} at {size}" for size, length in lengths.items())
        raise Leak(f"dimension {dim} of {path} does not follow the size evenly ({told})", path)
    if what.startswith("ndarray"):
        raise Leak(f"{path} is a numpy array, which is not cut back; return a tensor", path)
    return PaddedOutput(path=path, dim=dim, times=times, plus=plus)


def layouts(seen: Seen) -> tuple[OutputLayout, ...]:
    """The order of dimensions in memory of outputs that are dense and not contiguous."""
    found = []
    for path, tensor in seen.output.tensors.items():
        order = sorted(range(tensor.dim()), key=lambda dim: (-tensor.stride()[dim], dim))
        if not tensor.is_contiguous() and tensor.permute(order).is_contiguous():
            found.append(OutputLayout(path=path, order=tuple(order)))
    return tuple(found)
