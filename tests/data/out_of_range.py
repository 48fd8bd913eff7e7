"""A child process for tests: one engine, one model that uses its inputs as indices, calls in and out of range.

Usage: out_of_range.py ENGINE FOLDER [unguarded]. Prints one JSON line: what eager and the compiled model did with each
call. Without the guard the process may die.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from compilot import indices
from compilot._tree import Call
from compilot.engines import registry
from compilot.engines.protocol import BuildRequest
from compilot.records import Candidate, IndexFacts, Settings, Shapes
from compilot.runtime.fast import attach
from compilot.runtime.guards import make_guard
from compilot.workload import Workload

WIDE = 64
ROWS = 512  # times WIDE: enough for compilers to share the work between threads, where a check that throws is fatal
GOOD = {
    "ids": [1, 2, 3, 4],
    "places": [0, 1, 2, 0],
    "labels": [0, -100, 2, 4],
    "rows": [0, 5, 1, 2],
    "kinds": [0, 3, 6, 1],
}
BAD = {
    "ids": [10, -1, 2**40, -(2**62)],
    "places": [WIDE, -1],
    "labels": [5, -1, -99],
    "rows": [6, -7, 2**31],
    "kinds": [7, -1, 2**33],
}


class Lookups(nn.Module):
    """An embedding, a gather, a loss, advanced indexing, a scatter and a one-hot code, each by an input of its own."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(10, WIDE)
        self.register_buffer("rows", torch.randn(6, WIDE))
        self.head = nn.Linear(WIDE, 5)

    def forward(
        self, ids: torch.Tensor, places: torch.Tensor, labels: torch.Tensor, rows: torch.Tensor, kinds: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        hidden = self.table(ids) + self.rows[rows]
        seen = hidden.gather(1, places[:, None])
        marked = torch.zeros(ROWS, WIDE).scatter(1, places[:, None], 1.0)
        return self.head(hidden + marked), seen, F.cross_entropy(self.head(hidden), labels), F.one_hot(kinds, 7)


def call_with(**changed: list[int]) -> tuple[torch.Tensor, ...]:
    """The values of GOOD over and over, the last of them as given."""
    return tuple(torch.tensor(values * (ROWS // 4 - 1) + changed.get(name, values)) for name, values in GOOD.items())


def outcome(fn: Any, args: tuple[torch.Tensor, ...]) -> str:
    try:
        answer = fn(*args)
    except Exception as error:
        return type(error).__name__
    return " ".join(f"{float(part.double().sum()):.3f}" for part in answer)


def main(engine: str, folder: Path, guarded: bool) -> None:
    model, example = Lookups().eval(), call_with()
    facts = indices.find(Workload(model, example)) if guarded else IndexFacts()
    assert not facts.unproven, facts.unproven
    candidate = Candidate(settings=Settings(engine=engine), label=engine, rationale="test")
    call = Call(example, {})
    how: dict[str, Any] = {"dynamic": (), "shapes": Shapes.STATIC, "grad": False}
    guard = make_guard(model, call, **how, indices=facts.ranges)
    with torch.no_grad():
        registry.build_half(engine).build(BuildRequest(model, call, guard, candidate, folder))
        fast = attach(model, candidate, guard, folder)
        calls = [example, *(_bad(name, value) for name, values in BAD.items() for value in values), example]
        rows = [(outcome(model, args), outcome(fast, args)) for args in calls]
        print(json.dumps({"rows": rows, "fast": fast.stats().fast, "fallbacks": fast.stats().fallbacks}))


def _bad(name: str, value: int) -> tuple[torch.Tensor, ...]:
    return call_with(**{name: [*GOOD[name][:-1], value]})


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1], Path(sys.argv[2]), "unguarded" not in sys.argv[3:])
