"""A fake engine at the seam: unit tests of the run plane need no compiler."""

from __future__ import annotations

import copy
import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from compilot._tree import Call
from compilot.engines import registry
from compilot.engines.protocol import Baked, Loaded, LoadRequest
from compilot.engines.traits import EngineTraits
from compilot.records import Candidate, DynamicDim, Settings, Shapes
from compilot.runtime.fast import Fast, attach
from compilot.runtime.guards import make_guard

NAME = "fake"


class FakeEngine:
    """Answers as the model would; notes every preparation; can freeze weights and fail on demand."""

    TRAITS = EngineTraits(version="1")

    def __init__(self) -> None:
        self.prepared: list[Call] = []
        self.programs: set[object] = set()
        self.strides: set[tuple[int, ...]] = set()  # of the first input, as `call` saw it
        self.calls = 0
        self.answers: weakref.WeakKeyDictionary[nn.Module, Iterator[int]] = weakref.WeakKeyDictionary()  # counts them
        self.unasked = 0  # of these, answers to fast.prepare(), which serves nobody
        self.frozen = False
        self.concurrent = True
        self.needs_model = True
        self.fail_prepare: Exception | None = None
        self.fail_call: Exception | None = None
        self.slow_prepare: Callable[[], None] = lambda: None

    def load(self, request: LoadRequest) -> Loaded:
        baked: list[nn.Module] = [request.model]
        self.loaded = weakref.ref(request.model)
        answers = self.answers.setdefault(request.model, itertools.count())  # a refresh goes on with the same count

        def answer(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            given = baked[0](*args, **kwargs)
            next(answers)
            return given

        def prepare(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            self.slow_prepare()
            self.prepared.append(Call(args, kwargs))
            self.programs.add(program(args))
            if self.fail_prepare is not None:
                raise self.fail_prepare
            if self.frozen:
                baked[0] = copy.deepcopy(request.model)
            return answer(args, kwargs)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            self.strides.update(arg.stride() for arg in args[:1] if isinstance(arg, torch.Tensor))
            if self.fail_call is not None:
                raise self.fail_call
            return answer(args, kwargs)

        return Loaded(
            call=call,
            prepare=prepare,
            frozen_weights=self.frozen,
            concurrent=self.concurrent,
            needs_model=self.needs_model,
            builds=lambda: len(self.programs),
            baked=Baked.AT_PREPARE,
        )


def program(args: tuple[Any, ...]) -> object:
    """What a compiler would build one program for: the modes, and sizes 0 and 1 apart from all others."""
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    small = [tuple(min(n, 2) for n in t.shape) for t in tensors]
    modes = [(t.is_inference(), t.requires_grad) for t in tensors]
    return torch.is_inference_mode_enabled(), tuple(small), tuple(modes)


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    fake = FakeEngine()
    registry.register(NAME, None, fake)
    yield fake
    registry.unregister(NAME)


@pytest.fixture
def no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


Maker = Callable[..., Fast]


@pytest.fixture
def make_fast(engine: FakeEngine) -> Iterator[Maker]:
    """make_fast(model, *args, dynamic=..., grad=..., inplace=..., **kwargs): the model behind the fake engine.

    The engine's numbers are eager's, so only the counts tell who answered: in the end the engine's own are compared.
    """
    made: list[tuple[Any, Any]] = []  # what counts the calls, and the model that the engine runs; both weakly

    def make(
        model: nn.Module,
        *args: Any,
        dynamic: Sequence[DynamicDim] = (),
        grad: bool = False,
        inplace: bool = False,
        keep_model: bool = True,
        **kwargs: Any,
    ) -> Fast:
        shapes = Shapes.DYNAMIC if dynamic else Shapes.STATIC
        guard = make_guard(model, Call(args, kwargs), dynamic=dynamic, shapes=shapes, grad=grad)
        candidate = Candidate(settings=Settings(engine=NAME, shapes=shapes), label="fake", rationale="test")
        fast = attach(model, candidate, guard, None, inplace=inplace, keep_model=keep_model)
        made.append((weakref.ref(type(fast)._compilot_core), engine.loaded))
        return fast

    yield make
    living = [(core, run) for core, run in ((core(), run()) for core, run in made) if core is not None]
    served, answered = [core.stats().fast for core, _ in living], [next(engine.answers[run]) for _, run in living]
    assert sum(served) == sum(answered) - engine.unasked
