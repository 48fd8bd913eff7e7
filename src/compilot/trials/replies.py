"""A worker's failure as the error it is.

In: a reply. Out: the reply that was wanted; of a Failed one the error class that the worker raised, with its sentence.
"""

from __future__ import annotations

from typing import NoReturn, TypeVar

from compilot import errors
from compilot.trials.protocol import Failed, Reply

R = TypeVar("R", bound=Reply)


def answered(reply: R | Failed) -> R:
    """The reply of a step that must work (eager's own); its failure is the user's or the environment's."""
    if isinstance(reply, Failed):
        raise_user_error(reply)
    return reply


def raise_user_error(reply: Failed) -> NoReturn:
    """Raise the user's error that the worker met; anything else is a problem of the environment."""
    kind = getattr(errors, reply.error, None) if reply.error else None
    if isinstance(kind, type) and issubclass(kind, errors.CompilotError):
        raise kind(reply.reason)
    raise errors.EnvironmentProblem(f"the model cannot be run: {reply.reason}.")
