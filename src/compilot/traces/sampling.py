"""Which calls of a trace are replayed. In: a trace, how many, a seed. Out: that many calls, the same for each seed.

A trace that is short and known call by call is replayed as it is. Of any other, each size gets its share of the sample
(the nearest whole number: a size with 2 % of the calls has 2 % of the sample), in a shuffled order: its own order is
known for the first calls only.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from compilot.records import CallSizes, Trace


def sample(trace: Trace, requests: int, seed: int = 0) -> tuple[CallSizes, ...]:
    """The calls to replay, in order."""
    if len(trace.first) == trace.calls <= requests:
        return trace.first
    drawn = list(_shares(trace, requests, random.Random(seed)))
    random.Random(seed).shuffle(drawn)
    return tuple(drawn)


def _shares(trace: Trace, requests: int, draw: random.Random) -> Iterator[CallSizes]:
    """Sizes at even steps through all calls, sorted by frequency."""
    step = sum(one.calls for one in trace.sizes) / requests
    due, seen = draw.random() * step, 0
    for one in trace.sizes:
        seen += one.calls
        while due < seen:
            yield CallSizes(line=one.line, sizes=one.sizes, recorded=trace.header is not None)
            due += step
