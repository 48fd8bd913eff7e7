"""Where in a TOML file something stands. In: the text and the path of a key. Out: the number of its line.

The standard reader gives values without places. Covered: tables, dotted and quoted keys, and inline tables on one line.
Not covered: keys inside of texts of several lines (the line of the nearest table is told then).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_PART = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_KEY = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*\[({_KEY})\]")
_ASSIGNED = re.compile(rf"\s*({_KEY})\s*=")


def line_of(text: str, path: Sequence[str]) -> int:
    """The line of a key, or of the nearest thing around it; 1 where nothing is."""
    places = _places(text)
    wanted = tuple(path)
    for end in range(len(wanted), 0, -1):
        if wanted[:end] in places:
            return places[wanted[:end]]
    return 1


def _places(text: str) -> dict[tuple[str, ...], int]:
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = _parts(header[1])
            found.setdefault(table, number)
        elif assigned := _ASSIGNED.match(line):
            found.setdefault((*table, *_parts(assigned[1])), number)
    return found


def _parts(key: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in re.findall(_PART, key))
