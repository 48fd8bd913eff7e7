"""What the run plane says to the user: warnings (their classes are in errors.py) and the counting of calls.

In: fallback reasons. Out: Stats, and one warning when too many calls miss the fast path; one at the first call with
gradients enabled, since then most often all of them are. Silent eager is the enemy; so is a warning per call.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from compilot.errors import CompilotWarning, FallbackWarning
from compilot.runtime.forking import tell_after_fork

MIN_CALLS = 100  # below that, a few warm-up calls would look like a high share
MAX_SHARE = 0.01
MANY_RECOMPILES = 3  # after the warm-up: one may come with a change of the model, more are a pattern
MAX_REASONS = 20  # distinct reasons kept; shape churn must not grow the dict for ever
OTHER = "other reasons"
GRADIENTS = "gradients enabled"
DROPPED = "the eager model was dropped by keep_model=False"
NEVER_THERE = "there is no eager model: compilot.load takes none"
HOT_PATH = "<compilot hot path>"  # file name of generated code
_PACKAGE = str(Path(__file__).resolve().parent.parent)
_TORCH = str(Path(torch.__file__).resolve().parent)

logger = logging.getLogger("compilot")

_ADVICE = (
    (GRADIENTS, "wrap the calls in torch.no_grad() or torch.inference_mode()"),
    ("train mode", "call .eval() on the model first"),
    ("default dtype", "put torch's default back with torch.set_default_dtype, or tune the model under the new one"),
    ("autocast", "call it outside of torch.autocast, or tune the model under it"),
    ("files hold", "run 'compilot tune' again with the new weights; or give the model the old ones and call refresh()"),
    ("being built", "wait: calls are fast as soon as it is there"),
    ("weights changed", "call refresh() on the compiled model after an update"),
    ("code or attributes changed", "call refresh() on the compiled model after a change"),
    ("hooks", "remove them, or compile the model once they are there"),
    ("padding is not proven", "see that each row of the mask lets something through; others are not padded"),
    ("elsewhere", "see that the inputs agree on their sizes"),
    ("index", "see that the input holds indices that exist; the model itself raises for others"),
    ("engine", "see the reason; until it is fixed, use the model itself"),
    ("shape", "pad to the planned shape, or tune again with that dimension declared dynamic"),
    ("dtype", "convert the input first"),
    ("device", "move the input first"),
    ("strides", "call .contiguous() on the input first"),
)


def warn(text: str, category: type[CompilotWarning] = CompilotWarning) -> None:
    """Warn at the line of the user's own code that led here."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and _is_inner(frame.f_code.co_filename):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)


def _is_inner(filename: str) -> bool:
    return filename == HOT_PATH or filename.startswith((_PACKAGE, _TORCH))


class Stats(NamedTuple):
    """How the user's calls went. calls = fast + all fallbacks."""

    calls: int
    fast: int
    fallbacks: dict[str, int]
    compiles: int  # times the engine was asked to prepare a variant
    notes: tuple[str, ...] = ()  # where the fast answers are not eager's in all respects, as the plan says
    regions: Mapping[str, Stats] = {}  # by path of the submodule, where the plan runs parts of the model; fallbacks
    # there are calls of the submodule alone: the call of the model counts as fast
    entries: Mapping[str, Stats] = {}  # by name, where the plan has several; calls that none of them takes are in none

    @property
    def fast_share(self) -> float:
        """Share of calls that took the fast path; 1.0 before the first call."""
        return self.fast / self.calls if self.calls else 1.0


def added(parts: Sequence[Stats]) -> Stats:
    """Several statistics as one; compiles and notes included."""
    fallbacks: dict[str, int] = {}
    for reason, count in (pair for part in parts for pair in part.fallbacks.items()):
        fallbacks[reason] = fallbacks.get(reason, 0) + count
    paths = dict.fromkeys(path for part in parts for path in part.regions)
    return Stats(
        sum(part.calls for part in parts),
        sum(part.fast for part in parts),
        fallbacks,
        sum(part.compiles for part in parts),
        tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        {path: added([part.regions[path] for part in parts if path in part.regions]) for path in paths},
    )


class Fallbacks:
    """Counts fallbacks by reason, bounded, and says once when there are too many; of gradients at the first call."""

    def __init__(self, of: str = "") -> None:
        """of: the part of the model that is counted; "": all of it."""
        self._of = f" of {of}" if of else ""
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._warned = False
        self._told_of_gradients = False
        tell_after_fork(self)

    def after_fork(self) -> None:
        """In a forked child: the thread that held the lock is not there any more."""
        self._lock = threading.Lock()

    def count(self, reason: str, fast_calls: Callable[[], int], *, said: bool = False) -> None:
        """One more call answered by eager; said: the user has been told of this reason already.

        fast_calls: of the others; asked only while there may be something to say, since there may be many entries.
        """
        with self._lock:
            if reason not in self._counts and len(self._counts) >= MAX_REASONS:
                reason = OTHER
            self._counts[reason] = self._counts.get(reason, 0) + 1
            text = None if said else self._due(reason, fast_calls)
        if text is not None:
            warn(text, FallbackWarning)

    def _due(self, reason: str, fast_calls: Callable[[], int]) -> str | None:
        """What is to be said now: each of the two warnings once, and of gradients never twice."""
        if reason == GRADIENTS:
            first, self._told_of_gradients = not self._told_of_gradients, True
            return _GRADIENTS_SENTENCE if first else None
        if self._warned:
            return None
        missed = sum(self._counts.values())
        calls = missed + fast_calls()
        untold = {why: count for why, count in self._counts.items() if why != GRADIENTS or not self._told_of_gradients}
        if calls < MIN_CALLS or sum(untold.values()) <= MAX_SHARE * calls:
            return None
        self._warned = True
        return _sentence(untold, missed, calls, self._of)

    def total(self) -> int:
        """All of them; without the lock, so that it can be asked right after a fork."""
        return sum(list(self._counts.values()))

    def snapshot(self) -> dict[str, int]:
        """Reasons and how often, most frequent first."""
        with self._lock:
            return dict(sorted(self._counts.items(), key=lambda item: -item[1]))


class Recompiles:
    """Counts the programs that training builds after its warm-up, and says once when they are a pattern."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, built: int) -> None:
        """So many more."""
        before, self.count = self.count, self.count + built
        if before < MANY_RECOMPILES <= self.count:
            warn(
                f"torch.compile built {self.count} programs after the warm-up; 'compilot doctor' shows why.",
                FallbackWarning,
            )


def _sentence(counts: Mapping[str, int], missed: int, calls: int, of: str) -> str:
    top = max(counts, key=lambda reason: counts[reason])
    return (
        f"{missed} of {calls} calls{of} missed the fast path and were answered by eager; most often: {top} "
        f"({counts[top]} times). To fix it: {advice(top)}."
    )


def advice(reason: str) -> str:
    """What the user can do about a reason."""
    for word, what in _ADVICE:
        if re.search(rf"\b{word}\b", reason):
            return what
    return "make the call as the plan's example was, or tune again with this call as the example"


_GRADIENTS_SENTENCE = (
    f"called with {GRADIENTS}, so eager answered and the plan was not used: {advice(GRADIENTS)}. This is said once; "
    "stats() counts such calls."
)
