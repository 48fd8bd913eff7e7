"""Figures in plain words, the same everywhere a verdict is printed.

In: numbers and Comparisons. Out: short English, units included. Covered: seconds, percentages, intervals, outcomes.
Not covered: layout and colour (report, cli).
"""

from __future__ import annotations

from compilot.records import Comparison, Outcome


def seconds(value: float) -> str:
    """A duration with a sensible unit: 120 s, 11.5 s, 0.04 s, 4.5 ms, 12 us."""
    if value >= 100:
        return f"{value:.0f} s"
    if value >= 1:
        return f"{value:.1f} s"
    if value >= 0.01:
        return f"{value:.2f} s"
    return f"{value * 1e3:.1f} ms" if value >= 1e-3 else f"{value * 1e6:.0f} us"


def percent(value: float) -> str:
    """A relative number as a percentage with one decimal."""
    return f"{value * 100:.1f} %"


def interval(comparison: Comparison) -> str:
    """The 95 % interval: "95 % 1.88-1.97"; one more decimal near 1, where it matters."""
    digits = 3 if 0.9 < comparison.ratio < 1.1 else 2
    return f"95 % {comparison.low:.{digits}f}-{comparison.high:.{digits}f}"


def outcome(comparison: Comparison, than: str = "eager") -> str:
    """What was shown, without the interval: "1.93x faster than eager"."""
    if comparison.outcome is Outcome.FASTER:
        return f"{_times(comparison.ratio)} faster than {than}"
    if comparison.outcome is Outcome.SLOWER:
        return f"{percent(1.0 - comparison.ratio)} slower than {than}"
    if comparison.outcome is Outcome.UNDECIDED:
        return f"undecided against {than}"
    return f"no difference from {than} shown ({_times(comparison.ratio)})"


def shown(comparison: Comparison, than: str = "eager") -> str:
    """What was shown, with its interval: "1.93x faster than eager (95 % 1.88-1.97)"."""
    if comparison.outcome is Outcome.UNDECIDED:
        return "; ".join((outcome(comparison, than), *comparison.doubts))
    if comparison.outcome is Outcome.NO_DIFFERENCE:
        return f"{_difference(comparison)} ({interval(comparison)}), within {percent(needed(comparison))} noise"
    return f"{outcome(comparison, than)} ({interval(comparison)})"


def needed(comparison: Comparison) -> float:
    """How far from 1 this ratio would have had to be, with this margin and interval, to be called a difference."""
    beyond = comparison.ratio - comparison.low if comparison.ratio >= 1.0 else comparison.high - comparison.ratio
    return comparison.margin + beyond


def _times(ratio: float) -> str:
    return f"{ratio:.3f}x" if 0.9 < ratio < 1.1 else f"{ratio:.2f}x"


def _difference(comparison: Comparison) -> str:
    change = comparison.ratio - 1.0
    return f"{percent(abs(change))} {'faster' if change >= 0 else 'slower'}"
