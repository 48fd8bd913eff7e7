"""Counting without locks: `next` on an itertools.count is one step in C, so no thread loses a call."""

from __future__ import annotations

import itertools


def count_of(counter: itertools.count[int]) -> int:
    """How often a counter was advanced; reading it does not advance it."""
    return int(repr(counter)[len("count(") : -1])
