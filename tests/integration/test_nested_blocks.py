"""Repeated blocks as nested regions of one program: traced once, answers as eager's, the user's model as it was."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from compilot._torch import trace
from compilot._tree import Call
from compilot.engines.inductor.nested import with_nested_blocks
from compilot.engines.protocol import Infeasible
from compilot.records import Candidate, Settings, Shapes
from compilot.runtime.fast import Fast, attach
from compilot.runtime.guards import make_guard
from compilot.runtime.notices import CompilotWarning
from compilot.runtime.weight_watch import INSPECT_EVERY

X = torch.randn(3, 8)


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.factor = nn.Linear(8, 8), 0.5

    def forward(self, x: torch.Tensor, *, mask: torch.Tensor, flags: tuple[bool, Any]) -> torch.Tensor:
        return x + torch.tanh(self.up(x)) * mask * self.factor


class Stack(nn.Module):
    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Mixer() for _ in range(blocks))
        self.scale = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = torch.ones(x.shape[0], 1)
        for layer in self.layers:
            x = layer(x, mask=mask, flags=(True, None))
        return x * self.scale


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def bodies_of(model: nn.Module) -> list[str]:
    """Which body each nested region of the one graph calls, in order."""
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    answer = torch.compile(with_nested_blocks(model), backend=backend, dynamic=False)(X)
    torch.testing.assert_close(answer, model(X))
    [graph] = graphs
    return [str(node.args[0].target) for node in graph.graph.nodes if "invoke_subgraph" in str(node.target)]


def test_like_blocks_are_one_body_and_the_model_is_not_changed() -> None:
    model = Stack(9).eval()
    before = {name: dict(vars(module)) for name, module in model.named_modules()}
    bodies = bodies_of(model)
    assert (len(bodies), len({*bodies})) == (9, 1)
    assert {name: dict(vars(module)) for name, module in model.named_modules()} == before
    assert {type(layer) for layer in model.layers} == {Mixer}
    assert vars(Mixer.forward) == {}


def test_blocks_that_are_not_quite_alike_have_bodies_of_their_own() -> None:
    """More of them than torch takes unasked."""
    model = Stack(12).eval()
    for number, layer in enumerate(model.layers):
        layer.factor = float(number)
    assert len({*bodies_of(model)}) in (0, 12)  # torch puts what is called once back into the graph


def test_a_model_without_such_blocks_is_refused() -> None:
    with pytest.raises(Infeasible, match="at least 4 times"):
        with_nested_blocks(Stack(3))


@pytest.mark.compiles
def test_a_plan_with_nested_blocks_compiles_one_for_all_and_follows_the_model(compile_cache: Path) -> None:
    model, call, codes = Stack(5).eval(), Call((X,), {}), list[str]()
    settings = Settings(engine="inductor", options={"nested_blocks": True})
    candidate = Candidate(settings=settings, label="", rationale="")
    fast: Fast = attach(
        model, candidate, make_guard(model, call, dynamic=(), shapes=Shapes.STATIC, grad=False), compile_cache
    )
    with trace.generated_code(codes.append):
        fast.prepare(call)
    [code] = codes
    called = re.findall(r"= (\w+)\(\1_args\)", code)
    assert (len(called), len({*called})) == (5, 1)
    torch.testing.assert_close(fast(X), model(X))
    model.layers[2].up.weight.mul_(3)  # weights are read at each call
    torch.testing.assert_close(fast(X), model(X))
    assert (fast.stats().fast, fast.stats().fallbacks, fast.stats().compiles) == (2, {}, 1)
    model.scale = 5.0  # of the part that is cloned: watched by compilot
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CompilotWarning)
        answers = [fast(X) for _ in range(INSPECT_EVERY + 1)]
    torch.testing.assert_close(answers[-1], model(X))
