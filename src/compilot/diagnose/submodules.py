"""Time per submodule in one eager call.

In: a model and a call. Out: `SubmoduleTime` records, the longest own time first. Measured with forward hooks, which are
removed again. Not covered: submodules whose `forward` is called directly, past the hooks; they count for their caller.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from torch import nn

from compilot.diagnose.report_records import SubmoduleTime

REPEATS = 3


def submodule_times(model: nn.Module, call: Callable[[], Any]) -> tuple[SubmoduleTime, ...]:
    """The quickest of a few calls, submodule by submodule."""
    runs = [_one_run(model, call) for _ in range(REPEATS)]
    whole = dict(model.named_modules())
    best = min(runs, key=lambda run: run.get("", (0.0, 0.0))[0])
    found = [
        SubmoduleTime(path=path, class_name=type(whole[path]).__name__, wall_s=wall_s, own_s=own_s)
        for path, (wall_s, own_s) in best.items()
    ]
    return tuple(sorted(found, key=lambda one: -one.own_s))


def _one_run(model: nn.Module, call: Callable[[], Any]) -> dict[str, tuple[float, float]]:
    clock = _Clock()
    handles = []
    for path, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(clock.enter(path)))
        handles.append(module.register_forward_hook(clock.leave, always_call=True))
    try:
        call()
    finally:
        for handle in handles:
            handle.remove()
    return {path: (clock.wall[path], clock.own[path]) for path in clock.wall}


class _Clock:
    """A stack of running modules: what a child takes is not its parent's own."""

    def __init__(self) -> None:
        self.wall: dict[str, float] = defaultdict(float)
        self.own: dict[str, float] = defaultdict(float)
        self._running: list[tuple[str, float]] = []

    def enter(self, path: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any) -> None:
            self._running.append((path, time.perf_counter()))

        return hook

    def leave(self, module: nn.Module, args: Any, output: Any) -> None:
        path, begin = self._running.pop()
        spent = time.perf_counter() - begin
        self.wall[path] += spent
        self.own[path] += spent
        if self._running:
            self.own[self._running[-1][0]] -= spent
