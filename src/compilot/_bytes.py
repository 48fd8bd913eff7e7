"""Sizes as people write them. In: "8GiB". Out: a number of bytes, or an InputError."""

from __future__ import annotations

import re

from compilot.errors import InputError

_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def parse_size(text: str) -> int:
    """Bytes from "8GiB", "512M" or "1000000"."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    if match is None or float(match[1]) <= 0:
        raise InputError(f"'{text}' is not a size; write 8GiB or 512MiB.")
    return int(float(match[1]) * _UNITS[match[2]])
