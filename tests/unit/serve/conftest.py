"""An engine that fails as told, a model, and Swaps that are closed in the end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from swapping import NAME, Faulty, Serving, plan_of, registered, small_model
from torch import nn

from compilot.engines import registry
from compilot.serve.records import BuildJob
from compilot.serve.staying import Later
from compilot.serve.watching import Child, Ran


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPILOT_CACHE", str(tmp_path / "cache"))


class FakeChild:
    """In place of the process that builds: `act(job)` is what it does."""

    def __init__(self) -> None:
        self.jobs: list[BuildJob] = []
        self.act: Callable[[BuildJob], Ran] = refuse

    def run(self, job: BuildJob, model_bytes: int, stop: threading.Event) -> Ran:
        self.jobs.append(job)
        return self.act(job)


def refuse(job: BuildJob) -> Ran:
    raise Later("nothing is built in this test")


@pytest.fixture(autouse=True)
def child(monkeypatch: pytest.MonkeyPatch) -> FakeChild:
    """No test of this folder starts a process, unless it asks for one."""
    fake = FakeChild()
    monkeypatch.setattr(Child, "run", lambda _, job, model_bytes, stop: fake.run(job, model_bytes, stop))
    return fake


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks at the time of a first answer here."""
    monkeypatch.setattr("compilot.serve.swap.FIRST_ANSWER_S", 0.0)


@pytest.fixture
def engine() -> Iterator[Faulty]:
    yield registered(Faulty())
    registry.unregister(NAME)


@pytest.fixture
def model() -> nn.Module:
    return small_model()


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Callable[..., Serving]]:
    """A Swap around a model; by default with a plan for the faulty engine."""
    made: list[Serving] = []

    def make(model: nn.Module, source: Any = ..., **options: Any) -> Serving:
        source = plan_of(model) if source is ... else source
        made.append(Serving(model, source, tmp_path / "events.jsonl", **options))
        return made[-1]

    yield make
    for one in made:
        one.swap.close()


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
