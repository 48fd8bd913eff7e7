"""The same metrics for OpenTelemetry. In: a Swap, and a meter or the global one. Out: instruments that ask `stats()`
whenever they are read. Needs opentelemetry-api (the extra `otel`); without an SDK they cost nothing."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from compilot.errors import EnvironmentProblem
from compilot.serve.metrics import label_of
from compilot.serve.records import SwapState, SwapStats

if TYPE_CHECKING:
    from compilot.serve.swap import Swap

INSTALL = "OpenTelemetry metrics need opentelemetry-api; install it with: pip install 'compilot[otel]'"
Row = tuple[float, dict[str, str]]


def observe(swap: Swap, meter: Any = None) -> None:
    """Have compilot.* of this Swap in OpenTelemetry; meter: None for the global one."""
    try:
        from opentelemetry import metrics
    except ModuleNotFoundError as missing:
        raise EnvironmentProblem(f"{INSTALL}.") from missing
    meter = meter or metrics.get_meter("compilot")
    found = weakref.ref(swap)

    def asked(rows: Callable[[SwapStats], Iterable[Row]]) -> Callable[[Any], list[Any]]:
        def answer(_: Any) -> list[Any]:
            one = found()
            return [] if one is None else [metrics.Observation(*row) for row in rows(one.stats())]

        return answer

    for name, rows, words in _COUNTERS:
        meter.create_observable_counter(name, callbacks=[asked(rows)], description=words)
    meter.create_observable_gauge(
        "compilot.swap.state", callbacks=[asked(_states)], description="1 for the state that it is in."
    )


def _calls(stats: SwapStats) -> list[Row]:
    return [
        (stats.fast, {"path": "fast", "entry": stats.plan}),
        (stats.eager, {"path": "eager", "entry": ""}),
        (sum(stats.fallbacks.values()), {"path": "fallback", "entry": ""}),
    ]


def _fallbacks(stats: SwapStats) -> list[Row]:
    found: dict[str, int] = {}
    for reason, count in stats.fallbacks.items():
        found[label_of(reason)] = found.get(label_of(reason), 0) + count
    return [(count, {"reason": reason}) for reason, count in found.items()]


def _states(stats: SwapStats) -> list[Row]:
    return [(float(state is stats.state), {"state": str(state)}) for state in SwapState]


_COUNTERS: tuple[tuple[str, Callable[[SwapStats], Iterable[Row]], str], ...] = (
    ("compilot.calls", _calls, "Answered calls."),
    ("compilot.fallbacks", _fallbacks, "Calls that eager answered although a plan is live."),
    ("compilot.swaps", lambda s: [(n, {"outcome": o}) for o, n in s.swaps.items()], "Plans that went live, or back."),
    ("compilot.shadow.compared", lambda s: [(s.compared, {})], "Calls compared with eager."),
    ("compilot.shadow.mismatches", lambda s: [(s.mismatches, {})], "Answers that were not eager's."),
    ("compilot.recompiles", lambda s: [(s.recompiles, {})], "Programs built after the plan went live."),
    ("compilot.build.duration", lambda s: [(s.build_s, {})], "Seconds of building and fetching."),
)
