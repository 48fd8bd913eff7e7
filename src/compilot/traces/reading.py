"""The one reader of traces: `doctor --shapes`, `tune --trace`, `bench --trace`, `trace show`. In: a file, or mappings.

Out: `Scan`: the header if there is one, counts, the first calls in order. The file is read line by line and never
held: ten million lines need no more memory than ten thousand. A wrong line ends the reading with its number. A line
that was seen before is not parsed again. Not covered: what the names mean for a model (workload/shapetrace.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from compilot.errors import InputError
from compilot.records import CallSizes, DimRange, TraceHeader
from compilot.traces.lines import MAX_LINE_BYTES, Key, header_of, key_of, parse, text_of
from compilot.traces.tally import Tally

ShapeSpec = str | os.PathLike[str] | Sequence[Mapping[str, int]]

FIRST_CALLS = 200  # kept in their order
DRIVEN_CALLS = 10_000  # of a trace that drives a model: it takes minutes by then
MOST_KEYS_READ = 1 << 14  # sizes of a trace that somebody else wrote; 1 kB of memory each
NAMES_BYTES_READ = 1 << 20  # of all their names
_KNOWN_LINES = 1 << 14  # texts of lines whose meaning is remembered


class Scan(NamedTuple):
    """A trace that was read."""

    path: Path | None
    header: TraceHeader | None
    tally: Tally
    first: tuple[CallSizes, ...]  # in order

    @property
    def ranges(self) -> dict[str, DimRange]:
        """The smallest and largest size by name."""
        return {name: DimRange(min=low, max=high) for name, (low, high) in self.tally.ranges.items()}

    def calls(self, most: int = DRIVEN_CALLS) -> tuple[CallSizes, ...]:
        """The first calls in order, then every other size once, the most frequent first; no more than `most`.

        InputError: all calls were counted without their sizes.
        """
        if not self.tally.counts:
            raise InputError(
                f"the shape trace {self.path} has no sizes: its calls have more tensors than a trace takes."
            )
        seen = {tuple(call.sizes.items()) for call in self.first}
        other = [key for key, _ in self.tally.sorted() if key not in seen]
        by = self.header is not None
        once = (CallSizes(line=self.tally.lines[key], sizes=dict(key), recorded=by) for key in other)
        return (*self.first, *once)[:most]


def scan(given: ShapeSpec, *, first: int = FIRST_CALLS) -> Scan:
    """Read a trace; first: how many calls are kept in order."""
    if not isinstance(given, str | os.PathLike):
        keys = ((number, key_of(one, number), None) for number, one in enumerate(given, 1))
        return _collected(None, None, keys, first)
    path = Path(given)
    try:
        with path.open("rb") as file:
            return _read(path, file, first)
    except OSError as problem:
        raise InputError(
            f"cannot read the shape trace {path}: {problem.strerror or problem}; give a text file, one call per line."
        ) from None


def _read(path: Path, file: IO[bytes], first: int) -> Scan:
    lines = _numbered(file)
    number, text = next(lines, (0, ""))
    header = header_of(text, number) if text else None
    known: dict[str, tuple[Key, int | None]] = {}

    def keys() -> Iterator[tuple[int, Key, int | None]]:
        if header is None and text:
            yield number, *parse(text, number, counted=False)
        for line, content in lines:
            meaning = known.get(content)
            if meaning is None:
                meaning = parse(content, line, counted=header is not None)
                if len(known) < _KNOWN_LINES:
                    known[content] = meaning
            yield line, *meaning

    return _collected(path, header, keys(), first)


def _numbered(file: IO[bytes]) -> Iterator[tuple[int, str]]:
    """Lines that say something, with their numbers."""
    number = 0
    while raw := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if text := text_of(raw, number):
            yield number, text


def _collected(
    path: Path | None, header: TraceHeader | None, keys: Iterator[tuple[int, Key, int | None]], first: int
) -> Scan:
    tally, ordered = Tally(MOST_KEYS_READ, NAMES_BYTES_READ), list[tuple[int, Key]]()
    for line, key, calls in keys:
        tally.add(key, calls or 1, line)
        if calls is None and len(ordered) < first:
            ordered.append((line, key))
    if header is not None:
        tally.ranges.update({name: (sizes.min, sizes.max) for name, sizes in header.ranges.items()})
        tally.rounded, tally.left_out = tally.rounded + header.rounded, tally.left_out + header.left_out
    tally.settle()
    if not tally.calls:
        named = f" {path}" if path is not None else ""
        raise InputError(
            f"the shape trace{named} has no calls; write NAME:DIM=SIZE, such as input_ids:1=37, one line per call."
        )
    first_calls = (CallSizes(line=line, sizes=dict(key), recorded=header is not None) for line, key in ordered)
    return Scan(path, header, tally, tuple(first_calls))
