"""torch.compile's guards without those of the model itself, which somebody else watches. Checked on torch 2.13.0.

In: the module that is compiled. Out: a guard filter, and a context for the calls that may compile. Dropped: whatever is
reached through the module (attributes, submodules, classes, hooks), and torch's own modules. Kept: everything about the
inputs, sizes (SHAPE_ENV), the state of torch, globals of the user; and, unless weights are baked in, the shape and
dtype of each weight, since compiled code reads its memory unchecked: `model.double()` keeps every parameter object.
Sound only where one frame is compiled, that of the module's own forward, for which the module is always the same: the
frame of a method that several modules share would take one for the other. So whatever stops the trace is an error, and
so is a second frame (a hook's). What torch compiles at any other time has all of its guards.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import nn

_TORCHS = ("G['__import_torch", "G['__builtins_dict__")
_WEIGHTS = ("TENSOR_MATCH", "DUPLICATE_INPUT")


class NotOneGraph(Exception):
    """torch.compile made several programs of the call, or would have to."""


class LightGuards:
    """A filter for `torch.compile(options={"guard_filter_fn": ...})`."""

    def __init__(self, model: nn.Module, *, weights_too: bool) -> None:
        """weights_too: nothing of the weights is guarded either; they are constants of the program."""
        self._model = model
        self._kept = () if weights_too else _WEIGHTS
        self._thread: int | None = None  # that may compile with light guards now
        self._frames = 0  # compiled in it

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """What is compiled meanwhile in this thread has light guards; NotOneGraph where it is not one program."""
        from torch._dynamo import error_on_graph_break
        from torch._dynamo.exc import Unsupported

        self._thread, self._frames = threading.get_ident(), 0
        try:
            with error_on_graph_break(True):
                yield
        except Unsupported as error:
            raise NotOneGraph(str(error).partition("\n")[0]) from None  # its cause would be told instead
        finally:
            self._thread = None
        if self._frames > 1:
            raise NotOneGraph(f"torch.compile made {self._frames} programs of one call")

    def __call__(self, entries: Sequence[Any]) -> list[bool]:
        """Which of a frame's guards stay."""
        if threading.get_ident() != self._thread:
            return [True] * len(entries)
        self._frames += 1
        names = [entry.name for entry in entries if entry.has_value and entry.value is self._model]
        return [self._stays(entry, names) for entry in entries]

    def _stays(self, entry: Any, names: Sequence[str]) -> bool:
        if entry.name.startswith(_TORCHS):
            return False
        inside = any(entry.name == name or entry.name.startswith((f"{name}.", f"{name}[")) for name in names)
        return not inside or entry.guard_type in self._kept
