"""`stats()` of a Swap: one record from its counters. In: a Swap. Out: SwapStats. Reading changes nothing."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from compilot.runtime.counting import count_of
from compilot.serve.records import Pairs, SwapStats

if TYPE_CHECKING:
    from compilot.serve.swap import Swap


def summary(swap: Swap) -> SwapStats:
    """The counters as they are now."""
    trial = swap._rolling or swap._live
    counts = sum((one.counts() for one in (swap._live, swap._rolling) if one is not None), swap._retired.copy())
    fallbacks = swap.sentinel.by_reason()
    calls, eager = count_of(swap._numbers), count_of(swap._by_eager)
    spent = [one.spent for one in swap._builds if one.spent is not None]
    return SwapStats(
        state=swap.state,
        reason=swap.reason,
        plan=trial.label if trial else "",
        digest=trial.digest if trial else "",
        calls=calls,
        fast=max(0, calls - eager - sum(fallbacks.values())),
        eager=eager,
        fallbacks=fallbacks,
        compared=counts["compared"],
        mismatches=counts["mismatches"],
        failures=counts["failures"],
        recompiles=counts["recompiles"],
        pairs=trial.pairs.summary() if trial else Pairs(),
        swaps=dict(swap._standing.swaps),
        builds=len(spent),
        build_s=sum(one.seconds for one in spent),
        build_cpu_s=sum(one.cpu_s for one in spent),
        build_peak_memory_bytes=max((one.peak_memory_bytes for one in spent), default=0),
        threads=tuple(sorted(trial.threads)) if trial else (),
    )


def pss_bytes(pid: int | None = None) -> int | None:
    """A process's share of memory: pages that several have count in parts. None: the system does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid or os.getpid()}/smaps_rollup") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
    return None
