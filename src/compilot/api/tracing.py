"""`compilot.read_trace` and `compilot.merge_traces`: the sizes that a program's calls have. In: files. Out: a Trace."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from compilot.records import CallSizes, DimRange, Shipment, Trace

if TYPE_CHECKING:
    from compilot.traces.reading import ShapeSpec


def read_trace(file: str | os.PathLike[str] | Sequence[Mapping[str, int]]) -> Trace:
    """The sizes in a trace: each dimension's distribution, the frequent sizes, the first calls in their order.

    file is what `record` wrote, or a text file with one call per line, such as input_ids:1=37, or the calls themselves:
    [{"input_ids:1": 37}]. It is read line by line, so it may have millions of them. A wrong line raises InputError with
    its number. What `compilot trace show` draws.
    """
    from compilot.traces.reading import scan
    from compilot.traces.summing import summed

    return summed(scan(file))


class Requests(NamedTuple):
    """What is replayed of a trace."""

    trace: Trace
    calls: tuple[CallSizes, ...]  # a sample of it, in order
    ranges: dict[str, DimRange]  # of the whole trace

    def on(self, shipment: Shipment, *, later: bool = False) -> Shipment:
        """The shipment with these requests; later: they only declare what varies, the examples stay the work."""
        return msgspec.structs.replace(shipment, replay=self.calls, replay_ranges=self.ranges, replay_later=later)


def requests_of(trace: ShapeSpec, most: int) -> Requests:
    """A trace, and a sample of its calls; InputError with the line of what is wrong in it."""
    from compilot.traces.reading import scan
    from compilot.traces.sampling import sample
    from compilot.traces.summing import summed

    found = scan(trace)
    if not found.tally.counts:
        found.calls()  # which says why there are none
    whole = summed(found)
    return Requests(whole, sample(whole, most), found.ranges)


def merge_traces(files: Sequence[str | os.PathLike[str]], out: str | os.PathLike[str]) -> Trace:
    """Add up traces, of several processes or days, into the file out; what `compilot trace merge` does.

    The first calls in order are those of the first trace. InputError where they are of different models.
    """
    from compilot.traces.merging import merge

    merge(files, Path(out))
    return read_trace(out)
