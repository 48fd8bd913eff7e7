"""Batch sizes as a user gives them. In: "1,2,4,8" or numbers. Out: sizes in order, and the dimension that they need.

Also the calls that a plan for them is chosen by (`batch_requests`): as many samples in calls of each size, so that each
size counts for about as much of the time, and a few calls of every one. They stand in an order in which every part of
it has its share of each size. Not covered: what is done with them (tuning/serving.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from compilot.api.tracing import Requests
from compilot.errors import InputError
from compilot.records import CallSizes, DynamicDim

REQUESTS = 256  # in one replay, about: a budget may have room for fewer
FEWEST = 6  # calls of each size
MOST = 32  # sizes of one run; each takes a race
LARGEST = 1 << 20  # samples of a call


def given_batch_sizes(given: str | Sequence[int] | None) -> tuple[int, ...]:
    """Each size once, smallest first; () where none are given."""
    if given is None:
        return ()
    sizes = sorted({_size(one) for one in (given.split(",") if isinstance(given, str) else given)})
    if not 1 <= len(sizes) <= MOST:
        raise InputError(f"give 1 to {MOST} batch sizes, such as 1,2,4,8.")
    return tuple(sizes)


def _size(given: object) -> int:
    text = str(given).strip()
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= LARGEST:
        raise InputError(f"'{text}' is no batch size; give whole numbers from 1 up, such as 1,2,4,8.")
    return int(text)


def with_batch_dimension(dims: Sequence[DynamicDim], sizes: Sequence[int]) -> tuple[DynamicDim, ...]:
    """The declared dimensions, with the batch of all inputs among them where sizes are given and none is declared.

    What the workload itself declares stays, and so does the example's size: they are only widened.
    """
    from compilot.workload.dynamic import EVERY, SHORTHANDS

    batch = SHORTHANDS["batch"]
    if not sizes or any(dim.dim == batch for dim in dims):
        return tuple(dims)
    return (*dims, DynamicDim(input=EVERY, dim=batch, min=min(sizes), max=max(sizes), widens=True))


def batch_requests(sizes: Sequence[int]) -> Requests | None:
    """What is replayed for these sizes; None: there is nothing to choose by one size."""
    from compilot.traces.reading import scan
    from compilot.traces.summing import summed
    from compilot.workload.shapetrace import BATCH

    if len(sizes) < 2:
        return None
    samples = REQUESTS / sum(1 / size for size in sizes)
    counts = {size: max(FEWEST, round(samples / size)) for size in sizes}
    turns = sorted(((turn + 0.5) / number, size) for size, number in counts.items() for turn in range(number))
    order = [size for _, size in turns]
    calls = tuple(CallSizes(line=1 + order.index(size), sizes={BATCH: size}) for size in order)
    return Requests(summed(scan([call.sizes for call in calls])), calls, {})
