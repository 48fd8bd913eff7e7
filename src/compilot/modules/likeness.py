"""When two modules are alike: the same class, the same tensors by name, shape and dtype, and so on for submodules.

In: a module. Out: a digest of what it is made of, and a key that two modules of one process share when they are alike;
of modules that are alike, the integers in which they are not equal (`layer_idx`); of a model, its blocks that are
alike: those with submodules and a forward of their own. Never in it: values of weights, names
of files or of Python modules. Not covered: other attributes that differ; whoever compiles one for all must look.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence

import torch
from torch import nn

MIN_COPIES = 2


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


def like_blocks(model: nn.Module) -> list[tuple[str, ...]]:
    """Paths of the blocks that are alike, group by group, in the model's order."""
    digests: dict[int, str] = {}
    groups: dict[Hashable, list[str]] = defaultdict(list)
    for path, module in model.named_modules():
        if path and _is_block(module):
            groups[likeness(module, digests)].append(path)
    return [tuple(paths) for paths in groups.values() if len(paths) >= MIN_COPIES]


def outermost_blocks(model: nn.Module, at_least: int) -> list[nn.Module]:
    """The blocks that a model has so often, without those inside of one."""
    found = {path for paths in like_blocks(model) if len(paths) >= at_least for path in paths}
    inner = {path for path in found if any(path.startswith(f"{outer}.") for outer in found)}
    return [module for path, module in model.named_modules() if path in found - inner]


def _is_block(module: nn.Module) -> bool:
    if isinstance(module, torch.jit.ScriptModule):  # compiled already, and all of them are of one class
        return False
    return any(True for _ in module.children()) and type(module).forward is not nn.Module.forward


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
