"""When two modules are alike: the same class, the same tensors by name, shape and dtype, and so on for submodules.

In: a module. Out: a digest of what it is made of, and a key that two modules of one process share when they are alike;
of modules that are alike, the integers in which they are not equal (`layer_idx`). Never in it: values of weights, names
of files or of Python modules. Not covered: other attributes that differ; whoever compiles one for all must look.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator, Sequence

import torch
from torch import nn


def structure_digest(module: nn.Module, known: dict[int, str] | None = None) -> str:
    """SHA-256 of what a module is made of; known: digests by id of the module, kept from call to call."""
    known = {} if known is None else known
    if id(module) not in known:
        known[id(module)] = ""  # a module that holds itself ends here
        own = sorted((name, tuple(tensor.shape), str(tensor.dtype)) for name, tensor in _own_tensors(module))
        children = [(name, structure_digest(child, known)) for name, child in module.named_children()]
        made_of = (type(module).__qualname__, own, children)
        known[id(module)] = hashlib.sha256(repr(made_of).encode()).hexdigest()
    return known[id(module)]


def likeness(module: nn.Module, known: dict[int, str] | None = None) -> tuple[Hashable, ...]:
    """What alike modules have in common: names of classes are in the digest, but two classes may have one name."""
    return structure_digest(module, known), *map(type, module.modules())


def differing_integers(modules: Sequence[nn.Module]) -> tuple[str, ...]:
    """Names of the integer attributes, of the modules or of their submodules, that are not equal in all of them."""
    held = [dict(_integers(module)) for module in modules]
    places = dict.fromkeys(place for one in held for place in one)
    differing = (place for place in places if len({one.get(place) for one in held}) > 1)
    return tuple(dict.fromkeys(place.rpartition(".")[2] for place in differing))


def _integers(module: nn.Module) -> Iterator[tuple[str, int]]:
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            if type(value) is int:
                yield f"{path}.{name}", value


def _own_tensors(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters(recurse=False, remove_duplicate=False)
    yield from module.named_buffers(recurse=False, remove_duplicate=False)
