"""Blocks that a model repeats, found by structure: what is tuned or compiled for one of them fits all.

In: a model; it is not called. Out: `RepeatedBlock` records, outermost first. Blocks are alike when their class is the
same, and the names, shapes and dtypes of their parameters and buffers, and so on for their submodules. A block has
submodules and a forward of its own: a single layer is none, and neither is a list. Attributes may differ (`layer_idx`),
and the record names those that do. Not covered: code that asks for a block's place by other means.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence

import torch
from torch import nn

from compilot.identity.values import Reader, own_attributes
from compilot.records import RepeatedBlock

MIN_COPIES = 2


def repeated_blocks(model: nn.Module) -> tuple[RepeatedBlock, ...]:
    """Every group of like blocks, outermost first; on one level the one with most parameters first."""
    groups, reader = like_blocks(model), Reader(model)
    blocks = {path for paths in groups for path in paths}
    found = [_record(model, paths, blocks, reader) for paths in groups]
    return tuple(sorted(found, key=lambda one: (one.level, -one.count * one.parameters)))


def like_blocks(model: nn.Module) -> list[tuple[str, ...]]:
    """Paths of the blocks that are alike, group by group, in the model's order."""
    digests: dict[int, str] = {}
    groups: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for path, module in model.named_modules():
        if path and _is_block(module):
            # names of classes are in the digest; the classes themselves are here: two may have one name
            groups[_structure(module, digests), *map(type, module.modules())].append(path)
    return [tuple(paths) for paths in groups.values() if len(paths) >= MIN_COPIES]


def is_within(path: str, block: str) -> bool:
    """True for a block's own path and for everything in it."""
    return path == block or path.startswith(block + ".")


def _is_block(module: nn.Module) -> bool:
    if isinstance(module, torch.jit.ScriptModule):  # compiled already, and all of them are of one class
        return False
    return any(True for _ in module.children()) and type(module).forward is not nn.Module.forward


def _structure(module: nn.Module, digests: dict[int, str]) -> str:
    """SHA-256 of what a module is made of; never of the name of a file or of a Python module."""
    if id(module) not in digests:
        digests[id(module)] = ""  # a module that holds itself ends here
        own = sorted((name, tuple(tensor.shape), str(tensor.dtype)) for name, tensor in _own_tensors(module))
        children = [(name, _structure(child, digests)) for name, child in module.named_children()]
        made_of = (type(module).__qualname__, own, children)
        digests[id(module)] = hashlib.sha256(repr(made_of).encode()).hexdigest()
    return digests[id(module)]


def _own_tensors(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters(recurse=False, remove_duplicate=False)
    yield from module.named_buffers(recurse=False, remove_duplicate=False)


def _record(model: nn.Module, paths: tuple[str, ...], blocks: set[str], reader: Reader) -> RepeatedBlock:
    modules = [model.get_submodule(path) for path in paths]
    return RepeatedBlock(
        class_name=type(modules[0]).__name__,
        paths=paths,
        parameters=sum(parameter.numel() for parameter in modules[0].parameters()),
        structure_sha256=_structure(modules[0], {}),
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
