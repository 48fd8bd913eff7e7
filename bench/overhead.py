"""What compilot adds to one call: `fast(x)` against the engine's own callable, and against eager.

In: nothing. Out: two tables (or --json) of nanoseconds per call, medians over many interleaved rounds in one process.
1. The guard alone, over a stand-in engine that answers at once: the noise of real work would hide it. `--real` compiles
   with Inductor as well. Rows of many entries compare a plan that has them with one that has a
   single one of them; padded rows compare a padded call with one that has the built sizes.
2. A row for each real engine (engines_overhead.py): what marshalling and guard add to its bare call, for a one-tensor
   model and for a small BERT with its Hugging Face output. `--no-engines` leaves them out.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping
from typing import Any

import msgspec
import torch
from torch import nn

import engines_overhead
from compilot._tree import Call
from compilot.engines import registry
from compilot.engines.protocol import Loaded, LoadRequest
from compilot.records import (
    Candidate,
    DynamicDim,
    IndexColumns,
    IndexRange,
    PaddedDim,
    PaddedInput,
    PaddedOutput,
    Padding,
    Settings,
    Shapes,
)
from compilot.runtime.fast import attach, attach_parts
from compilot.runtime.guards import make_guard
from compilot.runtime.padded_guards import taken_by
from compilot.runtime.sources import EntryParts
from engines_overhead import nanoseconds

ROUNDS = 300


class OneOp(nn.Module):
    """One operation on the first input; the others are only passed."""

    def forward(self, *xs: torch.Tensor) -> torch.Tensor:
        return xs[0].relu()


class TenLayers(nn.Module):
    """Ten small layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(8, 8) for _ in range(10)])

    def forward(self, *xs: torch.Tensor) -> torch.Tensor:
        return self.layers(xs[0])


def answer(*xs: torch.Tensor) -> torch.Tensor:
    return xs[0]


class ManyWeights(nn.Module):
    """One operation, and weights that are only held."""

    def __init__(self, tensors: int) -> None:
        super().__init__()
        self.held = nn.ParameterList(torch.randn(8) for _ in range(tensors))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.relu()


class StandIn:
    """An engine that answers at once; `frozen` makes the model's weights watched."""

    def __init__(self, frozen: bool) -> None:
        self.frozen = frozen

    def load(self, request: LoadRequest) -> Loaded:
        return Loaded(call=answer, frozen_weights=self.frozen)


def measure(model: nn.Module, inputs: int, engine: str, rounds: int, dynamic: bool = False) -> dict[str, Any]:
    """Added cost of one configuration."""
    xs = tuple(torch.randn(4, 8) for _ in range(inputs))
    title = f"{type(model).__name__}, {inputs} input{'s' if inputs > 1 else ''}"
    return measured(model, xs, title, engine, rounds, dynamic=dynamic)


def measure_indices(ids: int, look: bool, rounds: int) -> dict[str, Any]:
    """The same for one input of ids, with and without the look at their values."""
    given = {"args[0]": IndexRange(low=0, high=30521)} if look else {}
    title = f"{ids} id{'s' if ids > 1 else ''}{', looked at' if look else ''}"
    xs = (torch.randint(0, 30522, (1, ids)),)
    return measured(OneOp().eval(), xs, title, "stand-in", rounds, indices=given)


def measure_columns(rows: int, columns: int, look: bool, rounds: int) -> dict[str, Any]:
    """The same for ids of several tables in one input."""
    own = tuple(IndexColumns(first=k, last=k, low=0, high=100 + k) for k in range(1, columns))
    given = {"args[0]": IndexRange(low=0, high=100, dim=1, columns=own)} if look else {}
    xs = (torch.randint(0, 100, (rows, columns)),)
    title = f"{rows}x{columns} ids{', looked at' if look else ''}"
    return measured(OneOp().eval(), xs, title, "stand-in", rounds, indices=given)


def measure_strict(tensors: int, strict: bool, rounds: int) -> dict[str, Any]:
    """The same for a model of so many weights that are all frozen, with and without a look at each in every call."""
    title = f"{tensors} tensors{', strict' if strict else ''}"
    xs = (torch.randn(4, 8),)
    return measured(ManyWeights(tensors).eval(), xs, title, "stand-in, frozen", rounds, strict_weights=strict)


def measure_default_dtype(look: bool, rounds: int) -> dict[str, Any]:
    """The same for one input, with and without the look at torch's default dtype."""
    title = f"default dtype{'' if look else ' not'} looked at"
    return measured(OneOp().eval(), (torch.randn(4, 8),), title, "stand-in", rounds, default_dtype=look)


def measure_entries(entries: int, inputs: int, rounds: int) -> dict[str, Any]:
    """A plan with so many entries for sizes of their own, against a plan with the last of them alone."""
    model = OneOp().eval()
    examples = [tuple(torch.randn(4, 8 + number) for _ in range(inputs)) for number in range(entries)]
    candidate = Candidate(settings=Settings(engine="stand-in"), label="stand-in", rationale="bench")
    parts = [
        EntryParts(
            candidate, make_guard(model, Call(xs, {}), dynamic=(), shapes=Shapes.STATIC, grad=False), None, name=str(n)
        )
        for n, xs in enumerate(examples)
    ]
    last = examples[-1]
    with torch.no_grad():
        one, many = attach_parts(model, tuple(parts[-1:])), attach_parts(model, tuple(parts))
        for fast in (one, many):
            fast(*last)
        arms = {"eager": lambda: model(*last), "engine": lambda: one(*last), "fast": lambda: many(*last)}
        samples = nanoseconds(arms, rounds)
    assert many.stats().fast_share == 1.0, many.stats()
    added = [f - e for f, e in zip(samples["fast"], samples["engine"], strict=True)]
    row = {name: statistics.median(values) for name, values in samples.items()}
    title = f"{entries} entries, {inputs} input{'s' if inputs > 1 else ''}"
    named = {"case": title, "engine_name": "one entry", "dynamic": False}
    return {**named, **row, "added_ns": statistics.median(added)}


def measure_padded(dims: int, rounds: int) -> dict[str, Any]:
    """A call that is padded in its batch, or in batch and length, against one that has the built sizes already."""
    model = OneOp().eval()
    fill = ({"value": None}, {"value": 0.0})
    padding = Padding(
        dims=tuple(
            PaddedDim(
                min=1,
                size=8,
                inputs=(PaddedInput(path="args[0]", dim=dim, **fill[dim]),),
                outputs=(PaddedOutput(path="output", dim=dim),),
            )
            for dim in range(dims)
        )
    )
    whole, part = torch.randn(8, 8), torch.randn(*([5] * dims + [8] * (2 - dims)))
    guard = make_guard(model, Call((whole,), {}), dynamic=(), shapes=Shapes.STATIC, grad=False)
    candidate = Candidate(settings=Settings(engine="stand-in"), label="stand-in", rationale="bench")
    with torch.no_grad():
        fast = attach_parts(model, (EntryParts(candidate, taken_by(guard, padding), None, padding=padding),))
        assert fast(part).shape == part.shape
        fast(whole)
        arms = {"eager": lambda: model(part), "engine": lambda: fast(whole), "fast": lambda: fast(part)}
        samples = nanoseconds(arms, rounds)
    assert fast.stats().fast_share == 1.0, fast.stats()
    added = [f - e for f, e in zip(samples["fast"], samples["engine"], strict=True)]
    row = {name: statistics.median(values) for name, values in samples.items()}
    title = f"padded in {dims} dimension{'s' if dims > 1 else ''}"
    return {"case": title, "engine_name": "not padded", "dynamic": True, **row, "added_ns": statistics.median(added)}


def measured(
    model: nn.Module,
    xs: tuple[torch.Tensor, ...],
    title: str,
    engine: str,
    rounds: int,
    *,
    dynamic: bool = False,
    indices: Mapping[str, IndexRange] | None = None,
    strict_weights: bool = False,
    default_dtype: bool = True,
) -> dict[str, Any]:
    """Medians of eager, the engine's own callable and ours."""
    inputs = len(xs)
    dims = [DynamicDim(input=f"xs.{i}", dim=0, min=1, max=64) for i in range(inputs)] if dynamic else []
    shapes = Shapes.DYNAMIC if dynamic else Shapes.STATIC
    guard = make_guard(model, Call(xs, {}), dynamic=dims, shapes=shapes, grad=False, indices=indices)
    guard = guard if default_dtype else msgspec.structs.replace(guard, default_dtype="")
    candidate = Candidate(settings=Settings(engine=engine, shapes=shapes), label=engine, rationale="bench")
    with torch.no_grad():
        fast = attach(model, candidate, guard, None, strict_weights=strict_weights)
        fast.prepare(Call(xs, {}))
        own = type(fast)._compilot_core.loaded.call  # type: ignore[attr-defined]
        arms = {"eager": lambda: model(*xs), "engine": lambda: own(*xs), "fast": lambda: fast(*xs)}
        samples = nanoseconds(arms, rounds)
    assert fast.stats().fast_share == 1.0, fast.stats()
    added = [f - e for f, e in zip(samples["fast"], samples["engine"], strict=True)]
    row = {name: statistics.median(values) for name, values in samples.items()}
    return {"case": title, "engine_name": engine, "dynamic": dynamic, **row, "added_ns": statistics.median(added)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--real", action="store_true", help="also with Inductor (compiles)")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--no-engines", dest="engines", action="store_false", help="leave the real engines out")
    options = parser.parse_args()
    torch.set_num_threads(1)
    registry.register("stand-in", None, StandIn(frozen=False))
    registry.register("stand-in, frozen", None, StandIn(frozen=True))
    rows = [
        measure(model.eval(), inputs, engine, options.rounds)
        for model in (OneOp(), TenLayers())
        for inputs in (1, 2, 4)
        for engine in ("stand-in", *(["stand-in, frozen"] if isinstance(model, TenLayers) else []))
    ]
    rows += [measure(TenLayers().eval(), n, "stand-in", options.rounds, dynamic=True) for n in (1, 2, 4)]
    rows += [measure_indices(n, look, options.rounds) for n in (1, 128, 4096) for look in (False, True)]
    rows += [measure_columns(n, 26, look, options.rounds) for n in (32, 4096) for look in (False, True)]
    rows += [measure_strict(n, strict, options.rounds) for n in (10, 60, 300) for strict in (False, True)]
    rows += [measure_default_dtype(look, options.rounds) for look in (False, True)]
    rows += [measure_entries(n, inputs, options.rounds) for n in (2, 32) for inputs in (1, 2, 4)]
    rows += [measure_padded(dims, options.rounds) for dims in (1, 2)]
    if options.real:
        rows += [measure(TenLayers().eval(), n, "inductor", options.rounds) for n in (1, 2, 4)]
    engines = engines_overhead.rows(options.rounds) if options.engines else []
    if options.json:
        document = {"torch": torch.__version__, "unit": "ns per call", "rows": rows, "engines": engines}
        print(json.dumps(document, indent=1))
        return
    show(rows)
    engines_overhead.show(engines)


def show(rows: list[dict[str, Any]]) -> None:
    print(
        f"{'case':28}{'engine':18}{'shapes':9}{'eager':>9}{'engine':>9}{'fast':>9}{'added':>8}   ns per call, medians"
    )
    for r in rows:
        shapes = "dynamic" if r["dynamic"] else "static"
        numbers = f"{r['eager']:9.0f}{r['engine']:9.0f}{r['fast']:9.0f}{r['added_ns']:8.0f}"
        print(f"{r['case']:28}{r['engine_name']:18}{shapes:9}{numbers}")


if __name__ == "__main__":
    main()
