"""What a user hands over, ready for a worker process. In: a model with its inputs, a Workload, or a target string.

Out: a shipment, a name for people, a run directory, somebody who shows the progress. Shared by the functions that run a
model: tune, bench, examine. A target is not opened here: a worker does that.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compilot.artifacts.rundir import RunDir
from compilot.errors import InputError
from compilot.progress import Observer
from compilot.records import DynamicDim, Shipment
from compilot.showing import watching

if TYPE_CHECKING:
    from torch import nn

    from compilot.workload import Workload
    from compilot.workload.dynamic import DynamicSpec
    from compilot.workload.pad_spelling import PadSpec

RUNS = Path("compilot-runs")


def opened(model: nn.Module | Workload | str, args: Any, kwargs: Mapping[str, Any] | None) -> Workload | str:
    """The model with its inputs as one thing; a target brings its own inputs."""
    if not isinstance(model, str):
        return _workload(model, args, kwargs)
    if args or kwargs:
        raise InputError("a target brings its own inputs; leave out args and kwargs.")
    return model


def _workload(model: nn.Module | Workload, args: Any, kwargs: Mapping[str, Any] | None) -> Workload:
    from compilot.workload import Workload

    if not isinstance(model, Workload):
        return Workload(model, args, kwargs)
    if kwargs or not isinstance(args, tuple | list) or len(args):
        raise InputError("a Workload brings its own inputs; leave out args and kwargs.")
    return model


def shipped(
    workload: Workload | str,
    folder: Path,
    dims: Sequence[DynamicDim] = (),
    seed: int | None = None,
    padding: PadSpec | None = None,
) -> Shipment:
    """What a worker needs to run it; live objects are written into the folder. seed: None for the model's own.

    padding: besides the workload's own.
    """
    from compilot.workload.dispatch import ship_target

    if isinstance(workload, str):
        return ship_target(workload, seed=seed, extra_dynamic=dims, padding=padding)
    from compilot.workload.shipping import ship

    RunDir(folder).refuse_second_run("choose another folder")  # before its payload would be overwritten
    both = {**workload.padding, **(padding or {})}
    return ship(workload.replaced(seed=seed, padding=both).with_dynamic(dims), folder)


def as_dims(dynamic: DynamicSpec | None) -> tuple[DynamicDim, ...]:
    """The declared dimensions; records stay in their order, since of two for one dimension the later counts."""
    from compilot.workload import dynamic as spelling

    if dynamic is None or isinstance(dynamic, Mapping):
        return spelling.as_dims(dynamic)
    return tuple(dynamic)


def name_of(workload: Workload | str) -> str:
    """What its files are called: the factory's name, or the model's class."""
    return workload.rpartition(":")[2] if isinstance(workload, str) else workload.label


def run_dir_for(out: str | os.PathLike[str] | None, name: str) -> Path:
    """Where a run goes: the user's choice, or a new directory of this name."""
    return (default_run_dir(name) if out is None else Path(out)).absolute()


def default_run_dir(name: str) -> Path:
    """compilot-runs/NAME-TIMESTAMP, UTC; with a number where an earlier run of the same second has that name."""
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-") or "run"
    first = f"{safe}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    names = (first if number == 1 else f"{first}-{number}" for number in itertools.count(1))
    return next(path for path in map(RUNS.joinpath, names) if not path.exists())


def watched(observer: Observer | None, budget_s: float | None, progress: bool) -> AbstractContextManager[Observer]:
    """Who hears of the progress: the user's own observer, or what fits the place where it is shown."""
    return watching(budget_s, quiet=not progress) if observer is None else nullcontext(observer)
