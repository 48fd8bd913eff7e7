"""Is the plan's answer eager's answer? The tolerance is the gate's: what the plan was proven with.

In: a plan's evidence, then two answers to one call. Out: None, or in which way they differ, without their values.
Each output has a relative RMSE of its own: room times the error that the plan was checked with (at least the dtype's
own rounding), or the tolerance that the user allowed a lower precision. Integers, texts and the pattern of non-finite
numbers are exact.
Not covered: models whose answers are random (proving.py refuses them).
"""

from __future__ import annotations

from typing import Any

import torch

from compilot._tree import output_leaves
from compilot.records import Plan
from compilot.runtime.golden import FLOORS, ROOM, rmse

TINY = 1e-12  # an output of zeros has no size of its own


class Judge:
    """Compares answers within what the plan's entries were proven with."""

    def __init__(self, plan: Plan) -> None:
        seen = [entry.evidence.relative_error or 0.0 for entry in plan.entries]
        allowed = [entry.evidence.tolerance or 0.0 for entry in plan.entries]
        self._error, self._tolerance = max(seen, default=0.0), max(allowed, default=0.0)

    def limit(self, dtype: torch.dtype) -> float:
        """The relative RMSE that an output of this dtype may have; 0: it is exact."""
        if not (dtype.is_floating_point or dtype.is_complex):
            return 0.0
        return max(ROOM * max(self._error, FLOORS.get(dtype, 0.0)), self._tolerance)

    def difference(self, right: Any, answer: Any) -> str | None:
        """In what way an answer is not the right one; None: it is."""
        wanted = {leaf.path: leaf.value for leaf in output_leaves(right)}
        found = {leaf.path: leaf.value for leaf in output_leaves(answer)}
        if wanted.keys() != found.keys():
            odd = sorted(wanted.keys() ^ found.keys())[0]
            return f"{odd} is {'missing' if odd in wanted else 'unexpected'}"
        for path, value in wanted.items():
            if problem := self._leaf(value, found[path]):
                return f"{path} {problem}"
        return None

    def _leaf(self, right: Any, answer: Any) -> str | None:
        if not isinstance(right, torch.Tensor):
            return None if repr(right) == repr(answer) else f"is another {type(right).__name__} than eager's"
        if not isinstance(answer, torch.Tensor):
            return "is not a tensor"
        if answer.shape != right.shape or answer.dtype != right.dtype:
            now, was = (f"{t.dtype} {tuple(t.shape)}" for t in (answer, right))
            return f"is {now} instead of {was}"
        error, limit, size = rmse(answer, right), self.limit(right.dtype), _size(right)
        if error <= limit * size + TINY:
            return None
        relative = error / size if size else float("inf")
        return f"has a relative RMSE of {relative:.3g}, more than {limit:.3g}"


def _size(tensor: torch.Tensor) -> float:
    """Root mean square of what is finite."""
    numbers = torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor.detach()
    numbers = numbers.double()
    numbers = numbers[numbers.isfinite()]
    return float(numbers.square().mean().sqrt()) if numbers.numel() else 0.0
