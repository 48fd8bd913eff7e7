"""One training step: micro-batch by micro-batch, with the user's own model and optimizer.

In: a batch. Out: its detached loss; at the end of a window of `accumulate` batches the parameters have moved. Gradients
are zeroed at the start of a window, clipped at its end. An error leaves the parameters as they were and drops the
window: the next batch starts a new one. Not covered: who runs forward and backward (answering.py), updates.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from compilot.training.answering import Answering
from compilot.training.stats import Counts, StepStats
from compilot.training.updates import Update


class TrainStep:
    """`step(batch)`: forward, loss, backward; at the end of a window clipping and the optimizer."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        run: Answering,
        update: Update,
        *,
        accumulate: int = 1,
        clip_norm: float | None = None,
        label: str = "eager",
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.accumulate = accumulate
        self.clip_norm = clip_norm
        self.label = label  # what it runs, for people
        self._run = run
        self._update = update
        self._position = 0  # in the window: 0 is its first micro-batch
        self._batches = self._steps = 0
        self._optimizer_fallbacks = Counts()

    def __call__(self, batch: Any) -> torch.Tensor:
        """Take one micro-batch; returns its loss, detached and not divided by `accumulate`."""
        if self._position == 0:
            self.zero_grad()
        position, self._position = self._position, 0  # an error drops the window
        loss = self._run(batch)
        self._batches += 1
        if position + 1 == self.accumulate:
            self.clip_and_step()
        else:
            self._position = position + 1
        return loss

    def __repr__(self) -> str:
        """What it runs and how it went."""
        return f"TrainStep({self.label}: {self._steps} steps, {self._run.fallbacks.total} batches by eager)"

    @property
    def at_window_start(self) -> bool:
        """Whether the next batch is the first of a window: only then a checkpoint has everything."""
        return self._position == 0

    def restart_window(self) -> None:
        """Forget the micro-batches since the last update: the next batch starts a new window."""
        self._position = 0

    def zero_grad(self) -> None:
        """No gradients, as after `optimizer.zero_grad(set_to_none=True)`; also of what is in no group."""
        for parameter in self._parameters():
            parameter.grad = None

    def stats(self) -> StepStats:
        """How the batches so far went."""
        run = self._run
        return StepStats(
            batches=self._batches,
            steps=self._steps,
            fast=run.fast,
            fallbacks=dict(run.fallbacks.by_reason),
            optimizer_fallbacks=dict(self._optimizer_fallbacks.by_reason),
            compiles=run.compiles + getattr(self._update, "compiles", 0),
            recompiles=run.recompiles + getattr(self._update, "recompiles", 0),
        )

    def update(self) -> bool:
        """End a window that has begun: clip its gradients, and step the optimizer. False: none has, nothing is done.

        For the last batches of an epoch, where fewer than `accumulate` are left (`at_window_start` is false then). Each
        loss was divided by `accumulate`, so a window of fewer batches takes a smaller step. Gradients of an earlier
        window, or of one that an error has dropped, move nothing.
        """
        if self.at_window_start:
            return False
        self.clip_and_step()
        return True

    def clip_and_step(self) -> None:
        """Clip the gradients that are there, whoever made them, and step the optimizer; a loop calls `update`."""
        self._position = 0
        if self.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_norm)
        reason = self._update()
        self._steps += 1
        if reason is not None:
            self._optimizer_fallbacks.add(reason)

    def _parameters(self) -> Iterator[torch.Tensor]:
        yield from self.model.parameters()
        for group in self.optimizer.param_groups:
            yield from group["params"]
