"""Padded entries: an engine that was built for one size answers calls of every smaller one.

In: the engine as it was loaded and the entry's `Padding`. Out: an engine with the same face that
fills the inputs up to the built size, and cuts the answer back: outputs are eager's in shape and layout, and no memory
is shared between calls. A call that has the built sizes is passed on as it is. Refused with NotTaken, so that eager
answers: inputs that do not agree on a size, masks for which padding was not proven. Sizes outside of the guard (0, or
above the built one) never come here. Not covered: whether padding changes nothing (measure/padding.py proves that).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from compilot._tree import Call, map_call, rebuild
from compilot.engines.protocol import Loaded, NotTaken
from compilot.inputs.layouts import strides_of
from compilot.inputs.paths import Path, parse
from compilot.records import MaskRule, Padding
from compilot.runtime.prepared import Prepared, standing_before

KEPT_ROWS = 256  # of a batch: at most 256 lists of row numbers, 0.5 MB in all
Sizes = list[int]  # of a call, one for each padded size


# ---- the padded engine -----------------------------------------------------------------------------------------------


def padded(engine: Loaded, padding: Padding) -> Loaded:
    """The engine for all the sizes; what it prepares, it prepares once for each mode: its own size is always one."""
    return standing_before(engine, PaddedCalls(engine, padding))


class PaddedCalls:
    """The engine's callable behind the padding."""

    def __init__(self, engine: Loaded, padding: Padding) -> None:
        self._engine = engine
        self._pad = Pad(padding)
        self._cut = Cut(padding)
        self._prepared = Prepared(engine)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        sizes = self._pad.sizes(args, kwargs)
        if sizes is None:
            return self._engine.call(*args, **kwargs)
        call = self._pad(args, kwargs, sizes)
        return self._cut(self._engine.call(*call.args, **call.kwargs), sizes)

    def builds(self) -> int:
        """Programs, of an engine that does not count them."""
        return self._prepared.builds()

    def is_built(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether the engine has nothing to build for this call: only its size is new."""
        sizes = self._pad.sizes(args, kwargs)
        return self._prepared.knows(Call(args, kwargs) if sizes is None else self._pad(args, kwargs, sizes))

    def prepare(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The answer to a call of a new size or mode; the engine builds only for a new mode."""
        sizes = self._pad.sizes(args, kwargs)
        if sizes is None:
            return self._prepared.answer(Call(args, kwargs))
        return self._cut(self._prepared.answer(self._pad(args, kwargs, sizes)), sizes)


# ---- inputs ----------------------------------------------------------------------------------------------------------


class _Place(NamedTuple):
    """A padded dimension of an input, its path read once."""

    path: Path
    text: str
    dim: int
    number: int  # of the size that it belongs to
    value: Any
    mask: MaskRule


class Pad:
    """Fills the inputs of a call up."""

    def __init__(self, padding: Padding) -> None:
        self._built = [dim.size for dim in padding.dims]
        places = [
            _Place(parse(one.path), one.path, one.dim, number, one.value, one.mask)
            for number, dim in enumerate(padding.dims)
            for one in dim.inputs
        ]
        by_input: dict[str, list[_Place]] = {}
        for place in sorted(places, key=lambda place: place.value is None):  # rows are repeated when they are whole
            by_input.setdefault(place.text, []).append(place)
        self._inputs = by_input
        self._places = places
        self._masks = [place for place in places if place.mask is not MaskRule.ANY]
        self._kept: dict[tuple[int, int, torch.device], torch.Tensor] = {}
        self._flat = all(not place.path.steps for place in places)

    def sizes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sizes | None:
        """The call's own sizes; None: it has the built ones. NotTaken: its inputs do not agree on them."""
        found = self._built.copy()
        first = [True] * len(found)
        for place in self._places:
            size = place.path.follow(args, kwargs).shape[place.dim]
            if not first[place.number] and size != found[place.number]:
                raise NotTaken(f"size {size} at dimension {place.dim} of {place.text}, {found[place.number]} elsewhere")
            found[place.number], first[place.number] = size, False
        return None if found == self._built else found

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any], sizes: Sizes) -> Call:
        """The call with the built sizes. NotTaken: it has a mask with which padding could change the answer."""
        for place in self._masks:
            if sizes[place.number] != self._built[place.number]:
                _refuse_mask(place, place.path.follow(args, kwargs))
        if not self._flat:
            return map_call(Call(args, kwargs), lambda path, leaf: self._filled(path, leaf, sizes))
        new, named = list(args), dict(kwargs)
        for text, (place, *_) in self._inputs.items():
            if isinstance(place.path.root, int):
                new[place.path.root] = self._filled(text, new[place.path.root], sizes)
            else:
                named[place.path.root] = self._filled(text, named[place.path.root], sizes)
        return Call(tuple(new), named)

    def _filled(self, path: str, leaf: Any, sizes: Sizes) -> Any:
        for place in self._inputs.get(path, ()):
            more = self._built[place.number] - sizes[place.number]
            if more and place.value is None:
                leaf = leaf.index_select(place.dim, self._rows(sizes[place.number], more, leaf.device))
            elif more:
                leaf = torch.constant_pad_nd(leaf, [0, 0] * (leaf.dim() - 1 - place.dim) + [0, more], place.value)
        return leaf

    def _rows(self, size: int, more: int, device: torch.device) -> torch.Tensor:
        """Numbers of the rows, the last one again and again; kept, where there can be only few of them."""
        key = size, more, device
        found = self._kept.get(key)
        if found is None:
            found = torch.arange(size + more, device=device).clamp_(max=size - 1)
            if size + more <= KEPT_ROWS:
                self._kept[key] = found
        return found


_RULES: dict[MaskRule, tuple[Callable[[torch.Tensor, int], torch.Tensor], str]] = {
    MaskRule.SOME: (lambda mask, dim: mask.any(dim).all(), "masks everything in a row"),
    MaskRule.FIRST: (lambda mask, dim: mask.select(dim, 0).all(), "masks the first position of a row"),
    MaskRule.ONES: (lambda mask, dim: mask.all(), "masks something"),
}


def _refuse_mask(place: _Place, mask: torch.Tensor) -> None:
    holds, otherwise = _RULES[place.mask]
    if not _is_bits(mask):
        raise NotTaken(f"{place.text} holds other numbers than 0 and 1, and padding is not proven for that")
    if not holds(mask, place.dim):
        raise NotTaken(f"{place.text} {otherwise}, and padding is not proven for that")


def allows(rule: MaskRule, mask: torch.Tensor, dim: int) -> bool:
    """Whether a mask is one of those that a rule lets through."""
    return rule is MaskRule.ANY or (_is_bits(mask) and bool(_RULES[rule][0](mask, dim)))


def _is_bits(mask: torch.Tensor) -> bool:
    return mask.dtype == torch.bool or torch.equal(mask.clamp(0, 1), mask)


# ---- outputs ---------------------------------------------------------------------------------------------------------


class _Edge(NamedTuple):
    dim: int
    number: int
    times: int
    plus: int


class Cut:
    """Cuts an answer back to the sizes that eager's has."""

    def __init__(self, padding: Padding) -> None:
        self._built = [dim.size for dim in padding.dims]
        self._edges: dict[str, list[_Edge]] = {}
        for number, dim in enumerate(padding.dims):
            for one in dim.outputs:
                self._edges.setdefault(one.path, []).append(_Edge(one.dim, number, one.times, one.plus))
        self._orders = {layout.path: layout.order for layout in padding.layouts}

    def __call__(self, answer: Any, sizes: Sizes) -> Any:
        """The answer to the call with these sizes."""
        if isinstance(answer, torch.Tensor):
            return self._of("output", answer, sizes)
        made: dict[int, torch.Tensor] = {}  # a tensor that is in it twice stays one

        def one(path: str, leaf: Any) -> Any:
            if id(leaf) not in made and path in self._edges:
                made[id(leaf)] = self._of(path, leaf, sizes)
            return made.get(id(leaf), leaf)

        return rebuild(answer, one, "output")

    def _of(self, path: str, tensor: torch.Tensor, sizes: Sizes) -> torch.Tensor:
        whole = tensor
        for edge in self._edges.get(path, ()):
            size = sizes[edge.number]
            if size != self._built[edge.number]:
                tensor = tensor.narrow(edge.dim, 0, edge.times * size + edge.plus)
        if tensor is whole:
            return whole
        order = self._orders.get(path)
        if order is None:
            return dense(tensor)
        back = sorted(range(len(order)), key=order.__getitem__)
        return dense(tensor.permute(order)).permute(back)


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Contiguous to the letter: torch lets a dimension of size 1 have any stride. It keeps no larger memory alive."""
    dense = tensor.contiguous()
    if dense.untyped_storage().nbytes() > dense.numel() * dense.element_size():
        dense = dense.clone(memory_format=torch.contiguous_format)
    if 1 not in dense.shape:
        return dense
    strides = strides_of(dense.shape)
    return dense if dense.stride() == strides else dense.as_strided(dense.shape, strides, dense.storage_offset())
