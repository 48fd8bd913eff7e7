"""A captured graph as text: every operator, its shape, whose it is; long ones are cut and say so."""

from __future__ import annotations

import pytest
import torch
from torch import fx, nn

from compilot.diagnose.graphs import listing as listings
from compilot.diagnose.graphs.listing import listing
from compilot.diagnose.graphs.watching import Watch


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first_one = nn.Linear(3, 4)
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layers(self.first_one(x)) * self.scale
        torch._dynamo.graph_break()
        return torch.cat([y, y], dim=1).to(torch.float64)


def test_what_torch_captured_reads_like_the_model() -> None:
    model = Block().eval()
    watch = Watch(model)
    with torch.no_grad():
        torch.compile(model, backend=watch.backend)(torch.ones(2, 3))
    first, second = (graph.text.splitlines() for graph in watch.graphs)
    assert first[:2] == [
        "# first_one",
        "linear: float32[2, 4] = linear(x, first_one.weight, first_one.bias)",
    ]
    assert first[2] == "# layers.0"
    assert "linear(linear, layers.0.weight, layers.0.bias)" in first[3]
    assert first[4] == "# layers.1"
    assert "mul(" in first[-2]
    assert first[-2].endswith("scale)")
    assert first[-1].startswith("return ")
    assert second[0] == "# model"
    assert "cat([y, y], dim=1)" in second[1]
    assert "float64" in second[2]


def test_long_graphs_and_lines_are_cut_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = fx.Graph()
    value = graph.placeholder("x")
    for _ in range(9):
        value = graph.call_method("add", (value, "a" * 300))
    graph.output((value,))
    monkeypatch.setattr(listings, "MOST_LINES", 4)
    lines = listing(graph, lambda node: "").splitlines()
    assert len(lines) == 5
    assert lines[-1] == "... 7 more lines"
    assert all(len(line) <= listings.MOST_LETTERS for line in lines)
    assert lines[1].startswith("add = .add(x, 'aaa")
