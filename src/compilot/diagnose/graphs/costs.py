"""What a graph break costs in one call. In: when the graphs of a call ran. Out: seconds per break, an estimate.

Time between two graphs is time outside of graphs; it belongs to the innermost break that is open. A break opens where
it ends a graph, and closes when the rest of its function has run to the end; functions without a break that run in
between change nothing. A break that made torch.compile give up the rest of a function shares the time of the break
before that rest. Where no break is open, time belongs to functions that were given up before they had a graph, if there
are any; otherwise it is the ordinary cost of guards and belongs to nobody. What crosses a break must be written and
read again: the time of copying it stands for the fusion that is lost.
Not covered: a rest without any operator has no graph, so its end is not seen; its break stays open until the same
function begins anew or a function around it goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from compilot.diagnose import trusted

if TYPE_CHECKING:
    import torch

    from compilot._torch.dynamo_events import FunctionPart
    from compilot.diagnose.frames import FileLine
    from compilot.diagnose.graphs.watching import GraphRun

COPIES = 3  # of the values that cross a break; the shortest counts


class Ending(NamedTuple):
    """How a graph came to its end: which part of a function it is, and the break that ended it, if one did."""

    part: FunctionPart
    place: FileLine | None


def outside(
    begin_s: float, end_s: float, runs: Sequence[GraphRun], ending: Callable[[int], Ending], graphless: Sequence[Ending]
) -> dict[FileLine, float]:
    """Seconds outside of graphs, by the break that is to blame; graphless: those that left a part without a graph."""
    spent: dict[FileLine, float] = {}
    opened: list[Ending] = []  # the breaks that are open, the innermost last
    endings = [ending(run.graph) for run in runs]
    split = {one.part.function for one in endings if one.place is not None}
    whole = [one for one in graphless if not (one.part.resumed and one.part.function in split)]
    last = begin_s
    for number, run in enumerate(runs):
        _charge(spent, _payers(opened, graphless, endings[number:]) or whole, run.begin_s - last)
        opened, last = _after(opened, endings[number]), run.end_s
    _charge(spent, _payers(opened, graphless, ()) or whole, end_s - last)
    return spent


def _payers(opened: Sequence[Ending], graphless: Sequence[Ending], later: Sequence[Ending]) -> list[Ending]:
    """The innermost open break; with it those that gave up the rest of its function, unless that is still to run."""
    if not opened:
        return []
    rest = opened[-1].part._replace(resumed=True)
    gave_up = [] if any(one.part == rest for one in later) else [one for one in graphless if one.part == rest]
    return [opened[-1], *gave_up]


def _after(opened: list[Ending], ended: Ending) -> list[Ending]:
    """The open breaks after a graph ran: its function's earlier break is over, a break of its own is open."""
    known = [index for index, one in enumerate(opened) if one.part.function == ended.part.function]
    is_innermost = bool(known) and known[-1] == len(opened) - 1
    over = bool(known) and (ended.part.resumed or is_innermost)  # innermost and begun anew: its rest had no graph
    left = opened[: known[-1]] if over else opened
    return [*left, ended] if ended.place is not None else left


def _charge(spent: dict[FileLine, float], payers: Sequence[Ending], seconds: float) -> None:
    for place in (payer.place for payer in payers if payer.place is not None):
        spent[place] = spent.get(place, 0.0) + seconds / len(payers)


def typical(samples: Iterable[Mapping[FileLine, float]]) -> dict[FileLine, float]:
    """The median over several calls, per break; without breaks whose time is too different from call to call."""
    kept = list(samples)
    found = {place: trusted.typical([sample.get(place, 0.0) for sample in kept]) for place in places(kept)}
    return {place: seconds for place, seconds in found.items() if seconds is not None}


def places(samples: Iterable[Mapping[FileLine, float]]) -> list[FileLine]:
    """Every break that any of the calls met."""
    return list(dict.fromkeys(place for sample in samples for place in sample))


def copying_s(tensors: Sequence[torch.Tensor]) -> float:
    """Seconds to read and write these tensors once."""
    best = float("inf")
    for _ in range(COPIES):
        begin = time.perf_counter()
        for tensor in tensors:
            tensor.detach().clone()
        best = min(best, time.perf_counter() - begin)
    return best if tensors else 0.0
