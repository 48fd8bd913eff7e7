"""Time per submodule in one eager call.

In: a model and a call. Out: by path, each submodule's own time and how often it ran; as `SubmoduleTime` records the
longest own time first. Measured with forward hooks, which are removed again. A submodule's time is its own and that of
everything below its path: sums of the same figures, so that shares add up however noisy the machine is. Not covered:
submodules whose `forward` is called directly, past the hooks; they count for their caller.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torch import nn

from compilot.diagnose.report_records import SubmoduleTime

REPEATS = 10
LONG_ENOUGH_S = 5.0  # no more repeats after this


class Timed(NamedTuple):
    """One submodule in one call of the model."""

    own_s: float = 0.0  # without what it calls
    calls: int = 0


def submodule_times(model: nn.Module, call: Callable[[], Any]) -> tuple[SubmoduleTime, ...]:
    """Each submodule at its quickest over a few calls; a submodule's time is its own and its children's."""
    times = timed_submodules(model, call)
    whole = with_children(times)
    classes = {path: type(module).__name__ for path, module in model.named_modules()}
    found = [
        SubmoduleTime(path=path, class_name=classes[path], wall_s=whole[path], own_s=timed.own_s)
        for path, timed in times.items()
    ]
    return tuple(sorted(found, key=lambda one: -one.own_s))


def timed_submodules(
    model: nn.Module, call: Callable[[], Any], repeats: int = REPEATS, long_enough_s: float = LONG_ENOUGH_S
) -> dict[str, Timed]:
    """By path, each submodule that ran at its quickest; no more repeats after so many seconds."""
    begin = time.perf_counter()
    best = _one_run(model, call)
    for _ in range(repeats - 1):
        if time.perf_counter() - begin > long_enough_s:
            break
        again = _one_run(model, call)
        for path, timed in again.items():
            best[path] = timed._replace(own_s=min(timed.own_s, best.get(path, timed).own_s))
    return best


def with_children(times: Mapping[str, Timed]) -> dict[str, float]:
    """By path: its own time and that of everything below it; "" has all of it."""
    found = dict.fromkeys(("", *times), 0.0)
    for path, timed in times.items():
        names = path.split(".") if path else []
        for above in {"", *(".".join(names[:end]) for end in range(1, len(names) + 1))}:
            if above in found:
                found[above] += timed.own_s
    return found


def _one_run(model: nn.Module, call: Callable[[], Any]) -> dict[str, Timed]:
    clock = _Clock()
    handles = []
    try:
        for path, module in model.named_modules():
            handles.append(module.register_forward_pre_hook(clock.enter(path)))
            handles.append(module.register_forward_hook(clock.leave, always_call=True))
        call()
    finally:
        for handle in handles:
            handle.remove()
    return clock.seen


class _Clock:
    """A stack of running modules: what a child takes is not its parent's own."""

    def __init__(self) -> None:
        self.seen: dict[str, Timed] = {}
        self._running: list[tuple[str, float]] = []

    def enter(self, path: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any) -> None:
            self._running.append((path, time.perf_counter()))

        return hook

    def leave(self, module: nn.Module, args: Any, output: Any) -> None:
        path, begin = self._running.pop()
        spent = time.perf_counter() - begin
        self._add(path, spent, calls=1)
        if self._running:
            self._add(self._running[-1][0], -spent)

    def _add(self, path: str, own_s: float, *, calls: int = 0) -> None:
        known = self.seen.get(path, Timed())
        self.seen[path] = Timed(known.own_s + own_s, known.calls + calls)
