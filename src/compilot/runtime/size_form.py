"""Sizes of one form of call as one key, as source code. In: the nodes of a call. Out: code that counts such calls.

A form is the number of positional arguments, the keywords, the containers with their keys or lengths, and where the
tensors are. The generated `tick(args, kwargs)` takes one step of the counter of exactly these sizes; everything that
the form rests on is part of the key, so that a call of another kind finds no counter and raises. `key` gives the key.
Not covered: paths that are no Python literals (such calls have no form), nested tensors (they have no shape).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from compilot._tree import is_tensor
from compilot.errors import PlanError
from compilot.inputs.paths import parse
from compilot.runtime.notices import HOT_PATH

Node = tuple[str, Any, bool]  # path, value, whether it is a leaf
Ticks = dict[Any, "itertools.count[int]"]


class Form(NamedTuple):
    """Calls of one kind."""

    signature: tuple[Any, ...]
    tick: Callable[[tuple[Any, ...], dict[str, Any]], None]  # raises for sizes without a counter
    key: Callable[[tuple[Any, ...], dict[str, Any]], Any]


def has_sizes(value: Any) -> bool:
    """A tensor whose sizes are plain numbers: not a nested one, and not while somebody traces the model."""
    return is_tensor(value) and not getattr(value, "is_nested", False) and all(type(n) is int for n in value.shape)


def signature_of(nodes: Sequence[Node]) -> tuple[Any, ...]:
    """What two calls of the same form share."""
    return tuple((path, has_sizes(value) or type(value)) for path, value, _ in nodes)


def form_of(nodes: Sequence[Node], ticks: Ticks, number: int) -> Form | None:
    """The form of a call; None where it cannot be written as code. number: sets it apart from other forms."""
    try:
        parts = ", ".join([str(number), *(part for node in nodes for part in _parts(*node))])
    except PlanError:
        return None
    source = (
        f"def tick(args, kwargs):\n    for _ in _ticks[{parts}]: break\ndef key(args, kwargs):\n    return ({parts},)\n"
    )
    namespace: dict[str, Any] = {"_ticks": ticks, "_len": len}
    exec(compile(source, HOT_PATH, "exec"), namespace)
    return Form(signature_of(nodes), namespace["tick"], namespace["key"])


def _parts(path: str, value: Any, is_leaf: bool) -> Iterator[str]:
    root = parse(path).root
    where = parse(path).code({root: f"args[{root}]" if isinstance(root, int) else f"kwargs[{root!r}]"})
    if is_leaf and has_sizes(value):
        yield f"{where}.shape"
        return
    yield f"{where}.__class__"
    if isinstance(value, Mapping):
        yield f"(*{where},)"
    elif not is_leaf and not dataclasses.is_dataclass(value):
        yield f"_len({where})"
