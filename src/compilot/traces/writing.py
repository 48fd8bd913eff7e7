"""The file that `record` and `merge_traces` leave. In: a header, the first calls in order, counts. Out: at most 1 MiB.

Below the header are the first calls, one per line and without "n"; then every size with the number of its other calls,
the most frequent first. So the calls of a trace are the sum over its lines. What does not fit is rounded up to powers
of two, and then left out; the header has both numbers. No line is longer than a reader takes, since a tally has room
for so many names only. Mode 0600, whole or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from compilot.files import atomic
from compilot.records import DimRange, TraceHeader
from compilot.traces.lines import Key, line_of
from compilot.traces.reading import FIRST_CALLS
from compilot.traces.tally import Tally, rounded

MAX_BYTES = 1 << 20
_FIRST_BYTES = MAX_BYTES // 4
_EXACT_SHARE = 0.75  # of the room for counts, where they have to be rounded
MOST_NAME = 200  # characters of a model's name


def write_trace(path: Path, header: TraceHeader, first: Sequence[Key], tally: Tally) -> None:
    """Replace the file."""
    atomic.write_bytes(path, rendered(header, first, tally), atomic.PRIVATE)


def rendered(header: TraceHeader, first: Sequence[Key], tally: Tally) -> bytes:
    """The content of the file; the header gets the sums."""
    tally.settle()
    first = [key for key in first if _there(tally, key) is not None]  # the others were left out
    ordered = _ordered(first)
    rest = _without(tally, first[: len(ordered)])
    body = b"".join(ordered)
    largest = _filled(header, tally, tally.calls, tally.calls)  # no header is longer
    lines, folded, lost = _counts(tally, rest, MAX_BYTES - len(largest) - len(body))
    return _filled(header, tally, tally.rounded + folded, tally.left_out + lost) + body + b"".join(lines)


def _filled(header: TraceHeader, tally: Tally, coarse: int, lost: int) -> bytes:
    """The header's line with the sums; with the exact ranges where they are not in the lines."""
    ranges = {name: DimRange(min=low, max=high) for name, (low, high) in tally.ranges.items()}
    header = msgspec.structs.replace(
        header,
        model=header.model[:MOST_NAME],
        calls=tally.calls,
        rounded=coarse,
        left_out=lost,
        ranges=ranges if coarse or lost else {},
    )
    return msgspec.json.encode(header) + b"\n"


def _ordered(first: Sequence[Key]) -> list[bytes]:
    lines: list[bytes] = []
    left = _FIRST_BYTES
    for key in first[:FIRST_CALLS]:
        lines.append(line_of(key))
        left -= len(lines[-1])
        if left < 0:
            return lines[:-1]
    return lines


def _there(tally: Tally, key: Key) -> Key | None:
    """The sizes under which a call was counted; None: without any."""
    return next((one for one in (key, tally.cut(rounded(key))) if one in tally.counts), None)


def _without(tally: Tally, first: Sequence[Key]) -> dict[Key, int]:
    """The counts of the calls that have no line of their own."""
    left = dict(tally.sorted())
    for key in first:
        there = _there(tally, key)
        if there is not None:
            left[there] -= 1
    return {key: calls for key, calls in left.items() if calls > 0}


def _counts(tally: Tally, counts: dict[Key, int], room: int) -> tuple[list[bytes], int, int]:
    """Lines that fit, the calls that were rounded for it, and those that were left out."""
    lines = [line_of(key, calls) for key, calls in counts.items()]
    if sum(map(len, lines)) <= room:
        return lines, 0, 0
    exact = _fitting(lines, int(room * _EXACT_SHARE))
    folded: dict[Key, int] = {}
    for key, calls in list(counts.items())[exact:]:
        coarser = tally.cut(rounded(key))
        folded[coarser] = folded.get(coarser, 0) + calls
    folded = dict(sorted(folded.items(), key=lambda item: -item[1]))
    coarse = [line_of(key, calls) for key, calls in folded.items()]
    kept = _fitting(coarse, room - sum(map(len, lines[:exact])))
    sums = list(folded.values())
    return lines[:exact] + coarse[:kept], sum(sums[:kept]), sum(sums[kept:])


def _fitting(lines: Sequence[bytes], room: int) -> int:
    """How many of the first lines fit."""
    for number, line in enumerate(lines):
        room -= len(line)
        if room < 0:
            return number
    return len(lines)
