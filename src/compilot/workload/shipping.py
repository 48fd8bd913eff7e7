"""How a workload reaches a child process.

In: a Workload and a folder. Out: a Shipment (a record), and in the child the same Workload again.
A workload from a target travels as the target; live objects travel by cloudpickle, their weights written once and
mapped by every child, with torch's default dtype. The parent's sys.path and working directory go along.
Covered: classes from scripts, notebooks and modules that only the parent can find. Not covered: another machine.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import torch

from compilot.artifacts.rundir import RunDir
from compilot.engines import registry
from compilot.errors import EnvironmentProblem, RunDirError, UnpicklableError
from compilot.records import Kind, Shipment
from compilot.workload.culprit import find_culprit
from compilot.workload.place import absolute_target
from compilot.workload.target import load_target
from compilot.workload.training import Training
from compilot.workload.variations import at_sizes
from compilot.workload.weights import WeightsPickler, WeightsUnpickler, WeightsWriter
from compilot.workload.workload import Workload

_ADVICE = 'put the construction into a file and pass "file.py:factory"'


def ship(workload: Workload, folder: Path) -> Shipment:
    """Write what children need into the folder; sets payload_sha256 of a workload of live objects."""
    cwd = str(Path.cwd())
    path = tuple(os.path.abspath(entry) for entry in sys.path)  # "" and relative entries mean the parent's cwd
    if workload.target is not None:
        target, modules = absolute_target(workload.target), registry.registered_modules()
        return Shipment(ref=workload.ref, target=target, engine_modules=modules, sys_path=path, cwd=cwd)
    payload, weights = RunDir(folder.absolute()).payload, RunDir(folder.absolute()).weights
    try:
        folder.mkdir(parents=True, exist_ok=True)
        workload.payload_sha256 = _write(workload, payload, weights)
    except OSError as problem:
        raise RunDirError(
            f"cannot write the model into {folder}: {problem.strerror}; choose another folder."
        ) from problem
    return Shipment(
        ref=workload.ref,
        payload=str(payload),
        weights=str(weights),
        engine_modules=registry.registered_modules(),
        sys_path=path,
        cwd=cwd,
        default_dtype=str(torch.get_default_dtype()),
    )


def unship(shipment: Shipment) -> Workload:
    """The workload again, in another process; its seed, grad mode, dynamic dimensions and sizes are the shipment's."""
    workload = _unshipped(shipment)
    return at_sizes(workload, shipment.example_sizes) if shipment.example_sizes else workload


def _unshipped(shipment: Shipment) -> Workload:
    sys.path.extend(entry for entry in dict.fromkeys(shipment.sys_path) if entry not in sys.path)
    try:
        os.chdir(shipment.cwd)
    except OSError as problem:
        raise EnvironmentProblem(f"the working directory {shipment.cwd} is gone: {problem.strerror}.") from problem
    for name in shipment.engine_modules:
        importlib.import_module(name)
    if shipment.default_dtype is not None:
        torch.set_default_dtype(getattr(torch, shipment.default_dtype.removeprefix("torch.")))
    workload = load_target(shipment.target) if shipment.target is not None else _read(shipment)
    ref = shipment.ref
    if ref is None:  # a target nobody has opened yet: its own word counts, and what was asked for on top
        padding = {**workload.padding, **shipment.padding}
        workload = workload.replaced(seed=shipment.seed, padding=padding)
        return _replaying(workload.with_dynamic(shipment.extra_dynamic), shipment)
    workload = workload.replaced(seed=ref.seed, grad=ref.grad, dynamic=ref.dynamic, padding=ref.padding)
    workload.label, workload.target, workload.payload_sha256 = ref.label, ref.target, ref.payload_sha256
    return _replaying(workload, shipment)


def _replaying(workload: Workload, shipment: Shipment) -> Workload:
    """With the requests of a trace as its work, where some were shipped."""
    if not shipment.replay:
        return workload
    from compilot.workload.replay import declared_by, replayed  # here: most shipments have no trace

    if shipment.replay_later:
        return declared_by(workload, shipment.replay, shipment.replay_ranges)
    return replayed(workload, shipment.replay, shipment.replay_ranges)


def _write(workload: Workload, payload: Path, weights: Path) -> str:
    parts = _parts(workload)
    part_files = [path.with_name(path.name + ".part") for path in (payload, weights)]
    with _private(part_files[0]) as structure, _private(part_files[1]) as storages:
        writer = WeightsWriter(storages)
        with _by_value(_lost_modules(workload)):
            _dump(parts, structure, writer)
    digest = hashlib.sha256(part_files[0].read_bytes() + writer.hexdigest().encode()).hexdigest()
    for part, final in zip(part_files, (payload, weights), strict=True):
        part.replace(final)
    return digest


def _parts(workload: Workload) -> dict[str, Any]:
    state = vars(workload)
    return {**{name: state[name] for name in sorted(state)}, "payload_sha256": None}


def _dump(parts: dict[str, Any], file: Any, writer: WeightsWriter) -> None:
    try:
        WeightsPickler(file, writer).dump(parts)
    except OSError:
        raise
    except Exception as problem:
        culprit = _first_culprit(parts)
        raise UnpicklableError(
            f"{culprit} cannot be sent to a worker process ({type(problem).__name__}: {problem}); {_ADVICE}."
        ) from problem


def _first_culprit(parts: dict[str, Any]) -> str:
    names = {"_inputs": "inputs", "_items": "items", "_batches": "batches", "make_optimizer": "optimizer"}
    shown = {names.get(name, name): part for name, part in parts.items()}
    return find_culprit(shown, "").removeprefix("['").replace("']", "", 1)


def _private(path: Path) -> Any:
    """A new file that only its owner may read: it holds the user's weights, and children unpickle it."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _lost_modules(workload: Workload) -> list[ModuleType]:
    """Modules that define parts of the model but that a child could not import by name."""
    classes = {kind for module in workload.model.modules() for kind in type(module).__mro__}
    found = {inspect.getmodule(part) for part in (*classes, *workload.functions)}
    return [module for module in found if module is not None and not _importable(module.__name__)]


def _importable(name: str) -> bool:
    top = name.partition(".")[0]
    if top == "__main__":
        return True  # cloudpickle sends it by value by itself
    return any(finder.find_spec(top, None) is not None for finder in sys.meta_path)  # find_spec would ask sys.modules


@contextmanager
def _by_value(modules: list[ModuleType]) -> Iterator[None]:
    fresh = [m for m in modules if m.__name__ not in cloudpickle.list_registry_pickle_by_value()]
    for module in fresh:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in fresh:
            cloudpickle.unregister_pickle_by_value(module)


def _read(shipment: Shipment) -> Workload:
    assert shipment.payload is not None
    assert shipment.weights is not None
    try:
        with open(shipment.payload, "rb") as file:
            parts = WeightsUnpickler(file, Path(shipment.weights)).load()
    except OSError as problem:
        raise EnvironmentProblem(f"cannot read the shipped model {problem.filename}: {problem.strerror}.") from problem
    except (ImportError, AttributeError, pickle.UnpicklingError) as problem:
        raise UnpicklableError(f"the model cannot be rebuilt in a worker process: {problem}; {_ADVICE}.") from problem
    made = Training if parts["kind"] is Kind.TRAINING else Workload
    workload = made.__new__(made)
    vars(workload).update(parts)
    return workload
