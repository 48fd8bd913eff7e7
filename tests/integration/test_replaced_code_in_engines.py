"""Row 36 with real engines: code that is replaced after compile. The files of an engine know nothing of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from compilot._tree import Call
from compilot.engines import registry
from compilot.engines.protocol import BuildRequest
from compilot.errors import CompilotWarning, FallbackWarning
from compilot.records import Candidate, Settings, Shapes
from compilot.runtime import Fast
from compilot.runtime.fast import attach
from compilot.runtime.guards import make_guard
from compilot.runtime.weight_watch import INSPECT_EVERY

X = torch.linspace(0.1, 2.0, 6).reshape(2, 3)
FILES = [
    pytest.param("onnxruntime", marks=pytest.mark.filterwarnings("default::DeprecationWarning")),
    "openvino",
    pytest.param("aoti", marks=pytest.mark.compiles),
]


def make_model() -> Any:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)
            nn.init.uniform_(self.linear.weight, 0.1, 0.2)
            self.act = functional.relu
            self.tail = nn.Sequential(nn.Linear(3, 3), nn.Tanh())

        def shift(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.shift(self.tail(self.act(self.linear(x))))

    torch.manual_seed(0)
    return Model().eval()


def compiled(model: nn.Module, settings: Settings, folder: Path | None, **options: Any) -> Fast:
    guard = make_guard(model, Call((X,), {}), dynamic=(), shapes=Shapes.STATIC, grad=False)
    candidate = Candidate(settings=settings, label=settings.engine, rationale="test")
    if folder is not None and not any(folder.iterdir()):  # all models are alike: one build will do
        build: Any = registry.build_half(settings.engine)
        build.build(BuildRequest(model, Call((X,), {}), guard, candidate, folder))
    fast = attach(model, candidate, guard, folder, **options)
    for _ in range(3):
        torch.testing.assert_close(fast(X), model(X))
    assert fast.stats().fast == 3
    return fast


def forward(model: Any) -> None:
    model.forward = lambda x: x * 7


def act(model: Any) -> None:
    model.act = torch.neg


def method(model: Any) -> None:
    type(model).shift = lambda self, x: x + 100


def own_class(model: Any) -> None:
    model.__class__ = type("Other", (type(model),), {"shift": lambda self, x: x + 50})


def submodules_class(model: Any) -> None:
    model.tail[1].__class__ = nn.Sigmoid


def layer_deleted(model: Any) -> None:
    del model.tail[-1]


def submodules_weights(model: Any) -> None:
    model.tail.load_state_dict({key: value + 1 for key, value in model.tail.state_dict().items()})


def weight(model: Any) -> None:
    model.linear.weight.mul_(3)


@pytest.mark.parametrize("engine", FILES)
def test_row_36_the_files_of_an_engine_do_not_outlive_the_code(engine, tmp_path):
    cases: list[tuple[Callable[[Any], None], int, bool]] = [
        (forward, 0, False),
        (own_class, 0, False),
        (act, INSPECT_EVERY, False),
        (method, INSPECT_EVERY, False),
        (submodules_class, INSPECT_EVERY, False),
        (layer_deleted, INSPECT_EVERY, False),
        (submodules_weights, INSPECT_EVERY, False),
        (weight, 0, True),
    ]
    with torch.no_grad():
        for change, window, strict in cases:
            model = make_model()
            fast = compiled(model, Settings(engine=engine), tmp_path, strict_weights=strict)
            old = model(X)
            change(model)
            assert not torch.allclose(model(X), old), change.__name__
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", CompilotWarning)
                _ = [fast(X) for _ in range(window)]
                assert torch.equal(fast(X), model(X)), change.__name__
            assert [w.category for w in caught] == [FallbackWarning]


AT_ONCE = [forward, own_class]
LATER = [act, method, submodules_class, layer_deleted, submodules_weights]


@pytest.mark.parametrize("light", [False, True])
@pytest.mark.parametrize("change", AT_ONCE + LATER)
def test_row_36_torch_compile_follows_or_eager_answers(change, light):
    model = make_model()
    with torch.no_grad():
        fast = compiled(model, Settings(engine="dynamo:eager", options={"light_guards": light}), None)
        change(model)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CompilotWarning)
            _ = [fast(X) for _ in range(0 if change in AT_ONCE else INSPECT_EVERY)]
            torch.testing.assert_close(fast(X), model(X))
        fast.refresh()
        served = fast.stats().fast
        torch.testing.assert_close(fast(X), model(X))
    assert fast.stats().fast == served + 1
