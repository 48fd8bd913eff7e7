"""The layers of a model by name, so that a changed one can be named: fingerprints only have digests of them.

In: a live model. Out: path -> "Linear(in_features=3, out_features=4, bias=True)" of every submodule without submodules
or with parameters of its own, some at most; later what differs between two such lists. Covered: modules of torch with
their own words for themselves; of other classes the name and the shapes of their parameters. Needs no torch itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

MOST_LAYERS = 512  # about 30 KB of a journal
MOST_CHARACTERS = 160  # of one layer
MAX_TOLD = 5  # changed layers that are named; the rest is counted


def layers_of(model: nn.Module) -> dict[str, str]:
    """The layers in the model's order; the model's own parameters have the path ""."""
    found: dict[str, str] = {}
    for path, module in model.named_modules():
        own = dict(module.named_parameters(recurse=False))
        if own or next(module.children(), None) is None:
            found[path] = _described(module, own)[:MOST_CHARACTERS]
        if len(found) == MOST_LAYERS:
            break
    return found


def changed_layers(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """What differs, as sentences without an end; nothing where one of the two was not recorded."""
    if not old or not new:
        return []
    found = list(_changed(old, new))
    more = [f"{len(found) - MAX_TOLD} more layers changed"] if len(found) > MAX_TOLD else []
    return [*found[:MAX_TOLD], *more]


def _changed(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    for path in old:
        if path in new and old[path] != new[path]:
            yield f"layer '{path}': {old[path]} -> {new[path]}"
    for words, there, elsewhere in (("is new", new, old), ("is gone", old, new)):
        if len(elsewhere) < MOST_LAYERS:  # a list that was cut says nothing of what it does not have
            yield from (f"layer '{path}' ({there[path]}) {words}" for path in there if path not in elsewhere)


def _described(module: nn.Module, own: Mapping[str, nn.Parameter]) -> str:
    kind, words = type(module), ""
    with contextlib.suppress(Exception):  # a parameter without a shape yet, words that cannot be made
        if kind.__module__.startswith("torch."):
            words = module.extra_repr()  # what others write here may be anything
        else:
            words = ", ".join(f"{name} {tuple(parameter.shape)}" for name, parameter in own.items())
    return f"{kind.__name__}({words})"
