"""`compilot.record`: the model, called as before, and the sizes of its calls in a file.

In: a model (also one that `compile` or `load` returned) and a path. Out: an object of a subclass of the model's class
over the model's own attributes: everything but calls acts on the model itself. Every call is counted, before the model
answers, so that one on which it raises counts, too; `forward`, called by itself, is not. Sizes only: never values,
never strings. Names that shadow the model's own: `close`, and `with`. Not covered: counting (size_counts.py).
"""

from __future__ import annotations

import copy
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self, cast

from torch import nn

from compilot.errors import InputError
from compilot.identity.model import parameters_sha256
from compilot.inputs.naming import code_words
from compilot.modules.clone import alias, has_weights
from compilot.records import TRACE_SCHEMA, TraceHeader
from compilot.runtime.codegen import compile_call
from compilot.runtime.size_counts import SizeCounts, closed_with

_SOURCE = """
def __call__(_self, /, *args, **kwargs):
    try:
        _forms[_len(args), *kwargs](args, kwargs)
    except _Exception:
        _slow(args, kwargs)
    return _call(*args, **kwargs)
"""
_CLOSED = "def __call__(_self, /, *args, **kwargs):\n    return _call(*args, **kwargs)\n"


class Recorded(nn.Module):
    """Base of every recorded model; each one has its own subclass of the model's class."""

    _compilot_counts: ClassVar[SizeCounts]
    _compilot_recorded: ClassVar[nn.Module]

    def close(self) -> None:
        """Write what is left and stop counting; calls go on, and cost nothing more."""
        kind = type(self)
        type.__setattr__(kind, "__call__", compile_call(_CLOSED, {"_call": kind._compilot_recorded}))
        kind._compilot_counts.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A copy is the model's own, and is not recorded."""
        return copy.deepcopy(self._compilot_recorded, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _same, (self._compilot_recorded,)


def _same(model: nn.Module) -> nn.Module:
    """What a pickle of a recorded model is made with: it is the model's own."""
    return model


def record(model: nn.Module, path: str | os.PathLike[str]) -> Recorded:
    """The model, called as before; the sizes of its tensor inputs are counted in the file at path (mode 0600).

    The file is brought up to date every 10 seconds, at `close()` and at the end of the process; a trace of the same
    model that is there already is continued. It holds sizes, never values or strings: at most 4,096 different ones and
    1 MiB; more of them are rounded up to powers of two. A call costs about a microsecond more. "{pid}" in the file's
    name becomes the process id: give each process a file of its own, and merge them with `merge_traces`. A forked child
    has its own in any case. Look at it with `read_trace`.
    """
    return recorded(model, path)


def recorded(model: nn.Module, path: str | os.PathLike[str], *, inplace: bool = False) -> Recorded:
    """As `record`. inplace: the model's own class is exchanged, as `compile` does it."""
    refuse_recorded(model)
    plain = alias(model, type(model)) if inplace else model
    header = TraceHeader(schema=TRACE_SCHEMA, model=_label(model), parameters_sha256=_identity(model))
    counts = SizeCounts(Path(path).absolute(), header, _named(model), code_words(_inner(model).forward))
    hot = {"_forms": counts.forms, "_slow": counts.slow, "_call": plain, "_len": len, "_Exception": Exception}
    kind = _recorded_class(type(model), compile_call(_SOURCE, hot), counts, plain, inplace)
    closed_with(kind, counts)
    if inplace:
        object.__setattr__(model, "__class__", kind)
        return cast(Recorded, model)
    return cast(Recorded, alias(model, kind))


def refuse_recorded(model: Any) -> None:
    """InputError for what is no model, or is recorded already."""
    if not isinstance(model, nn.Module):
        raise InputError(f"the model is of type {type(model).__name__}, not an nn.Module; pass an nn.Module.")
    if isinstance(model, Recorded):
        raise InputError("this model is recorded already; pass the original model.")


def _recorded_class(
    kind: type[nn.Module], call: Callable[..., Any], counts: SizeCounts, plain: nn.Module, inplace: bool
) -> type[nn.Module]:
    name, qualified = (kind.__name__, kind.__qualname__) if inplace else (f"Recorded{kind.__name__}",) * 2
    body = {
        "__call__": call,
        "__module__": kind.__module__,
        "__qualname__": qualified,
        "__doc__": kind.__doc__,
        "_compilot_counts": counts,
        "_compilot_recorded": plain,
    }
    metaclass: Any = type(kind)
    return cast(type[nn.Module], metaclass(name, (Recorded, kind), body))


def _inner(model: nn.Module) -> nn.Module:
    """The user's own model, where torch.compile wrapped it."""
    inner = getattr(model, "_orig_mod", model)
    return inner if isinstance(inner, nn.Module) else model


def _label(model: nn.Module) -> str:
    """The name of the user's class: of a model that `compile` made fast, the one below it."""
    return type(getattr(model, "_compilot_plain", _inner(model))).__name__


def _identity(model: nn.Module) -> str:
    inner = _inner(model)
    return parameters_sha256(inner) if has_weights(inner) else ""


def _named(model: nn.Module) -> Callable[..., Any]:
    """A function with the signature of the model's forward, which holds nothing of the model."""

    def named() -> None: ...

    try:
        named.__signature__ = inspect.signature(_inner(model).forward)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        named.__signature__ = inspect.Signature()  # type: ignore[attr-defined]
    return named
