"""Durations as people write them. In: text. Out: seconds, and back; InputError for what is none."""

from __future__ import annotations

import re
from decimal import Decimal

from compilot.errors import InputError

NO_DOUBT_S = 60.0  # nobody writes so many minutes without a unit


def parse_duration(text: str, what: str = "the budget") -> float:
    """Seconds from "90", "90s", "5m" or "1h30m"; what: is meant, for the error."""
    match = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?", text.strip())
    if not match or not any(match.groups()):
        raise InputError(f"'{text}' is not a duration; write 90s, 5m or 1h30m.")
    hours, minutes, seconds = (float(part) if part else 0.0 for part in match.groups())
    total = hours * 3600 + minutes * 60 + seconds
    if total <= 0:
        raise InputError(f"{what} must be more than zero; write 90s, 5m or 1h30m.")
    return total


def spell_duration(seconds: float) -> str:
    """The text that `parse_duration` reads as so many seconds: "5m", "1h30m", "90.5s"."""
    if seconds % 60:
        return f"{Decimal(f'{seconds:.12g}'):f}s"  # no exponent
    hours, minutes = divmod(int(seconds) // 60, 60)
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if minutes else "")


def seconds_note(text: str) -> str | None:
    """A note about a bare number that may have been meant as minutes; None where there is no doubt."""
    bare = re.fullmatch(r"\d+(?:\.\d+)?", text.strip())
    if bare is None or float(bare[0]) >= NO_DOUBT_S:
        return None
    return f"a budget of {bare[0]} is {bare[0]} s; write {bare[0]}m for minutes."
