"""Operators that native code calls by their names, through torch's dispatcher. Checked on torch 2.13.0.

In: the file that AOTInductor leaves beside a library that calls such operators, or the words with which torch refuses
to load the library. Out: names like "mine::roll". An operator of a user's own exists only in processes that imported
the module that registers it. Not covered: whether the registered operator is still the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec
import torch

_REFUSED = re.compile(r"Could not find schema for (\w+::\w+)")


class _Call(msgspec.Struct):
    target: str


class _Node(msgspec.Struct):
    node: _Call


class _Calls(msgspec.Struct):
    nodes: list[_Node]


def named_in(calls: bytes) -> list[str]:
    """The operators in the file beside a library; none where it is not understood, as only people are told."""
    try:
        nodes = msgspec.json.decode(calls, type=_Calls).nodes
    except msgspec.DecodeError:
        return []
    return [one.node.target.partition(".")[0] for one in nodes if "::" in one.node.target]  # without the overload


def unregistered(names: Iterable[str]) -> list[str]:
    """Those that this process does not know, each once."""
    return sorted({name for name in names if not _is_registered(name)})


def _is_registered(name: str) -> bool:
    namespace, _, operator = name.partition("::")
    return hasattr(getattr(torch.ops, namespace), operator)


def missing_in(refusal: str) -> str | None:
    """The operator for whose absence torch refused to load a library."""
    found = _REFUSED.search(refusal)
    return found[1] if found else None
