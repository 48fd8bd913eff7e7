"""Which numbers eager accepts as indices, operator by operator.

In: a `Lookup` of a trace. Out: each tensor that it uses as an index, with the set of numbers that are in range for it.
Covered: embeddings, gather and scatter, index_select and its kin, advanced indexing (negative numbers count from the
end), take and put, targets of losses (`ignore_index` too), unpooling, counts that must not be negative. `one_hot` and
`take_along_dim` are made of these. Not covered: sizes that depend on values: no number is surely in range of those.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch

from compilot._ranges import Range
from compilot._torch.optrace import Known, Lookup, Ref
from compilot.indices.sets import EVERY, Numbers, numbers

ABOVE_ZERO: Numbers = (Range(0, EVERY[0].high),)


class Use(NamedTuple):
    """A tensor used as an index."""

    by: Ref
    legal: Numbers
    sized: bool  # the legal numbers come from a size that may be another in another call


def is_lookup(name: str) -> bool:
    """Whether an operator uses an argument as an index; with and without the "_" of those that write."""
    return name in _LEGAL


def uses(lookup: Lookup) -> list[Use]:
    """The tensors that depend on an input and are used as indices."""
    return [use for use in _LEGAL[lookup.name](lookup.args) if isinstance(use.by, Ref)]


def _use(index: Any, table: Any, legal: Numbers) -> Use:
    return Use(index, () if table.wild else legal, not getattr(table, "fixed", False))


def _size(table: Any, dim: int) -> int:
    return table.shape[dim] if table.shape else 1


def _from_zero(size: int) -> Numbers:
    return numbers([Range(0, size - 1)])


def _rows(index: str) -> Callable[[Mapping[str, Any]], Iterator[Use]]:
    """Rows of a table, the first argument."""

    def found(args: Mapping[str, Any]) -> Iterator[Use]:
        table = next(iter(args.values()))
        yield _use(args[index], table, _from_zero(_size(table, 0)))

    return found


def _bags(args: Mapping[str, Any]) -> Iterator[Use]:
    yield from _rows("indices")(args)
    index = args["indices"]
    yield _use(args["offsets"], index, numbers([Range(0, index.shape[0])]))


def _along(args: Mapping[str, Any]) -> Iterator[Use]:
    """Places along a dimension, from zero."""
    yield _use(args["index"], args["self"], _from_zero(_size(args["self"], args["dim"])))


def _along_either_way(args: Mapping[str, Any]) -> Iterator[Use]:
    size = _size(args["self"], args["dim"])
    yield _use(args["index"], args["self"], numbers([Range(-size, size - 1)]))


def _anywhere(args: Mapping[str, Any]) -> Iterator[Use]:
    size = math.prod(args["self"].shape)
    yield _use(args["index"], args["self"], numbers([Range(-size, size - 1)]))


def _advanced(args: Mapping[str, Any]) -> Iterator[Use]:
    """One tensor per dimension; a mask takes as many dimensions as it has, and is in range of itself."""
    table, dim = args["self"], 0
    for index in args["indices"]:
        if isinstance(index, Ref | Known) and index.dtype in (torch.bool, torch.uint8):
            dim += len(index.shape)
            continue
        if index is not None:
            size = table.shape[dim]
            yield _use(index, table, numbers([Range(-size, size - 1)]))
        dim += 1


def _targets(args: Mapping[str, Any]) -> Iterator[Use]:
    scores, ignored = args["self"], args["ignore_index"]
    classes = scores.shape[0 if len(scores.shape) == 1 else 1]
    legal = numbers([Range(0, classes - 1), Range(ignored, ignored)])
    yield _use(args["target"], scores, legal)


def _margins(first: int) -> Callable[[Mapping[str, Any]], Iterator[Use]]:
    def found(args: Mapping[str, Any]) -> Iterator[Use]:
        scores = args["self"]
        yield _use(args["target"], scores, numbers([Range(first, scores.shape[-1] - 1)]))

    return found


def _unpooled(args: Mapping[str, Any]) -> Iterator[Use]:
    yield Use(args["indices"], _from_zero(math.prod(args["output_size"])), True)


def _counts(name: str) -> Callable[[Mapping[str, Any]], Iterator[Use]]:
    def found(args: Mapping[str, Any]) -> Iterator[Use]:
        yield Use(args[name], ABOVE_ZERO, False)

    return found


_LEGAL: Mapping[str, Callable[[Mapping[str, Any]], Iterator[Use]]] = {
    "embedding": _rows("indices"),
    "embedding_renorm": _rows("indices"),
    "_embedding_bag": _bags,
    "_embedding_bag_forward_only": _bags,
    **dict.fromkeys(("index_select", "gather", "index_add", "index_copy", "index_reduce"), _along),
    **dict.fromkeys(("scatter", "scatter_add", "scatter_reduce"), _along),
    "index_fill": _along_either_way,
    "take": _anywhere,
    "put": _anywhere,
    **dict.fromkeys(("index", "_unsafe_index", "index_put", "_unsafe_index_put", "_index_put_impl"), _advanced),
    "nll_loss_forward": _targets,
    "nll_loss2d_forward": _targets,
    "multi_margin_loss": _margins(0),
    "multilabel_margin_loss_forward": _margins(-1),
    "max_unpool2d": _unpooled,
    "max_unpool3d": _unpooled,
    "bincount": _counts("self"),
    "repeat_interleave": _counts("repeats"),
}
