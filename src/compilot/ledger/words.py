"""A run in a few words, for lists. In: a `RunEntry`. Out: text. The terminal and the web page say the same."""

from __future__ import annotations

from compilot.ledger.entries import RunEntry
from compilot.records import Decision

COMMIT_DIGITS = 8


def result_words(entry: RunEntry) -> str:
    """ "1.72x (1.64-1.81) openvino", "keep eager", or what became of the run."""
    if entry.speedup is not None:
        return f"{entry.speedup:.2f}x ({entry.speedup_low:.2f}-{entry.speedup_high:.2f}) {entry.chosen}"
    if entry.decision is Decision.KEEP_EAGER:
        return "keep eager"
    return entry.chosen if entry.decision is not None else str(entry.state)


def tried_words(entry: RunEntry) -> str:
    """ "12 tried, 2 failed"."""
    failed = sum(number for state, number in entry.trials.items() if state not in ("ok", "pruned"))
    return f"{sum(entry.trials.values())} tried" + (f", {failed} failed" if failed else "")


def commit_words(entry: RunEntry) -> str:
    """ "1a2b3c4d+": the commit, and that files differed from it; "-": not known."""
    return f"{entry.commit[:COMMIT_DIGITS]}{'+' if entry.dirty else ''}" if entry.commit else "-"


def when_words(entry: RunEntry) -> str:
    """ "2026-01-02 03:04", UTC."""
    return entry.created[:16].replace("T", " ") or "-"
