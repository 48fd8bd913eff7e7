"""Names of tensors in a trace: they hold no string that a program was given. In: a call. Out: a name for each tensor.

A name is made of words from the model's code: parameters of its forward, keywords, fields of dataclasses and named
tuples, strings that stand in forward itself (`batch["image"]`). Any other key of a dict may be somebody's data: its
position in the dict stands for it, as for an item of a list. Needs no torch. Not covered: sizes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import CodeType
from typing import Any

from compilot._tree import Call, children, parameter_names


def code_words(forward: Callable[..., Any]) -> frozenset[str]:
    """Words that stand in the code of a forward: its parameters, and strings that could be names."""
    code = getattr(inspect.unwrap(forward), "__code__", None)
    strings = _strings(code) if isinstance(code, CodeType) else ()
    return parameter_words(forward) | {text for text in strings if text.isidentifier()}


def parameter_words(forward: Callable[..., Any]) -> frozenset[str]:
    """The parameters of a forward; none where Python cannot tell them."""
    try:
        return frozenset(inspect.signature(forward).parameters)
    except (TypeError, ValueError):
        return frozenset()


def root_names(forward: Callable[..., Any], call: Call) -> dict[str, str]:
    """Root path of each argument -> its name; a keyword that is no Python name becomes a position, too."""
    names = parameter_names(forward, call)
    odd = {f"kwargs[{key!r}]": f"kwargs.{at}" for at, key in enumerate(call.kwargs) if not key.isidentifier()}
    return {**names, **odd}


def named_leaves(call: Call, roots: Mapping[str, str], words: frozenset[str]) -> Iterator[tuple[str, str, str, Any]]:
    """Every leaf of a call as (path of its argument, path, name, value). words: keys of dicts that may be written."""
    arguments = [(f"args[{at}]", value) for at, value in enumerate(call.args)]
    for root, value in [*arguments, *((f"kwargs[{key!r}]", value) for key, value in call.kwargs.items())]:
        for path, name, leaf in _below(value, root, roots[root], words):
            yield root, path, name, leaf


def _below(value: Any, path: str, name: str, words: frozenset[str]) -> Iterator[tuple[str, str, Any]]:
    parts = children(value)
    if parts is None:
        yield path, name, value
    for at, (suffix, part) in enumerate(parts or ()):
        yield from _below(part, path + suffix, f"{name}.{_step(at, suffix, words)}", words)


def _step(at: int, suffix: str, words: frozenset[str]) -> str:
    if suffix.startswith("."):
        return suffix[1:]
    word = suffix[2:-2]
    return word if word in words and suffix == f"['{word}']" else str(at)


def _strings(code: CodeType) -> Iterator[str]:
    for value in code.co_consts:
        if isinstance(value, str):
            yield value
        elif isinstance(value, tuple):
            yield from (one for one in value if isinstance(one, str))
        elif isinstance(value, CodeType):
            yield from _strings(value)
