"""Which submodules cannot be regions, and why: what is known here costs no trial.

In: a workload, and paths of submodules. Out: `UnfitPart` records. The model answers its example, and calls at other
declared sizes where there are any, as a clone with hooks; the calls of its submodules are seen on the way, as they are
when a candidate with regions is built (boundary/). Whatever goes wrong means "not known": the build then says why. Not
covered: whether an engine can export a submodule.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from compilot._tree import Call, resolve_dynamic
from compilot.boundary.capture import Opaque, Takes, guard_of
from compilot.boundary.merging import Differs, Unknown
from compilot.boundary.observing import At, Recorder, calls_at, only_answered
from compilot.modules.clone import structural_clone
from compilot.records import Shapes, UnfitPart

if TYPE_CHECKING:
    from compilot.workload import Workload


def unfit_parts(workload: Workload, paths: Iterable[str]) -> tuple[UnfitPart, ...]:
    """Those of the paths that some engines, or all, cannot have as a region."""
    with contextlib.suppress(Exception):  # the user's model may do anything when it is watched; a run needs no hints
        seen = _seen(workload, [*dict.fromkeys(paths)])
        found = [_judged(path, recorder, dynamic=bool(workload.dynamic)) for path, recorder in seen.items()]
        return tuple(part for part in found if part is not None)
    return ()


def _judged(path: str, recorder: Recorder, *, dynamic: bool) -> UnfitPart | None:
    """None: it can be one, or nobody calls it."""
    if recorder.problem:
        return UnfitPart(path=path, why=recorder.problem)
    if not recorder.seen:
        return None
    shapes = Shapes.DYNAMIC if dynamic else Shapes.STATIC
    for exports_only in (False, True):
        try:
            guard_of(recorder, Takes(shapes, ranges=exports_only, objects=not exports_only))
        except (Differs, Unknown, Opaque) as error:
            return UnfitPart(path=path, why=str(error), exports_only=exports_only)
    return None


def _seen(workload: Workload, paths: list[str]) -> dict[str, Recorder]:
    """The calls of the submodules, by path."""
    twin = structural_clone(workload.model)
    recorders = {path: Recorder(twin.get_submodule(path), keep=False) for path in paths}
    now: list[tuple[int, ...]] = [()]
    for path, recorder in recorders.items():
        hook = _hook(recorder, now)
        twin.get_submodule(path).register_forward_pre_hook(hook, prepend=True, with_kwargs=True)
    ranges = resolve_dynamic(workload.dynamic, workload.model.forward, workload.call)
    example, *others = calls_at(workload.call, ranges, workload.seed)
    _run(workload, twin, example, now)
    for other in others:
        with contextlib.suppress(Exception), only_answered(recorders.values()):  # as eager raises on some sizes
            _run(workload, twin, other, now)
    return recorders


def _run(workload: Workload, twin: nn.Module, at: At, now: list[tuple[int, ...]]) -> None:
    now[0] = at.sizes
    with torch.random.fork_rng():
        workload.unit(twin).run(at.call)


def _hook(recorder: Recorder, now: list[tuple[int, ...]]) -> Callable[..., None]:
    def look(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        recorder.look(Call(args, kwargs), now[0])

    return look
