"""strict_weights=True: every weight, buffer and attribute tensor is looked at in every call.

In: a watch over a model's weights. Out: a condition as code of the hot path and the names it needs. Seen before the
next answer: whatever raises a tensor's version (every write but those through .data and numpy), memory that moved
(.to, set_, `.data = `), another tensor in its place. Cost: about 0.15 microseconds per tensor and call (2 for 10
tensors, 10 for 60, 46 for 300). Not covered: tensors without a version (those made in inference mode): refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from operator import attrgetter, methodcaller
from typing import Any

import torch
from torch import nn

from compilot._torch import dicts
from compilot.errors import InputError
from compilot.modules.contents import own_attributes, tensors_in
from compilot.runtime.weight_watch import WeightWatch

CONDITION = """(*_map(_version_of, _versioned),) == _versions
            and (*_map(_address_of, _addressed),) == _addresses
            and _owned() == _owned_before"""
_VALUES = methodcaller("values")


def refuse_unversioned(watch: WeightWatch) -> None:
    """InputError where a weight has no version that could be compared."""
    if watch.without_version:
        shape = "x".join(map(str, watch.without_version[0].shape))
        text = f"a weight of shape {shape} was made in inference mode, so writes to it leave no trace"
        raise InputError(f"strict_weights=True cannot be used: {text}. Build the model outside of inference mode.")


def names(watch: WeightWatch) -> dict[str, Any]:
    """What the condition compares with: the weights as the watch found them."""
    owned = owned_by(watch)
    return {
        "_map": map,
        "_version_of": attrgetter("_version"),
        "_address_of": torch.Tensor.data_ptr,
        "_versioned": (*watch.tensors, *watch.without_memory),
        "_versions": watch.versions,
        "_addressed": tuple(watch.tensors),
        "_addresses": watch.addresses,
        "_owned": owned,
        "_owned_before": owned(),
    }


def owned_by(watch: WeightWatch) -> Callable[[], list[int]]:
    """A number for each dict that holds weights, another one after a write; where there is none, what is in them."""
    holders = [*watch.code.owners, *map(vars, filter(_holds_tensors, watch.code.modules))]
    return dicts.writes(holders) or (lambda: [*map(id, itertools.chain.from_iterable(map(_VALUES, holders)))])


def _holds_tensors(module: nn.Module) -> bool:
    return any(next(tensors_in(value), None) is not None for value in own_attributes(module).values())
