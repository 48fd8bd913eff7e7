"""What a function that is given beside a model does, such as the loss of a training.

In: the function, and the model it is for. Out: a digest of its code and of all code and values that it reaches, the
same in every process; its name, its file and the model's own weights are no part of it. Not covered: what nobody can
read (uncovered.py), versions of libraries (a machine's and a model's fingerprint have them).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from compilot.identity.tokens import digest, joined, text
from compilot.identity.values import Reader


def function_sha256(function: Callable[..., Any], model: nn.Module) -> str:
    """The identity of a function; the model's own modules and tensors count by their names in it."""
    reader = Reader(model)
    token = reader.part(None, "", "the function", function)
    reader.units.settle()
    units = [*reader.units.contents.items()]
    own = f"{getattr(function, '__qualname__', '')}".rpartition("<locals>.")[2]
    named = {label: text("" if label == own else label) for label, _ in units}
    contents = [joined("unit", [named[label], content]) for label, content in units]
    return digest([*([] if own in named else [token]), *sorted(contents)])
