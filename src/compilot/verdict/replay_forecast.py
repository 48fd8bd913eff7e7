"""What a replay is expected to show, computed for the very requests that it makes.

In: the sizes of the requests, measured costs, which sizes each program of an arm takes, in the order of its entries.
Out: eager's total over the arm's. The first program that takes a call serves it, as in the plan; a call that is smaller
than its program costs what padding costs on top, and one that is cut what its parts cost; what nobody takes is eager's.
Not covered: which programs there are (policies.py), the replay (replays.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from compilot.records import ShapeCosts, SplitRule
from compilot.verdict.shape_costs import Costs, Sizes
from compilot.verdict.splitting import in_parts_s, is_cut


class Taker(NamedTuple):
    """One program of an arm."""

    sizes: Sizes | None  # that it is built for; None: all sizes
    low: Sizes  # of the calls that it takes
    high: Sizes
    split: SplitRule | None = None  # calls that it answers in parts

    def takes(self, sizes: Sizes) -> bool:
        """Whether a call of these sizes is one of its own."""
        return all(low <= size <= high for low, size, high in zip(self.low, sizes, self.high, strict=True))


def forecast_of(requests: Sequence[Sizes], costs: ShapeCosts, takers: Sequence[Taker], more_s: float = 0.0) -> float:
    """Eager's seconds for these requests over the arm's; more_s: of each call, its share of the arm's start."""
    eager = Costs(costs.eager.points)
    static = Costs(costs.static.points) if costs.static is not None else None
    dynamic = Costs(costs.dynamic.points) if costs.dynamic is not None else None

    def seconds(sizes: Sizes) -> float:
        taker = next((one for one in takers if one.takes(sizes)), None)
        if taker is None:
            return eager.at(sizes)
        program = dynamic if taker.sizes is None else static
        assert program is not None  # or there would be no such program
        if taker.split is not None and is_cut(taker.split, sizes):
            return in_parts_s(sizes[0], taker.split, program, costs.pad_s, pads=taker.sizes is not None)
        if taker.sizes is None:
            return program.at(sizes)
        return program.at(taker.sizes) + (costs.pad_s if taker.sizes != sizes else 0.0)

    return sum(map(eager.at, requests)) / sum(seconds(sizes) + more_s for sizes in requests)
