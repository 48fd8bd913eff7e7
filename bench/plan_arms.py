"""Candidates of finished runs as arms of a race: fresh processes that load the very files that were measured.

In: candidates, each with the run folder that holds its files. Out: samples of one set of fresh processes, one column
per arm, the arms in the order given; the same arm may stand twice (A/A). Only one arm runs at a time and the previous
one is idle first (compilot.measure.racing). Every process is an interpreter of its own, none is forked. Not covered:
who races whom and what it means.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from compilot.artifacts.rundir import RunDir
from compilot.errors import CompilotError
from compilot.measure.racing import race
from compilot.progress import Observer
from compilot.records import Candidate, IndexFacts, ProcessSamples, Shipment
from compilot.trials.child import Child, Dead
from compilot.trials.limits import Limits
from compilot.trials.load import LoadWatch
from compilot.trials.nursery import OFF
from compilot.trials.workers import Failure, Workers, refuse_fallbacks

LIMITS = Limits(open_s=600.0, build_s=1200.0)


class Arm(NamedTuple):
    """A candidate and where its files lie."""

    candidate: Candidate
    folder: Path  # of the run that built it


class ArmFailed(Exception):
    """An arm could not be started, or died in a race."""

    def __init__(self, candidate_id: str, reason: str) -> None:
        super().__init__(f"{candidate_id}: {reason}")
        self.candidate_id = candidate_id
        self.reason = reason


class Set(NamedTuple):
    """One set of fresh processes through its rounds."""

    samples: ProcessSamples
    load: str  # what was odd on the machine meanwhile
    wall_s: float


def race_once(shipment: Shipment, arms: Sequence[Arm], indices: IndexFacts, *, process: int, pairs: int) -> Set:
    """One set of fresh processes through its rounds; raises ArmFailed."""
    begin = time.monotonic()
    with live(shipment, arms, indices) as children:
        watch = LoadWatch([child.pid for child in children])
        try:
            samples = race(children, looks=(pairs,), stop=lambda _: True, seed=process)
        except Dead as dead:
            raise ArmFailed(dead.owner, f"in a race: {dead.reason}") from dead
        load = watch.odd()
    return Set(samples, load, round(time.monotonic() - begin, 1))


@contextmanager
def live(shipment: Shipment, arms: Sequence[Arm], indices: IndexFacts) -> Iterator[list[Child]]:
    """Fresh workers: they import side by side, then each loads its files, answers its first call and warms up alone."""
    with _interpreters():
        workers = {folder: _workers(shipment, folder, indices) for folder in dict.fromkeys(a.folder for a in arms)}
        try:
            children = [_begun(workers[arm.folder], arm.candidate) for arm in arms]
            for arm, child in zip(arms, children, strict=True):
                with _blamed(arm):
                    workers[arm.folder].extra_opened(child)
            for arm, child in zip(arms, children, strict=True):
                with _blamed(arm):
                    refuse_fallbacks(child, workers[arm.folder].build(child, LIMITS, reuse=True))
                    workers[arm.folder].warm_up(child, LIMITS)
            yield children
        finally:
            for own in workers.values():
                own.close()
                own.nursery.close()


def _workers(shipment: Shipment, folder: Path, indices: IndexFacts) -> Workers:
    workers = Workers(shipment, RunDir(folder.absolute()), limits=LIMITS, observer=Observer())
    workers.indices = indices
    return workers


def _begun(workers: Workers, candidate: Candidate) -> Child:
    return workers.begin_extra(f"{candidate.id}-raced", candidate)


@contextmanager
def _interpreters() -> Iterator[None]:
    """No forks: whether they are as fast is a question of its own (bench/forking.py)."""
    before = os.environ.get(OFF)
    os.environ[OFF] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[OFF]
        else:
            os.environ[OFF] = before


@contextmanager
def _blamed(arm: Arm) -> Iterator[None]:
    """Whatever goes wrong is this arm's failure."""
    try:
        yield
    except (CompilotError, Failure, Dead) as problem:
        raise ArmFailed(arm.candidate.id, str(problem)) from problem
