"""Which calls an engine has prepared, for those who stand before it and give it calls of their own making.

In: an engine, calls as it is given them. Out: its answers; what it has to prepare is prepared once for each kind of
call. Used by padded calls and by calls in parts. Not covered: the kinds of calls that users make (variants.py).
"""

from __future__ import annotations

from typing import Any, Protocol

import torch

from compilot._tree import Call, call_leaves
from compilot.engines.protocol import Loaded
from compilot.runtime.variants import MAX_SHAPES


class Standing(Protocol):
    """What stands before an engine and gives it calls of its own making."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    def prepare(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...

    def is_built(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool: ...

    def builds(self) -> int: ...


def standing_before(engine: Loaded, calls: Standing) -> Loaded:
    """The engine behind them. One that has nothing to prepare is always called by its one way in: several threads must
    not get around the lock of an engine that takes one call at a time.
    """
    builds = engine.builds or calls.builds
    if engine.prepare is None:
        return engine._replace(call=calls, builds=builds)
    return engine._replace(call=calls, prepare=calls.prepare, builds=builds, is_built=calls.is_built)


class Prepared:
    """An engine, and the kinds of calls that it knows by now."""

    def __init__(self, engine: Loaded) -> None:
        self._engine = engine
        self._ready: set[tuple[object, ...]] = set()

    def answer(self, call: Call) -> Any:
        """The answer to a call that may be of a new kind; the engine builds only for those."""
        kind, run = _kind(call), self._engine.prepare
        if run is None or kind in self._ready:
            answer = self._engine.call(*call.args, **call.kwargs)
        else:
            answer = run(call.args, call.kwargs)
        if len(self._ready) >= MAX_SHAPES:
            self._ready.clear()
        self._ready.add(kind)
        return answer

    def knows(self, call: Call) -> bool:
        """Whether the engine has nothing to build for this call."""
        return _kind(call) in self._ready

    def builds(self) -> int:
        """Programs, of an engine that does not count them."""
        return len(self._ready)


def _kind(call: Call) -> tuple[object, ...]:
    """What an engine tells programs apart by: the sizes, too, where others than the padded ones vary."""
    tensors = [leaf.value for leaf in call_leaves(call) if isinstance(leaf.value, torch.Tensor)]
    modes = ((tensor.is_inference(), tensor.requires_grad, tensor.shape) for tensor in tensors)
    return torch.is_inference_mode_enabled(), *modes
