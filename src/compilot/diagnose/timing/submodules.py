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

REPEATS = 10
LONG_ENOUGH_S = 5.0  # no more repeats after this


def submodule_times(model: nn.Module, call: Callable[[], Any]) -> tuple[SubmoduleTime, ...]:
    """Each submodule at its quickest over a few calls; a submodule's time is its own and its children's."""
    own = _quickest(model, call)
    classes = {path: type(module).__name__ for path, module in model.named_modules()}
    found = [
        SubmoduleTime(path=path, class_name=classes[path], wall_s=_with_children(path, own), own_s=own_s)
        for path, own_s in own.items()
    ]
    return tuple(sorted(found, key=lambda one: -one.own_s))


def _quickest(model: nn.Module, call: Callable[[], Any]) -> dict[str, float]:
    begin = time.perf_counter()
    best = _one_run(model, call)
    for _ in range(REPEATS - 1):
        if time.perf_counter() - begin > LONG_ENOUGH_S:
            break
        again = _one_run(model, call)
        best |= {path: min(own_s, best.get(path, own_s)) for path, own_s in again.items()}
    return best


def _with_children(path: str, own: dict[str, float]) -> float:
    below = f"{path}." if path else ""
    return sum(own_s for other, own_s in own.items() if other == path or other.startswith(below))


def _one_run(model: nn.Module, call: Callable[[], Any]) -> dict[str, float]:
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
    return dict(clock.own)


class _Clock:
    """A stack of running modules: what a child takes is not its parent's own."""

    def __init__(self) -> None:
        self.own: dict[str, float] = defaultdict(float)
        self._running: list[tuple[str, float]] = []

    def enter(self, path: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any) -> None:
            self._running.append((path, time.perf_counter()))

        return hook

    def leave(self, module: nn.Module, args: Any, output: Any) -> None:
        path, begin = self._running.pop()
        spent = time.perf_counter() - begin
        self.own[path] += spent
        if self._running:
            self.own[self._running[-1][0]] -= spent
