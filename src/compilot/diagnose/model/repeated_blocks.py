"""Blocks that a model repeats, found by structure: what is tuned or compiled for one of them fits all.

In: a model; it is not called. Out: `RepeatedBlock` records, outermost first. Blocks are alike when their class is the
same, and the names, shapes and dtypes of their parameters and buffers, and so on for their submodules. A block has
submodules and a forward of its own: a single layer is none, and neither is a list. Attributes may differ (`layer_idx`),
and the record names those that do. Not covered: code that asks for a block's place by other means.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import nn

from compilot.identity.values import Reader, own_attributes
from compilot.modules.likeness import like_blocks, structure_digest
from compilot.records import RepeatedBlock


def repeated_blocks(model: nn.Module) -> tuple[RepeatedBlock, ...]:
    """Every group of like blocks, outermost first; on one level the one with most parameters first."""
    groups, reader = like_blocks(model), Reader(model)
    blocks = {path for paths in groups for path in paths}
    found = [_record(model, paths, blocks, reader) for paths in groups]
    return tuple(sorted(found, key=lambda one: (one.level, -one.count * one.parameters)))


def is_within(path: str, block: str) -> bool:
    """True for a block's own path and for everything in it."""
    return path == block or path.startswith(block + ".")


def _record(model: nn.Module, paths: tuple[str, ...], blocks: set[str], reader: Reader) -> RepeatedBlock:
    modules = [model.get_submodule(path) for path in paths]
    return RepeatedBlock(
        class_name=type(modules[0]).__name__,
        paths=paths,
        parameters=sum(parameter.numel() for parameter in modules[0].parameters()),
        structure_sha256=structure_digest(modules[0]),
        level=max(_level(path, blocks) for path in paths),  # so that whatever is in a block comes after it
        differs=_differing(modules, reader),
    )


def _level(path: str, blocks: set[str]) -> int:
    parts = path.split(".")
    return sum(".".join(parts[:end]) in blocks for end in range(1, len(parts)))


def _differing(modules: Sequence[nn.Module], reader: Reader) -> tuple[str, ...]:
    """The attributes in which like blocks are not equal."""
    held = [dict(_attributes(module, reader)) for module in modules]
    names = dict.fromkeys(name for one in held for name in one)
    return tuple(name for name in names if len({one.get(name) for one in held}) > 1)


def _attributes(block: nn.Module, reader: Reader) -> Iterator[tuple[str, bytes]]:
    for path, module in block.named_modules():
        for name, value in own_attributes(module):
            yield f"{path}.{name}".lstrip("."), reader.part(vars(module), name, f".{name}", value)
