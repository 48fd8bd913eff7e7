"""Who listens to gradients, asked before every batch of a step that would leave such hooks out.

In: a model. Out: where a gradient hook is by now, or None. While no hook of any kind was registered in this process,
the answer costs a comparison of two numbers. Not covered: steps that run hooks as eager does (they do not ask).
"""

from __future__ import annotations

from torch import nn

from compilot._torch.hooks import registrations
from compilot._torch.training import gradient_hook


class Listeners:
    """Gradient hooks of one model, also those that come later."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._registered = registrations()  # as many as there were when none of them was ours

    def found(self) -> str | None:
        """Which parameter or module has a gradient hook; None: nobody has."""
        if (now := registrations()) == self._registered:
            return None
        where = gradient_hook(self._model)
        if where is None:
            self._registered = now
        return where
