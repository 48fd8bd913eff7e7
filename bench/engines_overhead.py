"""What compilot adds to each real engine's bare call; part of bench/overhead.py.

In: nothing. Out: one row per model and engine, nanoseconds per call, medians. The bare call is what the engine itself
needs for one answer: ONNX Runtime's run over bindings that are bound already, OpenVINO's infer over a request that has
its memory, the AOTInductor loader's boxed run, what torch.compile gives its users. `marshalling` is the engine's own
callable minus that (tensors picked, bound, results rebuilt in the model's structure); it is negative for Inductor,
whose programs are entered past torch's wrapper. `guard` is the user's own callable with the engine's place taken by a
stand-in that answers at once, minus the stand-in: the same generated code on the same inputs, without the scatter of
real work, which is larger than a guard. `added` is both. One thread, so that no engine spins beside another arm.
Differences are taken per round.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from compilot._tree import Call
from compilot.engines import registry
from compilot.engines.protocol import BuildRequest
from compilot.records import Candidate, Settings, Shapes
from compilot.runtime.fast import Fast, attach
from compilot.runtime.guards import make_guard

CALLS = 200  # per round and arm: about a millisecond, short against the machine's slow drift
SLOW_CALLS = 20  # of a model that takes a hundred times as long
ENGINES = ("inductor", "aoti", "onnxruntime", "openvino")


class OneTensor(nn.Module):
    """One small layer: the engine has almost nothing to do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).relu()


def small_bert() -> tuple[nn.Module, Call]:
    """Two inputs by keyword, a BaseModelOutputWithPooling out."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
    )
    ids = torch.randint(0, config.vocab_size, (1, 8))
    return BertModel(config).eval(), Call((), {"input_ids": ids, "attention_mask": torch.ones_like(ids)})


def nanoseconds(arms: dict[str, Callable[[], Any]], rounds: int, calls: int = CALLS) -> dict[str, list[float]]:
    """Time per call of each arm, one sample per round, the arms in turn within a round."""
    samples: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(rounds):
        for name, run in arms.items():
            begin = time.perf_counter_ns()
            for _ in range(calls):
                run()
            samples[name].append((time.perf_counter_ns() - begin) / calls)
    return samples


def rows(rounds: int) -> list[dict[str, Any]]:
    """Every engine on both models; one that is missing or fails says why."""
    torch.manual_seed(0)
    tensor = Call((torch.randn(4, 8),), {})
    cases = (("one tensor", OneTensor().eval(), tensor, CALLS), ("BERT, HF output", *small_bert(), SLOW_CALLS))
    found = []
    for case, model, call, calls in cases:
        for engine in ENGINES:
            found.append({"case": case, "engine_name": engine, **_row(model, call, engine, rounds, calls)})
    return found


def _row(model: nn.Module, call: Call, engine: str, rounds: int, calls: int) -> dict[str, Any]:
    try:
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            return measure(model, call, engine, Path(folder), rounds, calls)
    except Exception as problem:
        return {"failed": " ".join(f"{type(problem).__name__}: {problem}".split())[:200]}


def measure(model: nn.Module, call: Call, engine: str, folder: Path, rounds: int, calls: int) -> dict[str, Any]:
    """Bare call, the engine's callable and the user's, side by side."""
    fast = built(model, call, engine, folder)
    args, kwargs = call
    kept = fast(*args, **kwargs)  # the bare calls go on writing where this answer lies
    own = type(fast)._compilot_core.loaded.call  # type: ignore[attr-defined]
    arms = {
        "eager": lambda: model(*args, **kwargs),
        "engine": lambda: own(*args, **kwargs),
        "fast": lambda: fast(*args, **kwargs),
    }
    if engine == "inductor":
        plain = torch.compile(model)
        arms["bare"] = lambda: plain(*args, **kwargs)
    else:
        arms["bare"] = bare_call(engine, own, call)
    nanoseconds(arms, max(2, rounds // 20), calls)  # warm-up
    samples = nanoseconds(arms, rounds, calls)
    medians = {name: statistics.median(values) for name, values in samples.items()}
    marshalling, guard = _difference(samples, "engine", "bare"), guard_ns(fast, call, rounds)
    assert fast.stats().fast_share == 1.0, fast.stats()
    del kept
    return {**medians, "marshalling_ns": marshalling, "guard_ns": guard, "added_ns": marshalling + guard}


def guard_ns(fast: Fast, call: Call, rounds: int) -> float:
    """The generated hot path of this very model and call, around a stand-in for the engine."""
    args, kwargs = call
    hot = type(fast)._compilot_core._gate.hot  # type: ignore[attr-defined]
    real, hot["_call"] = hot["_call"], at_once
    try:
        arms = {"stand-in": lambda: at_once(*args, **kwargs), "guarded": lambda: fast(*args, **kwargs)}
        nanoseconds(arms, max(2, rounds // 20))  # warm-up
        return _difference(nanoseconds(arms, rounds), "guarded", "stand-in")
    finally:
        hot["_call"] = real


def at_once(*args: Any, **kwargs: Any) -> None:
    """Stands in for an engine."""


def built(model: nn.Module, call: Call, engine: str, folder: Path) -> Fast:
    """The model on this engine, with the engine's default settings, ready for the call."""
    guard = make_guard(model, call, dynamic=(), shapes=Shapes.STATIC, grad=False)
    candidate = Candidate(settings=Settings(engine=engine), label=engine, rationale="bench")
    registry.build_half(engine).build(BuildRequest(model, call, guard, candidate, folder))
    fast = attach(model, candidate, guard, folder)
    fast.prepare(call)
    return fast


def bare_call(engine: str, own: Callable[..., Any], call: Call) -> Callable[[], Any]:
    """The engine's own call over what the last answer left ready in the marshalling code's namespace."""
    parts = own.__globals__
    run = parts.get("_run")
    if engine == "aoti":
        tensors = [*call.args, *call.kwargs.values()]
        return lambda: run(list(tensors))
    ready = parts["_pool"].pop()  # ours from now on: the arms beside it make another
    if engine == "onnxruntime":
        return lambda: run(ready, None)
    infer, nothing = parts["_infer"], {}
    return lambda: infer(ready.native, nothing, True, False)


def _difference(samples: dict[str, list[float]], more: str, less: str) -> float:
    return statistics.median(a - b for a, b in zip(samples[more], samples[less], strict=True))


def show(rows: list[dict[str, Any]]) -> None:
    """The second table."""
    if not rows:
        return
    names = ("eager", "bare", "engine", "fast", "marshalling_ns", "guard_ns", "added_ns")
    print()
    titles = "".join(f"{name.removesuffix('_ns'):>13}" for name in names)
    print(f"{'case':18}{'engine':14}{titles}   ns per call, medians")
    for r in rows:
        numbers = r.get("failed") or "".join(f"{r[name]:13.0f}" for name in names)
        print(f"{r['case']:18}{r['engine_name']:14}{numbers}")
