"""Operators and graphs of torch as values that a model holds.

In: a class or an object. Out: whether it is torch's own machinery, which says nothing beyond its name, and the user's
function behind a custom operator.
"""

from __future__ import annotations

import types
from typing import Any


def is_operator(kind: type) -> bool:
    """True for torch.ops' own objects, which have a name in every process: "aten.relu.default"."""
    return kind.__module__ == "torch._ops"


def is_machinery(kind: type) -> bool:
    """True for what torch keeps for itself: a graph whose code is known, a handle to where operators are registered."""
    return kind.__module__.startswith(("torch.fx.", "torch.library"))


def custom_function(value: Any) -> types.FunctionType | None:
    """The user's function behind an operator made with torch.library.custom_op; None: torch keeps it elsewhere."""
    found = vars(value).get("_init_fn")
    return found if isinstance(found, types.FunctionType) else None


def is_custom(kind: type) -> bool:
    """True for operators made with torch.library.custom_op."""
    return kind.__module__ == "torch._library.custom_ops"
