"""A worker's failure as the error it is.

In: a Failed reply. Out: the error class the worker raised, with its sentence.
"""

from __future__ import annotations

from typing import NoReturn

from compilot import errors
from compilot.trials.protocol import Failed


def raise_user_error(reply: Failed) -> NoReturn:
    """Raise the user's error that the worker met; anything else is a problem of the environment."""
    kind = getattr(errors, reply.error, None) if reply.error else None
    if isinstance(kind, type) and issubclass(kind, errors.CompilotError):
        raise kind(reply.reason)
    raise errors.EnvironmentProblem(f"the model cannot be run: {reply.reason}.")
