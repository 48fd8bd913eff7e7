"""Eager behind the same face as every other plan.

In: the plain model, and why it is eager where the plan wanted something else. Out: the model's own answers, counted
with the reason. No call counts as fast: eager is not faster than eager, whoever chose it.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import nn

from compilot._tree import Call
from compilot.errors import ForkedAfterUse
from compilot.runtime import codegen
from compilot.runtime.counting import count_of
from compilot.runtime.forking import FORKED, tell_after_fork
from compilot.runtime.notices import Stats

KEPT_EAGER = "the plan keeps the model eager"


class EagerCore:
    """The model as it is."""

    def __init__(self, plain: nn.Module, instead_because: str | None = None) -> None:
        self._reason = instead_because or KEPT_EAGER
        self._counter = itertools.count()
        self._not_users = 0
        self._hot = codegen.hot_globals() | {"_ticks": self._counter, "_call": plain}
        self.call = codegen.compile_call(codegen.direct_source(), self._hot)
        tell_after_fork(self)

    @property
    def frozen_weights(self) -> bool:
        """Eager reads the weights as they are."""
        return False

    def prepare(self, call: Call) -> None:
        """Nothing to prepare."""

    def refresh(self) -> None:
        """Nothing to refresh."""

    def stats(self) -> Stats:
        """How the calls went so far."""
        calls = count_of(self._counter) - self._not_users
        return Stats(calls, 0, {self._reason: calls} if calls else {}, 0)

    def forget_calls(self) -> None:
        """The calls so far were not the user's: leave them out of the statistics."""
        self._not_users = count_of(self._counter)

    def after_fork(self) -> None:
        """In a forked child: refuse calls if the parent made any with more than one thread."""
        if count_of(self._counter) and torch.get_num_threads() > 1:
            self._hot["_call"] = _refuse


def _refuse(*args: Any, **kwargs: Any) -> Any:
    raise ForkedAfterUse(FORKED)
