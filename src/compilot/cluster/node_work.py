"""What a worker does on its node: it wraps the runner of one machine. Knows nothing of Ray.

In: orders of the driver, one after another. Out: what the local runner gives, files by piece, events. Everything lies
in a private folder of the node that goes away with the worker; what a killed one left is removed by the next.
Covered: the user's code and the model under the node's own paths, and paths that go back as the driver knows them.
Not covered: processes and threads of the worker itself (worker.py), who does what (runner.py).
"""

from __future__ import annotations

import contextlib
import importlib
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import msgspec

from compilot.artifacts.rundir import RunDir
from compilot.cluster import code, moving
from compilot.cluster.events import Events
from compilot.cluster.facts import CodeFolder, FileFact, Order, Tried
from compilot.errors import WorkerError
from compilot.files.locks import hold_shared, is_locked
from compilot.records import HostLease, Race, Shipment, Trial
from compilot.trials.local import LocalRunner
from compilot.trials.runner import Capacity, FreshSet, Inspection, Job, Model, RaceRules, SetRules
from compilot.tuning.pipeline import local_runner

LOG_BYTES = 1 << 20  # of a worker's stderr that the driver gets
ALIVE = ".alive"
EARLY = ".new-"  # begins the name of a folder that is not locked yet
FOLDER = "COMPILOT_NODE_FOLDER"  # where the folders of nodes are made; the system's temporary folder without it

T = TypeVar("T")


class NodeWork:
    """One node's part of one run."""

    def __init__(self, name: str, events: Events) -> None:
        self.name = name
        self.events = events
        self.root = _own_folder()
        self._stack = ExitStack()
        self._runner: LocalRunner | None = None
        self._places: dict[str, Path] = {}  # root on the driver -> where its files are here

    # ------------------------------------------------------------------------------------------------------ files

    def missing_code(self, folders: Sequence[CodeFolder]) -> list[CodeFolder]:
        """Those that must be brought; who has the same files at the same path uses these."""
        for one in folders:
            same = not moving.lacking(Path(one.root), one.files)
            self._places[one.root] = Path(one.root) if same else self._place(f"code/{one.key}")
        return [one for one in folders if self._places[one.root] != Path(one.root)]

    def lacking(self, place: str, files: Sequence[FileFact]) -> list[FileFact]:
        """The files of a place that are not here as they should be."""
        return moving.lacking(self._place(place), files)

    def write(self, place: str, name: str, offset: int, data: bytes) -> None:
        """Take one piece."""
        moving.write(self._place(place), name, offset, data)

    def settle(self, place: str, files: Sequence[FileFact], exchange: str | None, large: Sequence[FileFact]) -> None:
        """Everything of a place was sent."""
        moving.settle(self._place(place), files, exchange, large)

    def read(self, place: str, name: str, offset: int) -> bytes:
        """Give one piece."""
        return moving.read(self._place(place), name, offset)

    def offer(self, place: str, files: Sequence[FileFact], exchange: str) -> None:
        """Put files where all machines reach them."""
        moving.offer(self._place(place), files, exchange)

    def place_of(self, root: str, key: str) -> Path:
        """Where the files of a root are here."""
        return self._places.get(root) or self._place(f"code/{key}")

    def _place(self, place: str) -> Path:
        return moving.inside(self.root, place)

    # ------------------------------------------------------------------------------------------------------ a run

    def open(self, order: Order) -> Model:
        """Start eager's worker here."""
        self.end_run()
        run_dir = RunDir.make(self.root / "run")
        shipment = self._here(order, run_dir)
        self._know_code(shipment)
        runner = local_runner(run_dir, order.options, self.events, examine=order.doctor)
        self._runner = self._stack.enter_context(runner)
        model = runner.open(shipment)
        ref = msgspec.structs.replace(model.ref, target=order.shipment.target and model.ref.target)
        return Model(self._back(ref), tuple(self._text_back(note) for note in model.notes))

    def _here(self, order: Order, run_dir: RunDir) -> Shipment:
        shipment = code.translated(order.shipment, self._places, self.root)
        if not order.live:
            return shipment
        payload, weights = (str(self.root / "live" / path.name) for path in (run_dir.payload, run_dir.weights))
        return msgspec.structs.replace(shipment, payload=payload, weights=weights)

    def _know_code(self, shipment: Shipment) -> None:
        """Engines that the driver registered are known to this process, too."""
        sys.path.extend(entry for entry in shipment.sys_path if entry not in sys.path)
        for name in shipment.engine_modules:
            importlib.import_module(name)

    def inspect(self) -> Inspection:
        """Look at eager here."""
        seen = self._runs.inspect()
        told = seen.doctor if seen.doctor is None or isinstance(seen.doctor, str) else self._back(seen.doctor)
        return seen._replace(diagnosis=self._back(seen.diagnosis), doctor=told)

    def trial(self, job: Job) -> Tried:
        """One trial, and what it left."""
        self.events.begin(job.candidate)
        runner = self._runs
        runner.submit([job])
        [trial] = runner.completed()
        trial = msgspec.structs.replace(self._back(trial), leases=self._named(trial.leases))
        files = self.kept_files(job.candidate.id) if trial.artifacts else ()
        return Tried(trial, files, self._log(trial), runner.capacity)

    def kept_files(self, candidate_id: str) -> tuple[FileFact, ...]:
        """What a candidate's folder holds."""
        return moving.listed(self._runs.run_dir.workspace(candidate_id))

    def keep(self, ids: Sequence[str]) -> None:
        """Let go of the others' workers."""
        self._runs.keep(ids)

    def race(self, trials: Sequence[Trial], rules: RaceRules) -> Race:
        """Race live workers here."""
        race = self._runs.race(trials, rules)
        return msgspec.structs.replace(race, leases=self._named(race.leases))

    def confirm(self, trials: Sequence[Trial], rules: SetRules) -> FreshSet:
        """One set of fresh processes here."""
        one = self._runs.confirm(trials, rules)
        return one._replace(leases=self._named(one.leases), machine=self.name)

    def built_alone(self, trial: Trial, limit_s: float) -> Trial:
        """One more cold build here."""
        return self._runs.built_alone(trial, limit_s)

    def over_many_steps(self, trial: Trial, limit_s: float) -> Trial:
        """Losses over many steps here."""
        return self._runs.over_many_steps(trial, limit_s)

    def capacity(self) -> Capacity:
        """Of this machine."""
        return self._runs.capacity

    def end_run(self) -> None:
        """End every process of the run."""
        self._stack.close()
        self._runner = None

    def close(self) -> None:
        """The same, and the files."""
        try:
            self.end_run()
        finally:
            shutil.rmtree(self.root, ignore_errors=True)

    @property
    def _runs(self) -> LocalRunner:
        if self._runner is None:
            raise WorkerError(f"nothing was opened on {self.name}.")
        return self._runner

    def _named(self, leases: Sequence[HostLease]) -> tuple[HostLease, ...]:
        return tuple(msgspec.structs.replace(one, node=self.name) for one in leases)

    def _log(self, trial: Trial) -> bytes:
        with contextlib.suppress(OSError):
            return (self._runs.run_dir.path / trial.stderr_log).read_bytes()[-LOG_BYTES:] if trial.stderr_log else b""
        return b""

    # ------------------------------------------------------------------------------------- paths as the driver has them

    def _back(self, record: T) -> T:
        data = msgspec.json.encode(record)
        for root, place in self._moved():
            data = data.replace(msgspec.json.encode(place)[1:-1], msgspec.json.encode(root)[1:-1])
        return msgspec.json.decode(data, type=type(record))

    def _text_back(self, text: str) -> str:
        for root, place in self._moved():
            text = text.replace(place, root)
        return text

    def _moved(self) -> list[tuple[str, str]]:
        return [(root.rstrip("/"), str(place)) for root, place in self._places.items() if str(place) != root]


def _own_folder() -> Path:
    """A folder that only this user can look into; those of dead workers go."""
    base = Path(os.environ.get(FOLDER) or tempfile.gettempdir()) / f"compilot-nodes-{os.getuid()}"
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    if base.is_symlink() or base.stat().st_uid != os.getuid():
        raise WorkerError(f"{base} is somebody else's; set {FOLDER} to a folder of your own.")
    root, held = _locked_folder(base)
    if held:  # where there are no locks nobody can tell who is dead
        _sweep(base)
    return root


def _locked_folder(base: Path) -> tuple[Path, bool]:
    """A new folder, which has its name only when it is locked: a worker that starts at this moment sweeps by name."""
    name = secrets.token_hex(6)
    early = base / f"{EARLY}{name}"
    early.mkdir(mode=0o700)
    (early / ALIVE).touch()
    held = hold_shared(early / ALIVE)  # of the file, whatever it will be called
    if not held:
        (early / ALIVE).unlink()  # without it the folder is nobody's to sweep
    return early.rename(base / name), held


def _sweep(base: Path) -> None:
    for old in base.iterdir():
        if not old.name.startswith(EARLY) and (old / ALIVE).exists() and not is_locked(old / ALIVE):
            shutil.rmtree(old, ignore_errors=True)
