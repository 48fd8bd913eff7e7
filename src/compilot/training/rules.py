"""What a user may say of a training step: micro-batches, clipping, autocast.

In: the values as they were given, to `compilot.Training` or to `train_step`. Out: the same as records hold them;
InputError in one sentence for what makes no sense. Not covered: what a plan has instead (apply.py).
"""

from __future__ import annotations

from typing import Any

import torch

from compilot.errors import InputError
from compilot.records import Precision

_PRECISIONS: dict[Any, Precision] = {
    None: Precision.AS_IS,
    Precision.AS_IS: Precision.AS_IS,
    torch.bfloat16: Precision.BF16,
    "bfloat16": Precision.BF16,
    Precision.BF16: Precision.BF16,
}
_HALF = (torch.float16, "float16", "half", Precision.FP16)


def checked_accumulate(value: Any) -> int:
    """Micro-batches of a step."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"accumulate={value!r} makes no sense: a step has at least 1 micro-batch.")
    return value


def checked_clip_norm(value: Any) -> float | None:
    """The largest norm of a step's gradients; None: they are not clipped."""
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        raise InputError(f"clip_norm={value!r} makes no sense: give a number above 0, or None for no clipping.")
    return float(value)


def precision_of(wanted: Any) -> Precision:
    """The precision that a loop runs its loss in, from a dtype or its name."""
    refuse_half(wanted)
    found = _PRECISIONS.get(wanted) if getattr(wanted, "__hash__", None) is not None else None
    if found is None:
        raise InputError(f"autocast={wanted} is not known; give torch.bfloat16 ('bf16'), or None for no autocast.")
    return found


def refuse_half(wanted: Any) -> None:
    """InputError for autocast to float16: its small gradients become zero unless the loss is scaled."""
    if isinstance(wanted, str | torch.dtype) and wanted in _HALF:
        raise InputError(
            "autocast to float16 needs loss scaling (GradScaler), which a training step does not do; use "
            "torch.bfloat16, or keep your own loop and use compilot.compile(model, plan, inplace=True) for the model."
        )
