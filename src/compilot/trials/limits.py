"""Limits of one trial and the machine they leave room for.

In: memory facts. Out: deadlines per step, workers alive at once.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import psutil

from compilot.engines.traits import COMPILE_CACHE

MEMORY_SHARE = 0.8  # of what is available: the rest is the user's desktop and the page cache
SHORTEST_STEP_S = 5.0  # a step that is under way is worth this much
LEAST_OPEN_S = 30.0  # importing torch and transformers from a cold disk takes 10 to 20 s, whatever the budget
OPEN_SHARE = 0.5  # of the budget: eager, one candidate and the confirmation open the target again, so more is too slow
FEWEST_ARMS = 2  # a paired measurement needs two live processes


class Limits(NamedTuple):
    """Deadlines per step, in seconds, and the memory limits of a worker's process tree."""

    open_s: float = 300.0  # for commands without a budget: tens of gigabytes of weights take minutes from a slow disk
    inspect_s: float = 600.0
    prepare_s: float = 180.0
    build_s: float = 600.0
    check_s: float = 300.0
    warm_s: float = 20.0
    memory_bytes: int | None = None  # of a candidate, at any moment
    machine_bytes: int | None = None  # of eager, without which nothing can be judged: what the machine can spare
    cold_s: float | None = None  # of a candidate: build and first call, as the user limits them
    follows_budget: bool = False  # open_s is a share of the run's budget

    def within(self, budget_s: float) -> Limits:
        """The same limits for a run with this budget: what cannot be opened in its time is not waited for."""
        return self._replace(open_s=max(LEAST_OPEN_S, OPEN_SHARE * budget_s), follows_budget=True)

    def capped(self, seconds: float) -> Limits:
        """The same limits with no step of a trial longer than this."""
        cap = max(seconds, SHORTEST_STEP_S)
        return self._replace(
            open_s=min(self.open_s, cap),
            build_s=min(self.build_s, cap),
            check_s=min(self.check_s, cap),
            warm_s=min(self.warm_s, cap),
        )


def default_memory_limit() -> int:
    """Bytes a worker's process tree may use: a share of what is available now."""
    return int(psutil.virtual_memory().available * MEMORY_SHARE)


def affordable_workers(rss_bytes: int, available_bytes: int) -> int:
    """How many workers of this size may live at once without a swap storm; at least two, or nothing can be paired."""
    return max(FEWEST_ARMS, int(available_bytes * MEMORY_SHARE) // max(rss_bytes, 1))


def worker_env(workspace: Path) -> dict[str, str]:
    """A worker's environment: its own compile cache, nothing that would mix candidates."""
    return {**shared_env(), "TORCHINDUCTOR_CACHE_DIR": str(workspace / COMPILE_CACHE)}


def shared_env() -> dict[str, str]:
    """What is the same for all workers."""
    env = dict(os.environ)
    env["PYTHONUNBUFFERED"] = "1"
    env.setdefault("TOKENIZERS_PARALLELISM", "false")
    env.pop(
        "TORCH_CACHING_PRECOMPILE", None
    )  # its key ignores mode and options: candidates would get each other's code
    return env
