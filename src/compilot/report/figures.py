"""Figures for people: times, rates and shares with a unit and no more digits than they deserve. Pure."""

from __future__ import annotations

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def time_text(seconds: float | None) -> str:
    """ "3.4 s", "12 ms", "850 µs"."""
    if seconds is None:
        return "n/a"
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= scale * 0.9995:
            return f"{digits(seconds / scale)} {unit}"
    return f"{digits(seconds * 1e6)} µs"


def rate_text(value: float | None, unit: str) -> str:
    """ "148 GFLOP/s"."""
    if value is None:
        return "n/a"
    scale, prefix = next(((s, p) for s, p in _PREFIXES if value >= s), (1.0, ""))
    return f"{digits(value / scale)} {prefix}{unit}"


def share_text(share: float) -> str:
    """ "70 %"; "< 1 %" where rounding would say nothing."""
    return "< 1 %" if 0 < share < 0.01 else f"{share * 100:.0f} %"


def sentence(text: str) -> str:
    """The text as a sentence of its own: a capital letter first (names in code keep theirs), a full stop last."""
    start = text[:1].upper() if text.partition(" ")[0].isalpha() else text[:1]
    return start + text[1:].rstrip(".") + "." if text else ""


def digits(value: float) -> str:
    """Three digits at most, without an exponent."""
    if value == 0:
        return "0"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
