"""A captured graph as text. In: a graph. Out: one line for each operator, under the submodule that it belongs to.

    # layers.0
    linear: float32[8, 16] = linear(x, layers.0.weight, layers.0.bias)

Bounded, since a report is a page to read: long graphs say how many lines are left out. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx

MOST_LINES = 400  # of one graph
MOST_LETTERS = 160  # of one line
_CALLS = ("call_function", "call_method", "call_module")
_OWNED = re.compile(r"_(?:modules|parameters|buffers)_")
_OWNER = re.compile(r"_?(?:modules_(.+?)(?=_modules_|_parameters_|_buffers_)|(?:parameters|buffers)_)")


def listing(graph: fx.Graph, module_of: Callable[[fx.Node], str]) -> str:
    """The text; module_of: the path of the submodule that an operator belongs to."""
    lines = [_clipped(line) for line in _lines(graph, module_of)]
    more = len(lines) - MOST_LINES
    return "\n".join(lines if more <= 0 else [*lines[:MOST_LINES], f"... {more} more lines"])


def _lines(graph: fx.Graph, module_of: Callable[[fx.Node], str]) -> Iterator[str]:
    owner = None
    for node in graph.nodes:
        if node.op == "output":
            yield f"return {', '.join(_words(one) for one in node.args[0])}"
        if node.op not in _CALLS:
            continue
        if (path := module_of(node)) != owner:
            owner = path
            yield f"# {path or 'model'}"
        values = [*map(_words, node.args), *(f"{name}={_words(value)}" for name, value in node.kwargs.items())]
        yield f"{node.name}{_kind(node)} = {_called(node)}({', '.join(values)})"


def _called(node: fx.Node) -> str:
    """The operator as a user writes it."""
    if isinstance(node.target, str):
        return f".{node.target}" if node.op == "call_method" else node.target
    return str(getattr(node.target, "__name__", node.target))


def _kind(node: fx.Node) -> str:
    """ ": float32[8, 16]"; "" for what is no tensor."""
    value = node.meta.get("example_value")
    if not isinstance(value, torch.Tensor):
        return ""
    return f": {str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"


def _words(value: Any) -> str:
    if isinstance(value, fx.Node):
        return _input(value.name) if value.op in ("placeholder", "get_attr") else value.name
    if isinstance(value, tuple | list):
        inside = ", ".join(map(_words, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    return str(value).removeprefix("torch.") if isinstance(value, torch.dtype) else repr(value)


def _input(name: str) -> str:
    """ "l_self_modules_first_parameters_weight_" -> "first.weight", "l_x_" -> "x"."""
    bare = re.sub(r"^[lg]_", "", name.rstrip("_"))
    owned = _OWNED.search(bare)
    return _OWNER.sub(lambda found: f".{found[1] or ''}", bare[owned.start() :]).strip(".") if owned else bare


def _clipped(line: str) -> str:
    return line if len(line) <= MOST_LETTERS else f"{line[: MOST_LETTERS - 3]}..."
