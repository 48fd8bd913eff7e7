"""The random state of a process, saved and put back.

In: nothing. Out: the states of the generators that a model may draw from: torch's, Python's, and numpy's where a
program uses it. Not covered: generators that a model has for itself.
"""

from __future__ import annotations

import random
import sys
from typing import Any, NamedTuple

import torch
from torch import Tensor


class RandomState(NamedTuple):
    """The states of the generators that a model may draw from."""

    torch: Tensor
    cuda: tuple[Tensor, ...]
    python: Any
    numpy: Any  # None: nobody had imported it

    @classmethod
    def now(cls) -> RandomState:
        """Save the random state."""
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        numpy = sys.modules.get("numpy.random")
        return cls(torch.get_rng_state(), tuple(cuda), random.getstate(), None if numpy is None else numpy.get_state())

    def put_back(self) -> None:
        """Draw the same numbers again."""
        torch.set_rng_state(self.torch)
        if self.cuda:
            torch.cuda.set_rng_state_all(list(self.cuda))
        random.setstate(self.python)
        if self.numpy is not None:
            sys.modules["numpy.random"].set_state(self.numpy)
