"""More than eight programs of one model in one process: dynamo's limit on recompiles would make the rest eager."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from compilot._tree import Call
from compilot.records import Candidate, PaddedDim, PaddedInput, PaddedOutput, Padding, Settings, Shapes
from compilot.runtime.fast import attach_parts
from compilot.runtime.guards import make_guard
from compilot.runtime.padded_guards import taken_by
from compilot.runtime.sources import EntryParts

pytestmark = pytest.mark.slow

SIZES = range(2, 14)
ENGINE = Candidate(settings=Settings(engine="dynamo:aot_eager"), label="traced", rationale="")


def entry(model: nn.Module, size: int, padding: Padding | None) -> EntryParts:
    guard = make_guard(model, Call((torch.ones(size, 3),), {}), dynamic=(), shapes=Shapes.STATIC, grad=False)
    guard = guard if padding is None else taken_by(guard, padding)
    return EntryParts(ENGINE, guard, None, name=str(size), padding=padding)


def rows(low: int, size: int) -> Padding:
    inputs, outputs = (PaddedInput(path="args[0]", dim=0),), (PaddedOutput(path="output", dim=0),)
    return Padding(dims=(PaddedDim(min=low, size=size, inputs=inputs, outputs=outputs),))


@pytest.mark.parametrize("padded", [False, True])
def test_every_entry_has_a_program_of_its_own_and_keeps_it(padded: bool) -> None:
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU()).eval()
    parts = [entry(model, 2 * n if padded else n, rows(2 * n - 1, 2 * n) if padded else None) for n in SIZES]
    fast = attach_parts(model, tuple(parts))
    with torch.no_grad():
        for _ in range(3):
            for n in SIZES:
                for batch in (2 * n - 1, 2 * n) if padded else (n,):
                    x = torch.randn(batch, 3)
                    torch.testing.assert_close(fast(x), model(x))
        before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        for n in SIZES:
            fast(torch.randn(2 * n if padded else n, 3))
    stats = fast.stats()
    assert (stats.fast_share, stats.fallbacks, stats.compiles) == (1.0, {}, len(SIZES))
    assert all(one.compiles == 1 for one in stats.entries.values())
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before
    torch._dynamo.reset()
