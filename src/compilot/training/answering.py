"""Who runs a micro-batch: the plan's pass, or eager's where it does not fit or does not work.

In: a batch. Out: its loss, gradients added; and the count of how it came about. Batches that the guard does not take,
eval mode, gradient hooks that one graph would leave out, and a pass that cannot be compiled run in eager. While
programs are still being built, what a failing pass has changed (gradients, buffers, random numbers) is put back before
eager runs: no batch counts twice. Once a whole window has gone by without a new program nothing is copied any more: a
later program that cannot be compiled is replaced by eager where nothing has changed yet, and any other error is the
user's to see. Not covered: the update (updates.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from compilot._torch.compiling import graphs_built, import_dynamo, is_compile_error
from compilot._torch.versions import Versions
from compilot._tree import Call
from compilot.engines.protocol import Infeasible
from compilot.errors import InputError, PlanNotUsedWarning, first_cause
from compilot.modules.randomness import RandomState
from compilot.records import Guard
from compilot.runtime.matching import Matcher
from compilot.runtime.model_part import EVAL, kept_code
from compilot.runtime.notices import Recompiles, warn
from compilot.training.listeners import Listeners
from compilot.training.passes import Pass, Work
from compilot.training.stats import Counts

DONATED = "donated buffer"  # in torch's own words where a loss keeps its graph


class Answering:
    """The plan's pass with eager's behind it."""

    def __init__(
        self,
        work: Work,
        make: Callable[[bool], Pass] | None,
        *,
        guard: Guard | None = None,
        artifacts: Path | None = None,
        listeners: Listeners | None = None,
        strict: bool = False,
    ) -> None:
        """make: the plan's pass, told whether buffers may be donated to the backward; None: it is eager's own.

        listeners: gradient hooks that the plan's pass would leave out; None: it runs them.
        """
        self._work = work
        self._make = make
        self._eager = Pass(work)
        self._planned = None if make is None else make(True)
        self._matcher = None if guard is None else Matcher(guard)
        self._artifacts = artifacts
        self._listeners = listeners
        self._strict = strict
        self._versions: Versions | None = None  # since it is steady
        self._kept = False  # buffers are left alone after the backward
        self._quiet = 0  # passes in a row that built no program
        self.dead: str | None = None  # why the plan's pass is not used any more
        self.fast = self.compiles = 0
        self._recompiles = Recompiles()
        self.fallbacks = Counts()
        if make is not None:
            import_dynamo()  # nobody's compile time

    def __call__(self, batch: Any) -> torch.Tensor:
        """The loss of the batch; its gradients are added."""
        if not torch.is_grad_enabled():
            raise InputError("a training step needs gradients; call it outside of torch.no_grad().")
        reason = None if self._planned is None else self.dead or self._against(batch)
        batch = self._work.ready(batch)
        if reason is not None:
            return self._by_eager(batch, reason)
        if self._planned is None:
            loss = self._eager(batch)
            self.fast += 1
            return loss
        return self._steadily(batch) if self.steady else self._first(batch)

    @property
    def recompiles(self) -> int:
        """Programs that were built once it was steady."""
        return self._recompiles.count

    @property
    def steady(self) -> bool:
        """Whether a whole window went by without a new program."""
        return self._quiet >= max(self._work.accumulate, 2)

    def _against(self, batch: Any) -> str | None:
        """Why the plan's pass does not take this batch."""
        if not self._work.model.training:
            return EVAL
        if self._listeners is not None and (where := self._listeners.found()):
            return f"the gradient hook of {where}, which one graph for forward and backward would leave out"
        if self._matcher is None:
            return None
        return self._matcher.mode_mismatch(True) or self._matcher.call_mismatch(Call((batch,), {}))

    def _by_eager(self, batch: Any, reason: str) -> torch.Tensor:
        loss = self._eager(batch)
        self.fallbacks.add(reason)
        return loss

    def _steadily(self, batch: Any) -> torch.Tensor:
        assert self._planned is not None
        versions = self._versions = self._versions or Versions(self._work.model)
        versions.mark()
        before = graphs_built()
        try:
            loss = self._planned(batch)
        except Exception as error:
            if not is_compile_error(error) or not versions.back_unless_changed():
                raise
            return self._failed(batch, error)
        if built := graphs_built() - before:
            self.compiles += built
            self._recompiles.add(built)
        self.fast += 1
        return loss

    def _first(self, batch: Any) -> torch.Tensor:
        """While programs are being built."""
        assert self._planned is not None
        state, before = PassState(self._work.model), graphs_built()
        try:
            with kept_code(self._artifacts):
                loss = self._planned(batch)
        except Exception as error:
            state.put_back()
            if DONATED in str(error) and not self._kept:
                self.compiles += graphs_built() - before
                return self._without_donation(batch)
            return self._failed(batch, error)
        built = graphs_built() - before
        self.compiles += built
        self._quiet = 0 if built else self._quiet + 1
        self.fast += 1
        return loss

    def _without_donation(self, batch: Any) -> torch.Tensor:
        """The loss keeps its graph (retain_graph): other programs, which leave their buffers alone."""
        assert self._make is not None
        self._kept, self._planned = True, self._make(False)
        return self._first(batch)

    def _failed(self, batch: Any, error: Exception) -> torch.Tensor:
        """Eager's answer; where it fails too, the mistake is not the plan's."""
        reason = f"the compiled step failed: {first_cause(error)}"
        if self._strict:
            raise Infeasible(reason) from error
        loss = self._eager(batch)
        self.dead = reason
        warn(f"{reason}; eager trains instead, from the same state.", PlanNotUsedWarning)
        self.fallbacks.add(reason)
        return loss


class PassState:
    """What forward and backward change, saved: gradients, buffers, random numbers."""

    def __init__(self, model: nn.Module) -> None:
        self._random = RandomState.now()
        self._buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
        self._gradients = [
            (parameter, parameter.grad, None if parameter.grad is None else parameter.grad.clone())
            for parameter in model.parameters()
        ]

    def put_back(self) -> None:
        """As it was, in the same tensors."""
        self._random.put_back()
        with torch.no_grad():
            for tensor, values in self._tensors():
                tensor.copy_(values)
            for parameter, gradient, _ in self._gradients:
                parameter.grad = gradient

    def _tensors(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        yield from self._buffers
        yield from ((own, values) for _, own, values in self._gradients if own is not None and values is not None)
