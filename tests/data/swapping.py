"""A small model, an engine that fails as it is told to, and Swaps around them: shared by tests of serving."""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from compilot._tree import Call
from compilot.engines import registry
from compilot.engines.protocol import Loaded, LoadRequest
from compilot.engines.traits import EngineTraits
from compilot.identity.machine import machine_fingerprint
from compilot.identity.model import model_fingerprint
from compilot.records import (
    PLAN_SCHEMA,
    Candidate,
    Evidence,
    Fingerprint,
    Plan,
    PlanEntry,
    Settings,
    Shapes,
    WorkloadRef,
)
from compilot.runtime.guards import make_guard
from compilot.serve import Bounds, Swap, SwapEvent, SwapState

NAME = "faulty"
X = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
QUICK = Bounds(retry_s=0.05, longest_retry_s=0.1, least_free_bytes=0, lock_wait_s=20.0)
LIMIT_S = 60.0  # that a test waits for what takes milliseconds


class Faulty:
    """Answers as the model does; `fault(number, answer)` is its own answer to its call of that number, from 0 on."""

    TRAITS = EngineTraits(version="1")

    def __init__(self) -> None:
        self.fault: Callable[[int, Any], Any] = lambda number, answer: answer
        self.loads = 0
        self.calls = itertools.count()

    def load(self, request: LoadRequest) -> Loaded:
        own = copy.deepcopy(request.model)
        self.loads += 1

        def call(*args: Any, **kwargs: Any) -> Any:
            return self.fault(next(self.calls), own(*args, **kwargs))

        return Loaded(call=call, frozen_weights=True, needs_model=False)


class Tracing(Faulty):
    """As torch.compile: it would be traced where it is loaded."""

    TRAITS = EngineTraits(version="1", compiler_at_start=True, through_dynamo=True)


def small_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).eval()


def plan_of(model: nn.Module, x: torch.Tensor = X, engine: str = NAME, label: str = "") -> Plan:
    guard = make_guard(model, Call((x,), {}), dynamic=(), shapes=Shapes.STATIC, grad=False)
    candidate = Candidate(settings=Settings(engine=engine), label=label or engine, rationale="test")
    return Plan(
        schema=PLAN_SCHEMA,
        compilot="0",
        created="2026-01-01T00:00:00Z",
        workload=WorkloadRef(label="Sequential"),
        fingerprint=Fingerprint(machine=machine_fingerprint(), model=model_fingerprint(model)),
        because="it is small",
        entries=(PlanEntry(guard=guard, candidate=candidate, evidence=Evidence(), sentence="fast"),),
    )


class Serving:
    """A Swap with its events, and calls whose answers are looked at."""

    def __init__(self, model: nn.Module, source: Any, log: Path, **options: Any) -> None:
        self.model = model
        self._events: list[SwapEvent] = []
        usual = {
            "shadow": 0.5,
            "shadow_calls": 4,
            "canary": (0.25, 1.0),
            "canary_calls": 4,
            "margin": 1e9,
            "bounds": QUICK,
        }
        self.swap = Swap(model, source, log=log, **{"on_event": self._events.append, **usual, **options})
        self.wrong = 0

    def ask(self, count: int, x: torch.Tensor = X) -> None:
        """So many calls; wrong answers are counted."""
        with torch.no_grad():
            right = self.model(x)
            for _ in range(count):
                self.wrong += not torch.allclose(self.swap(x), right, atol=1e-5)

    def until(self, *states: SwapState, x: torch.Tensor = X) -> None:
        """Call until one of these states is there; the loading thread needs its turn."""
        self.when(lambda: self.swap.state in states, x=x)

    def when(self, holds: Callable[[], bool], x: torch.Tensor = X) -> None:
        """Call until this holds."""
        end = time.monotonic() + LIMIT_S
        while not holds():
            assert time.monotonic() < end, (self.swap.state, self.swap.reason)
            self.ask(1, x)
            time.sleep(0.001)

    def when_no_call(self, holds: Callable[[], bool]) -> None:
        """Wait, without a call, until this holds."""
        end = time.monotonic() + LIMIT_S
        while not holds():
            assert time.monotonic() < end, (self.swap.state, self.swap.reason)
            time.sleep(0.001)

    def brought(self) -> None:
        """Wait, without a call, until the plan is there."""
        there = (SwapState.SHADOW, SwapState.ROLLED_BACK)
        self.when_no_call(lambda: self.swap.state in there or self.swap._standing.settled)

    @property
    def events(self) -> list[SwapEvent]:
        """Those so far, all of them passed on."""
        self.swap._log.flush(LIMIT_S)
        return self._events

    @property
    def reasons(self) -> str:
        return " | ".join(event.reason for event in self.events)


def registered(engine: Faulty, name: str = NAME) -> Faulty:
    registry.register(name, None, engine, engine.TRAITS)
    return engine
