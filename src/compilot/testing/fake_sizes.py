"""Many sizes for a runner that runs nothing: what calls of a size take, and which entry of a plan answers one.

In: the sizes of a trace, what a size costs, which programs leak. Out: what `FakeRunner` answers about traffic, padding
and replays. Sizes of a call are by NAME:DIM, as in a trace. Not covered: everything else (runner.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from compilot.errors import InputError
from compilot.records import (
    CallSizes,
    Candidate,
    DimRange,
    Guard,
    PaddedDim,
    PaddedInput,
    PaddedOutput,
    Padding,
    PaddingProof,
    PlanEntry,
    SizeCount,
    SizeDemand,
    SizePlace,
    TensorGuard,
    Traffic,
    TrafficDim,
)

INPUT = "args[0]"  # the one tensor of a fake model


class FakeSizes(NamedTuple):
    """A model with one input whose dimensions vary."""

    ranges: Mapping[str, tuple[int, int]]  # "x:0" -> smallest and largest size
    cost: Callable[[Mapping[str, int]], float] = lambda sizes: float(next(iter(sizes.values())))  # times the example's
    may_pad: bool = True
    may_split: bool = False  # the first size is the batch, and its rows are independent
    leaking: Collection[str] = ()  # labels of candidates whose padded calls leak
    pad_s: float = 0.0  # of a padded call, on top
    change_s: Mapping[str, float] = {}  # by engine: of a call to a program for all sizes, where sizes change
    example: Mapping[str, int] = {}  # sizes of the example call; its cost is 1

    def guard(self, sizes: Mapping[str, int] | None = None) -> Guard:
        """Of calls of these sizes; None: of all sizes."""
        shape: list[int | DimRange] = [
            DimRange(min=low, max=high) if not sizes else sizes[name] for name, (low, high) in self.ranges.items()
        ]
        tensor = TensorGuard(path=INPUT, dtype="torch.float32", device="cpu", shape=tuple(shape), stride=None)
        return Guard(positional=1, keywords=(), tensors=(tensor,))

    def traffic(self, counts: Sequence[SizeCount], requests: Sequence[CallSizes] = ()) -> Traffic:
        """As eager's worker would read the trace."""
        dims = [
            TrafficDim(name=name, min=low, max=high, places=(SizePlace(path=INPUT, dim=number),))
            for number, (name, (low, high)) in enumerate(self.ranges.items())
        ]
        found: dict[tuple[int, ...], int] = {}
        for one in counts:
            for name in one.sizes:
                if name not in self.ranges:
                    raise InputError(f"line {one.line} of the shape trace: no dimension '{name}' is declared.")
            key = tuple(one.sizes[name] for name in self.ranges)
            found[key] = found.get(key, 0) + one.calls
        demand = tuple(SizeDemand(sizes=sizes, count=calls) for sizes, calls in sorted(found.items()))
        made = tuple(tuple(one.sizes[name] for name in self.ranges) for one in requests)
        return Traffic(dims=tuple(dims), demand=demand, guard=self.guard(), requests=made)

    def proof(self) -> PaddingProof:
        """Everything may be padded, or nothing."""
        dims = [
            PaddedDim(
                min=max(1, low),
                size=high,
                inputs=(PaddedInput(path=INPUT, dim=number, value=0),),
                outputs=(PaddedOutput(path="output", dim=number),),
                in_parts=self.may_split and number == 0,
            )
            for number, (low, high) in enumerate(self.ranges.values())
        ]
        return PaddingProof(padding=Padding(dims=tuple(dims)) if self.may_pad else None)

    def times(self, sizes: Mapping[str, int]) -> float:
        """How many times as long as a call of the example one of these sizes takes in eager."""
        example = self.cost(self.example) if self.example else 1.0
        return self.cost(sizes) / example

    def answering(self, entries: Sequence[PlanEntry], sizes: Mapping[str, int]) -> tuple[Candidate | None, float, bool]:
        """Who answers a call of these sizes, how many times the example's seconds it takes, whether it is padded."""
        for entry in entries:
            shape = entry.guard.tensors[0].shape if entry.guard.tensors else ()  # of no tensors: every call
            if all(map(_takes, shape, sizes.values())):
                parts = [self._built(entry, part) for part in _parts(entry, sizes)]
                return entry.candidate, sum(map(self.times, parts)), parts != [dict(sizes)]
        return None, self.times(sizes), False

    def _built(self, entry: PlanEntry, sizes: Mapping[str, int]) -> dict[str, int]:
        """What the entry's program is given."""
        return (
            dict(sizes)
            if entry.padding is None
            else dict(zip(sizes, (d.size for d in entry.padding.dims), strict=True))
        )


def with_guard(guard: Guard | None, sizes: FakeSizes | None, candidate: Candidate) -> Guard | None:
    """The guard of a fake trial."""
    return guard if sizes is None else msgspec.structs.replace(sizes.guard(candidate.sizes or None))


def _takes(wanted: int | DimRange, size: int) -> bool:
    return wanted.min <= size <= wanted.max if isinstance(wanted, DimRange) else wanted == size


def _parts(entry: PlanEntry, sizes: Mapping[str, int]) -> list[dict[str, int]]:
    """The calls that the entry answers one with."""
    name, rows = next(iter(sizes.items()), ("", 0))
    if entry.split is None or rows < entry.split.min:
        return [dict(sizes)]
    each = entry.split.rows
    return [{**sizes, name: min(each, rows - first)} for first in range(0, rows, each)]
