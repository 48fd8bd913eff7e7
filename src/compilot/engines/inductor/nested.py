"""Repeated blocks that are compiled once inside of one program for the whole model. Run plane.

In: a model. Out: a clone of it in which the blocks that it repeats are nested compile regions: torch.compile traces the
first of those that are alike, and calls what it made for all of them. Only what lies around the blocks is cloned; the
blocks share their attributes with the model's own, whose classes are not changed. Covered: several kinds of block, and
blocks that are not quite alike (each gets code of its own). Not covered: blocks whose `forward` is set on the object.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from compilot.engines.protocol import Infeasible
from compilot.modules.clone import alias, clone_around
from compilot.modules.likeness import outermost_blocks
from compilot.modules.selectors import MANY_COPIES


def with_nested_blocks(model: nn.Module) -> nn.Module:
    """The model with its repeated blocks marked."""
    blocks = outermost_blocks(model, MANY_COPIES)
    if not blocks:
        raise Infeasible(f"nested_blocks needs a block that the model has at least {MANY_COPIES} times")
    kinds = {type(block): _marked(type(block), len(blocks)) for block in blocks}
    return clone_around(model, {id(block): alias(block, kinds[type(block)]) for block in blocks})


def _marked(kind: type[nn.Module], most: int) -> type[nn.Module]:
    """A subclass whose forward is a nested region; most: programs of it, where torch would raise at more than eight."""

    def forward(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return kind.forward(self, *args, **kwargs)

    mark: Any = torch.compiler.nested_compile_region
    body = {
        "forward": mark(forward, max_reuse_entries=most),
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
    }
    metaclass: Any = type(kind)
    return metaclass(kind.__name__, (kind,), body)  # type: ignore[no-any-return]
