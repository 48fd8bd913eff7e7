"""Metrics in Prometheus' words: plain counters, so that several processes can share them.

In: a Swap. Out: compilot_* in a registry, brought up to date once a second and at every scrape; text for a scrape. With
PROMETHEUS_MULTIPROC_DIR set, as servers with several workers do, whoever is scraped answers for all of them. The calls
of several Swaps in one process add up. Needs prometheus-client (the extra `serve`).

compilot_calls_total{path,entry}        answers: path is fast, eager (its turn) or fallback; entry is the plan
compilot_fallbacks_total{reason}        answered by eager although a plan is live
compilot_call_duration_seconds{path}    of the calls that are looked at: all until live, then the compared ones
compilot_swap_state{state}              how many Swaps are in each state
compilot_swaps_total{outcome}           live, rolled-back
compilot_shadow_compared_total, compilot_shadow_mismatches_total
compilot_recompiles_total               programs built in this process after the plan went live
compilot_build_duration_seconds         wall time of the children that built or fetched
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from compilot.errors import EnvironmentProblem
from compilot.runtime.forking import tell_after_fork
from compilot.serve.durations import BUCKETS_S
from compilot.serve.records import SwapState, SwapStats

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from compilot.serve.swap import Swap

INSTALL = "metrics need prometheus-client; install it with: pip install 'compilot[serve]'"
SHARED_BY_PROCESSES = "PROMETHEUS_MULTIPROC_DIR"
BUILD_BUCKETS_S = (1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
MOST_REASONS = 20  # a label for each: what sizes are in a reason goes to the event log, not into labels


class _Instruments:
    """The instruments of one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        from prometheus_client import Counter, Gauge, Histogram

        self.registry = registry
        self.calls = Counter("compilot_calls", "Answered calls.", ["path", "entry"], registry=registry)
        self.fallbacks = Counter(
            "compilot_fallbacks", "Calls that eager answered although a plan is live.", ["reason"], registry=registry
        )
        self.durations = Histogram(
            "compilot_call_duration_seconds",
            "Time of the calls that are looked at.",
            ["path"],
            buckets=BUCKETS_S,
            registry=registry,
        )
        self.state = Gauge(
            "compilot_swap_state", "Swaps in each state.", ["state"], registry=registry, multiprocess_mode="livesum"
        )
        self.swaps = Counter("compilot_swaps", "Plans that went live, or back.", ["outcome"], registry=registry)
        self.compared = Counter("compilot_shadow_compared", "Calls compared with eager.", registry=registry)
        self.mismatches = Counter("compilot_shadow_mismatches", "Answers that were not eager's.", registry=registry)
        self.recompiles = Counter("compilot_recompiles", "Programs built after the plan went live.", registry=registry)
        self.builds = Histogram(
            "compilot_build_duration_seconds",
            "Time of building and fetching.",
            buckets=BUILD_BUCKETS_S,
            registry=registry,
        )


_made: weakref.WeakKeyDictionary[Any, _Instruments] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


class Metrics:
    """The metrics of one Swap."""

    def __init__(self, swap: Swap, registry: CollectorRegistry | None = None) -> None:
        """registry: None for prometheus-client's own, where the rest of the program has its metrics."""
        self._instruments = _instruments(registry)
        self._swap = weakref.ref(swap)
        self._lock = threading.Lock()
        self._told: dict[tuple[str, ...], float] = {}
        self._reasons: set[str] = set()
        self._built = 0
        swap.durations.listener = lambda path, seconds: self._instruments.durations.labels(path).observe(seconds)
        swap.at_each_tick(self.update)
        tell_after_fork(self)

    def after_fork(self) -> None:
        """In a forked child: the thread that held the lock is not there any more."""
        self._lock = threading.Lock()

    def update(self) -> None:
        """Bring the counters up to date with the Swap's."""
        swap = self._swap()
        if swap is None:
            return
        with self._lock:
            self._count(swap.counters())
            for seconds in swap.build_seconds()[self._built :]:
                self._instruments.builds.observe(seconds)
                self._built += 1

    def _count(self, stats: SwapStats) -> None:
        made = self._instruments
        answers = {"fast": stats.fast, "eager": stats.eager, "fallback": sum(stats.fallbacks.values())}
        for path, count in answers.items():
            made.calls.labels(path, stats.plan if path == "fast" else "").inc(self._more(count, "calls", path))
        for reason, count in _by_label(stats.fallbacks, self._reasons).items():
            made.fallbacks.labels(reason).inc(self._more(count, "fallbacks", reason))
        for outcome, count in stats.swaps.items():
            made.swaps.labels(outcome).inc(self._more(count, "swaps", outcome))
        for counter, count, name in (
            (made.compared, stats.compared, "compared"),
            (made.mismatches, stats.mismatches, "mismatches"),
            (made.recompiles, stats.recompiles, "recompiles"),
        ):
            counter.inc(self._more(count, name))
        for state in SwapState:
            before, now = self._told.get(("state", state), 0.0), float(state is stats.state)
            made.state.labels(state).inc(now - before)
            self._told["state", state] = now

    def _more(self, count: int, *name: str) -> float:
        """How many since the last time; never fewer: calls under way are counted late."""
        before = self._told.get(name, 0.0)
        self._told[name] = max(before, float(count))
        return max(0.0, count - before)

    def text(self) -> tuple[bytes, str]:
        """What a scrape gets, and its content type."""
        from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
        from prometheus_client.multiprocess import MultiProcessCollector

        self.update()
        if not os.environ.get(SHARED_BY_PROCESSES):
            return generate_latest(self._instruments.registry), CONTENT_TYPE_LATEST
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry), CONTENT_TYPE_LATEST


def _instruments(registry: CollectorRegistry | None) -> _Instruments:
    try:
        from prometheus_client import REGISTRY
    except ModuleNotFoundError as missing:
        raise EnvironmentProblem(f"{INSTALL}.") from missing
    registry = registry or REGISTRY
    with _lock:
        if registry not in _made:
            _made[registry] = _Instruments(registry)
        return _made[registry]


def _by_label(fallbacks: Mapping[str, int], known: set[str]) -> dict[str, int]:
    """Reasons without the sizes and counts in them, so that there are few labels."""
    found: dict[str, int] = {}
    for reason, count in fallbacks.items():
        label = label_of(reason)
        if label not in known and len(known) >= MOST_REASONS:
            label = "other"
        known.add(label)
        found[label] = found.get(label, 0) + count
    return found


def label_of(reason: str) -> str:
    """What kind of reason it is: "shape of args[0]: 7x64, plan has 4x64" is "shape of args[0]"."""
    if reason.startswith("thread count"):
        return "thread count"
    return reason.partition(":")[0]
