"""Arms of bench/engines.py as processes: building them, and racing live workers.

In: a model, arm names, a working folder. Out: the story of a build; samples of interleaved rounds. Every arm is a
worker like compilot's own, over the target `by_hand.py:MODEL__ARM`, with a cache directory that the arm keeps, so that
fresh processes do not compile from nothing. Only one runs at a time and the previous one is idle first
(compilot.measure.racing). Not covered: which race comes when (engines.py), what it means (engines_table.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from compilot.artifacts.rundir import RunDir
from compilot.engines.eager.build import EAGER
from compilot.errors import CompilotError
from compilot.measure.racing import race
from compilot.progress import Observer
from compilot.trials.child import Child, Dead
from compilot.trials.limits import Limits, worker_env
from compilot.trials.load import LoadWatch
from compilot.trials.workers import Failure, Workers
from compilot.workload.dispatch import ship_target
from engines_journal import Built, Raced

BY_HAND = Path(__file__).resolve().parent / "by_hand.py"
WORK = "COMPILOT_BENCH_WORK"  # as by_hand.py reads it
STEP_LIMIT_S = 1200.0  # an autotuned compile of the largest model takes minutes
LIMITS = Limits(open_s=STEP_LIMIT_S, build_s=STEP_LIMIT_S)


class ArmFailed(Exception):
    """An arm could not be started or died in a race."""

    def __init__(self, arm: str, reason: str) -> None:
        super().__init__(f"{arm}: {reason}")
        self.arm = arm
        self.reason = reason


def arm_folder(work: Path, model: str, arm: str) -> Path:
    """The run folder of an arm's workers; its compile cache lies in it."""
    return work / "arms" / model / arm / "workers"


def build(work: Path, model: str, arm: str) -> Built:
    """Build one arm in a process of its own and compare it with eager."""
    workspace = arm_folder(work, model, arm) / "work" / EAGER.id  # where its workers look for the cache
    workspace.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(BY_HAND), model, arm, "--work", str(work.resolve())]
    begin = time.monotonic()
    with (arm_folder(work, model, arm) / "build.log").open("wb") as log:
        try:
            done = subprocess.run(
                command, env=worker_env(workspace), stdout=subprocess.PIPE, stderr=log, timeout=STEP_LIMIT_S
            )
            last = json.loads(done.stdout.decode().strip().splitlines()[-1])
        except subprocess.TimeoutExpired:
            last = {"ok": False, "reason": f"took longer than {STEP_LIMIT_S:.0f} s"}
        except (IndexError, ValueError):
            last = {"ok": False, "reason": f"the process ended with code {done.returncode}"}
    return Built(model=model, arm=arm, **{"wall_s": time.monotonic() - begin, **last})


@contextmanager
def live(work: Path, model: str, arms: Sequence[str]) -> Iterator[list[Child]]:
    """Fresh workers, one per arm: they import side by side, then each answers its first call and warms up alone."""
    os.environ[WORK] = str(work.resolve())
    runners = {arm: _runner(work, model, arm) for arm in dict.fromkeys(arms)}
    try:
        children = [_begin(runners[arm], arm) for arm in arms]
        for step in (Workers.extra_opened, Workers.extra_warm):
            for arm, child in zip(arms, children, strict=True):
                with _blamed(arm):
                    step(runners[arm], child)
        yield children
    finally:
        for runner in runners.values():
            runner.close()
            runner.nursery.close()  # or a process per arm and race stays until the bench ends


def _runner(work: Path, model: str, arm: str) -> Workers:
    shipment = ship_target(f"{BY_HAND}:{model}__{arm}")
    return Workers(shipment, RunDir(arm_folder(work, model, arm)), limits=LIMITS, observer=Observer())


def _begin(runner: Workers, arm: str) -> Child:
    with _blamed(arm):
        child = runner.begin_extra(arm)
    child.owner = arm
    return child


@contextmanager
def _blamed(arm: str) -> Iterator[None]:
    """Whatever goes wrong is this arm's failure."""
    try:
        yield
    except (CompilotError, Failure, Dead) as problem:
        raise ArmFailed(arm, str(problem)) from problem


def race_once(work: Path, model: str, arms: Sequence[str], *, name: str, process: int, pairs: int) -> Raced:
    """One set of fresh processes through its rounds."""
    begin = time.monotonic()
    with live(work, model, arms) as children:
        watch = LoadWatch([child.pid for child in children])
        try:
            samples = race(children, looks=(pairs,), stop=lambda _: True, seed=process)
        except Dead as dead:
            raise ArmFailed(dead.owner, f"in a race: {dead.reason}") from dead
        load = watch.odd()
    wall = time.monotonic() - begin
    return Raced(
        model=model, race=name, process=process, arms=tuple(arms), samples=samples, load=load, wall_s=round(wall, 1)
    )
