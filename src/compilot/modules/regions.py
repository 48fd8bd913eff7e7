"""Regions of a model: which submodules a selector names.

In: a model and selectors. Out: paths of submodules in the model's order. A selector is a path ("encoder.layer.3"), a
pattern in which each part may have `*`, `?` and `[...]` ("encoder.layer.*": a `*` never crosses a dot), the structure
of a repeated block ("block:" and at least eight digits of its digest), or several of these with commas in between.
Regions never overlap and never lie in each other. Covered: submodules that a model has under two names (the first one
counts), selectors that fit nothing, lists, which nobody calls. Not covered: how regions are run (runtime/regions.py).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import nn

from compilot.errors import InputError
from compilot.modules.likeness import structure_digest
from compilot.modules.selectors import BLOCK
from compilot.records import Region

MIN_DIGITS = 8  # of a digest: two blocks of one model share as many by chance once in four billion times
_DIGEST = re.compile(rf"[0-9a-f]{{{MIN_DIGITS},64}}")
_PATH = re.compile(r"[^\s,:]+")


class Place(NamedTuple):
    """One submodule of a region."""

    region: int  # number of the region in the candidate
    path: str
    module: nn.Module


def selected(model: nn.Module, selector: str) -> tuple[str, ...]:
    """The paths that a selector names, in the model's order; InputError where it names none."""
    parts = [part.strip() for part in selector.split(",")]
    found = {path for part in parts for path in _one(model, part)}
    return tuple(path for path, _ in model.named_modules() if path in found)


def placed(model: nn.Module, regions: Sequence[Region]) -> tuple[Place, ...]:
    """Every submodule of every region; InputError for regions that overlap or lie in each other."""
    rows = [(number, path) for number, region in enumerate(regions) for path in selected(model, region.selector)]
    found = [Place(number, path, model.get_submodule(path)) for number, path in rows]
    for one, other in pairwise(sorted(found, key=lambda place: place.path.split("."))):
        if other.path == one.path or other.path.startswith(f"{one.path}."):
            told = " and ".join(f"'{regions[place.region].selector}'" for place in (one, other))
            raise InputError(f"regions must not overlap: {told} both take {other.path}; leave it to one of them.")
    return tuple(found)


def _one(model: nn.Module, selector: str) -> list[str]:
    if selector.startswith(BLOCK):
        found = _by_structure(model, selector.removeprefix(BLOCK))
    elif _PATH.fullmatch(selector):
        found = _by_pattern(model, selector)
    else:
        raise InputError(f"'{selector}' is no region; give a path such as 'layers.0' or a pattern such as 'layers.*'.")
    if not found:
        raise InputError(f"no submodule of {type(model).__name__} fits the region '{selector}'.")
    for path in found:
        _refuse_uncallable(model.get_submodule(path), path)
    return found


def _by_structure(model: nn.Module, digest: str) -> list[str]:
    if not _DIGEST.fullmatch(digest):
        raise InputError(f"'{BLOCK}{digest}' is no region; a block has at least {MIN_DIGITS} hexadecimal digits.")
    known: dict[int, str] = {}
    rows = [(path, module) for path, module in model.named_modules() if path]
    return [path for path, module in rows if structure_digest(module, known).startswith(digest)]


def _by_pattern(model: nn.Module, pattern: str) -> list[str]:
    """First names only; another name of the same submodule finds its first one."""
    wanted, first = pattern.split("."), {id(module): path for path, module in model.named_modules()}
    rows = [(path, module) for path, module in model.named_modules(remove_duplicate=False) if path]
    return [*dict.fromkeys(first[id(module)] for path, module in rows if _fits(path.split("."), wanted))]


def _fits(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


def _refuse_uncallable(module: nn.Module, path: str) -> None:
    if isinstance(module, torch.jit.ScriptModule):
        raise InputError(f"{path} is compiled by TorchScript already, so it cannot be a region.")
    if type(module).forward is nn.Module.forward and "forward" not in vars(module):
        kind = type(module).__name__
        raise InputError(f"{path} is a {kind}, which is never called itself; name what is in it: '{path}.*'.")
