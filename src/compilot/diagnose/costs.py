"""What a graph break costs in one call. In: when the graphs of a call ran. Out: seconds per break, an estimate.

Time between two graphs is time outside of graphs; it belongs to the break that ended the earlier one. Time before the
first graph belongs to functions that were given up before they had a graph, where there are any; otherwise it is the
ordinary cost of guards and belongs to nobody. What crosses a break must be written and read again: the time of copying
it stands for the fusion that is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from compilot.diagnose.watching import Run

Place = tuple[str, int]
COPIES = 3  # of the values that cross a break; the shortest counts


def outside(
    begin_s: float, end_s: float, runs: Sequence[Run], owner: Callable[[int], Place | None], graphless: Sequence[Place]
) -> dict[Place, float]:
    """Seconds outside of graphs, by the break that is to blame."""
    spent: dict[Place, float] = {}
    current: Place | None = None
    last = begin_s
    for run in runs:
        _charge(spent, current, run.begin_s - last, graphless)
        current, last = owner(run.graph) or current, run.end_s
    _charge(spent, current, end_s - last, graphless)
    return spent


def _charge(spent: dict[Place, float], place: Place | None, seconds: float, graphless: Sequence[Place]) -> None:
    for payer in [place] if place is not None else graphless:
        share = seconds if place is not None else seconds / len(graphless)
        spent[payer] = spent.get(payer, 0.0) + share


def typical(samples: Iterable[Mapping[Place, float]]) -> dict[Place, float]:
    """The median over several calls, per break."""
    kept = list(samples)
    places = dict.fromkeys(place for sample in kept for place in sample)
    return {place: median(sample.get(place, 0.0) for sample in kept) for place in places}


def copying_s(tensors: Sequence[torch.Tensor]) -> float:
    """Seconds to read and write these tensors once."""
    best = float("inf")
    for _ in range(COPIES):
        begin = time.perf_counter()
        for tensor in tensors:
            tensor.detach().clone()
        best = min(best, time.perf_counter() - begin)
    return best if tensors else 0.0
