"""A request: what a program does for one item, with a call of the model in the middle.

In: the user's `request(call, item)` and its items. Out: `Item`, which stands for one in the place of a call's inputs;
the items that are timed and judged; the calls of the model that they make. A request prepares one item, calls the model
through `call(*args, **kwargs)` and returns the answer. It must give the same answer for the same item.
Covered: items in a list or made from a seed, several calls of the model in one request. Not covered: doing the work
and timing it (unit.py), requests that call the model from several threads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch

from compilot._tree import Call
from compilot.errors import InputError
from compilot.workload.copying import copy_call

Request = Callable[[Callable[..., Any], Any], Any]
Items = Sequence[Any] | Callable[[int], Any]

TIMED = 4  # items made from seeds
JUDGED = 8  # items of a list; each costs a case
_SHAPE = "def request(call, item): return call(prepare(item)).argmax(-1)"


@dataclasses.dataclass(frozen=True)
class Item:
    """One item of a request, in the place of the model's inputs."""

    value: Any


def is_item(call: Call) -> bool:
    """Whether a call stands for a request."""
    return len(call.args) == 1 and isinstance(call.args[0], Item)


def check_request(request: Any, items: Any) -> tuple[Request | None, Items | None]:
    """What the user gave; InputError where one comes without the other."""
    if request is None and items is None:
        return None, None
    if not callable(request):
        raise InputError(f"request must be a function of `call` and an item, such as {_SHAPE}.")
    if callable(items):
        return request, items
    if not isinstance(items, list | tuple) or not items:
        raise InputError("a request needs items: a list of at least one, or a function of a seed that returns one.")
    return request, tuple(items)


def timed_items(items: Items, seed: int) -> tuple[Any, ...]:
    """What the clock sees: the whole list, or a few made from seeds."""
    return tuple(items(seed + number) for number in range(TIMED)) if callable(items) else tuple(items)


def judged_items(items: Items, seed: int) -> tuple[Any, ...]:
    """What answers are judged by; those made from seeds are others than the timed ones."""
    if callable(items):
        return tuple(items(seed + TIMED + number) for number in range(TIMED))
    return tuple(items[:JUDGED])


def calls_of(request: Request, items: Sequence[Any], model: Callable[..., Any], *, grad: bool) -> list[Call]:
    """The first call of the model that each request makes, from running it in eager."""
    found = []
    for item in items[:JUDGED]:
        made: list[Call] = []

        def call(*args: Any, made: list[Call] = made, **kwargs: Any) -> Any:
            if not made:
                made.append(copy_call(Call(args, kwargs)))
            return model(*args, **kwargs)

        with torch.set_grad_enabled(grad):
            request(call, item)
        if not made:
            raise InputError(f"the request never calls the model; call it through its first argument: {_SHAPE}.")
        found.append(made[0])
    return found
