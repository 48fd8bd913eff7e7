"""What stands around a model that runs in another layout or precision: inputs converted, outputs turned back.

In: settings, a guard and the model. Out: the clone to run (the user's own model where nothing is to be changed) and
the two conversions, which are part of the measured and shipped arm. Covered: channels-last, bf16 and fp16, both
together. Casting a clone is used rather than autocast: autocast would convert the weights again at every call, and
keep them in memory at full width. Not covered: what the model makes in a dtype of its own inside; where that does not
fit, the first call fails and the candidate is infeasible.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from compilot._tree import Call, leaves, map_call, rebuild
from compilot.engines.layout import converter, plain_layout
from compilot.engines.protocol import Infeasible, LoadRequest
from compilot.modules.clone import cast_clone, channels_last_clone, is_wider
from compilot.records import Guard, MemoryFormat, Precision

DTYPES = {Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}

Ready = Callable[[tuple[Any, ...], dict[str, Any]], Call]


class Converted(NamedTuple):
    """A model to run, and what to do with calls before and with answers after."""

    model: nn.Module
    copied: bool  # the model holds copies of weights: updates of the user's own must invalidate it
    ready: Ready | None = None  # None: calls and answers go through as they are
    finish: Callable[[Any], Any] = lambda output: output

    def around(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """The callable with both conversions around it."""
        ready, finish = self.ready, self.finish
        if ready is None:
            return run

        def call(*args: Any, **kwargs: Any) -> Any:
            converted = ready(args, kwargs)
            return finish(run(*converted.args, **converted.kwargs))

        return call


def converted(request: LoadRequest) -> Converted:
    """The request's model as its settings want it."""
    found = Converted(request.model, copied=False)
    if request.settings.precision is not Precision.AS_IS:
        found = _cast(request, DTYPES.get(request.settings.precision))
    if request.settings.memory_format is MemoryFormat.CHANNELS_LAST:
        found = _laid_out(found, converter(request.guard))
    return found


def _laid_out(inner: Converted, to_channels_last: Ready) -> Converted:
    clone, copied = channels_last_clone(inner.model)
    narrow, finish = inner.ready or Call, inner.finish
    return Converted(
        clone,
        inner.copied or copied,
        lambda args, kwargs: narrow(*to_channels_last(args, kwargs)),
        lambda output: plain_layout(finish(output)),
    )


def _cast(request: LoadRequest, dtype: torch.dtype | None) -> Converted:
    if dtype is None:
        raise Infeasible(f"{request.settings.engine} has no {request.settings.precision} of its own")
    if request.guard.grad_enabled or request.guard.training:
        raise Infeasible("lower precision is for inference: without gradients, not in train mode")
    wide = next((p.dtype for p in request.model.parameters() if is_wider(p, dtype)), None)
    if wide is None:
        raise Infeasible(f"the model has no weights wider than {request.settings.precision}")
    clone, copied = cast_clone(request.model, dtype)
    return Converted(clone, copied, _narrow(request.guard, dtype), lambda output: _widened(output, dtype, wide))


def _narrow(guard: Guard, dtype: torch.dtype) -> Ready:
    wide = {t.path for t in guard.tensors if t.dtype in ("torch.float32", "torch.float64")}

    def ready(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        return map_call(Call(args, kwargs), lambda path, leaf: leaf.to(dtype) if path in wide else leaf)

    return ready


def _widened(output: Any, dtype: torch.dtype, wide: torch.dtype) -> Any:
    """The output with what the narrow model made turned into the model's own dtype."""

    def widen(leaf: Any) -> Any:
        return leaf.to(wide) if isinstance(leaf, torch.Tensor) and leaf.dtype is dtype else leaf

    if isinstance(output, torch.Tensor):
        return widen(output)
    if any(widen(leaf.value) is not leaf.value for leaf in leaves(output, "output")):
        return rebuild(output, lambda path, leaf: widen(leaf), "output")
    return output
