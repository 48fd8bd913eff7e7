"""What a trace comes to. In: a trace that was read. Out: `Trace`: each dimension's distribution, the frequent sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from compilot.records import DimensionSizes, SizeBin, SizeCount, Trace
from compilot.traces.reading import FIRST_CALLS, Scan
from compilot.traces.tally import Tally

MOST_BINS = 12  # of sizes that are not far apart
HEAVY_TAIL = 16  # largest over smallest size, from which bins double in width


def summed(scan: Scan) -> Trace:
    """The record of a trace."""
    tally = scan.tally
    return Trace(
        path=scan.path,
        header=scan.header,
        calls=tally.calls,
        distinct=len(tally.counts),
        rounded=tally.rounded,
        left_out=tally.left_out,
        dims={name: _dimension(sizes, tally.ranges[name]) for name, sizes in _by_name(tally).items()},
        sizes=tuple(SizeCount(sizes=dict(key), calls=n, line=tally.lines[key]) for key, n in tally.sorted()),
        first=scan.first[:FIRST_CALLS],
    )


def _by_name(tally: Tally) -> dict[str, dict[int, int]]:
    """Calls by size, for each dimension."""
    found: dict[str, dict[int, int]] = {}
    for key, calls in tally.counts.items():
        for name, size in key:
            sizes = found.setdefault(name, {})
            sizes[size] = sizes.get(size, 0) + calls
    return {name: dict(sorted(sizes.items())) for name, sizes in found.items()}


def _dimension(sizes: Mapping[int, int], ends: tuple[int, int]) -> DimensionSizes:
    """sizes: in rising order. ends: the exact ones, also where sizes were rounded."""
    p50, p90, p99 = (_quantile(sizes, share) for share in (0.5, 0.9, 0.99))
    return DimensionSizes(
        calls=sum(sizes.values()),
        distinct=len(sizes),
        min=ends[0],
        max=ends[1],
        p50=p50,
        p90=p90,
        p99=p99,
        bins=tuple(_filled(sizes)),
    )


def _quantile(sizes: Mapping[int, int], share: float) -> int:
    """The smallest size that covers this share of the calls."""
    wanted, seen = share * sum(sizes.values()), 0
    for size, calls in sizes.items():
        seen += calls
        if seen >= wanted:
            return size
    raise AssertionError("no calls")


def _filled(sizes: Mapping[int, int]) -> Iterator[SizeBin]:
    for low, high in _bins(list(sizes)):
        yield SizeBin(low=low, high=high, calls=sum(n for size, n in sizes.items() if low <= size <= high))


def _bins(sizes: list[int]) -> Iterator[tuple[int, int]]:
    """One for each size where there are few; else of equal width, or doubling where sizes are far apart."""
    low, high = sizes[0], sizes[-1]
    if len(sizes) <= MOST_BINS:
        yield from ((size, size) for size in sizes)
        return
    width = -(-(high - low + 1) // MOST_BINS)
    while low <= high:
        end = low + width - 1 if high < HEAVY_TAIL * max(sizes[0], 1) else 1 << max(low - 1, 0).bit_length()
        yield low, min(max(end, low), high)
        low = max(end, low) + 1
