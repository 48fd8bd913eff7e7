"""What a model holds that no fingerprint can cover.

In: an nn.Module. Out: each such thing with its place, so that somebody can look whether it is still the same object.
Covered: attributes of the modules, and what their code reads (globals, closures, class attributes), at any depth.
"""

from __future__ import annotations

from torch import nn

from compilot.identity.model import read_model
from compilot.identity.values import Uncovered

__all__ = ["Uncovered", "everywhere", "uncovered"]


def uncovered(model: nn.Module) -> tuple[Uncovered, ...]:
    """What is no part of the model's fingerprint, in the order it is met; a thing that is held twice is told once."""
    firsts: dict[int, Uncovered] = {}
    for one in everywhere(model):
        firsts.setdefault(id(one.value), one)
    return tuple(firsts.values())


def everywhere(model: nn.Module) -> tuple[Uncovered, ...]:
    """The same, with every place that holds such a thing."""
    found = read_model(model).reader.uncovered
    return tuple({(id(one.owner), id(one.value), one.key): one for one in found}.values())
