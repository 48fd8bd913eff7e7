"""The model's own forward and class, compared before every answer.

In: the plain model, when its code was read. Out: a condition as code of the hot path (50 nanoseconds) and the names it
needs; the same question for the slow path. Seen: `model.forward = ...`, `type(model).forward = ...` or that of a base,
`model.__class__ = ...`. Not covered: all other code of the model, which is looked at each 256 calls (code_watch.py); a
class whose `forward` is made again each time it is asked for, as TorchScript does: that is looked at there, too.
"""

from __future__ import annotations

from typing import Any

from torch import nn

OWN = "_state.get('forward') is _own_forward and _type(_plain) is _Class"
CONDITION = f"{OWN} and _Class.forward is _forward"
_MISSING = object()


def names(plain: nn.Module) -> dict[str, Any]:
    """What the condition compares with: the model as it is now."""
    kind = type(plain)
    return {
        "_plain": plain,
        "_own_forward": vars(plain).get("forward"),
        "_Class": kind,
        "_forward": getattr(kind, "forward", _MISSING),
    }


def condition(plain: nn.Module) -> str:
    """The condition for this model's class."""
    return CONDITION if _is_stable(type(plain)) else OWN


def is_replaced(plain: nn.Module, known: dict[str, Any]) -> bool:
    """Whether the model has another forward or class than the known one."""
    if vars(plain).get("forward") is not known["_own_forward"] or type(plain) is not known["_Class"]:
        return True
    return _is_stable(type(plain)) and type(plain).forward is not known["_forward"]


def _is_stable(kind: type[nn.Module]) -> bool:
    first, second = (getattr(kind, "forward", object()) for _ in range(2))
    return first is second
