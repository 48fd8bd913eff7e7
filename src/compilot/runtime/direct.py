"""Keep eager: a plan that changes nothing, behind the same face as every other.

In: the plain model. Out: its own answers, counted. Every call counts as fast: eager is what the plan chose.
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


class Direct:
    """The model as it is."""

    def __init__(self, plain: nn.Module) -> None:
        self._counter = itertools.count()
        self._hot = codegen.hot_globals() | {"_tick": self._counter.__next__, "_call": plain}
        self.call = codegen.compile_call(codegen.direct_source(), self._hot)
        tell_after_fork(self)

    def prepare(self, call: Call) -> None:
        """Nothing to prepare."""

    def refresh(self) -> None:
        """Nothing to refresh."""

    def stats(self) -> Stats:
        """How the calls went so far."""
        calls = count_of(self._counter)
        return Stats(calls, calls, {}, 0)

    def after_fork(self) -> None:
        """In a forked child: refuse calls if the parent made any with more than one thread."""
        if self.stats().calls and torch.get_num_threads() > 1:
            self._hot["_call"] = _refuse


def _refuse(*args: Any, **kwargs: Any) -> Any:
    raise ForkedAfterUse(FORKED)
