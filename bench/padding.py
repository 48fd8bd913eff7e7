"""Random padded calls through the run plane against eager: are 10,000 answers within the gate's tolerance?

    python bench/padding.py [--calls 10000] [--engine onnxruntime] [--json]

Three small models: BERT with its mask, GPT-2 prefill without one, a conv net. For each: the proof in float64
(measure/padding.py), one entry per bucket of batch and length, each built by the engine and asked the proof once more
(measure/padding_engine.py), then calls of random sizes with random masks. Every answer is compared with eager's by the
rules of the gate, with eager in float64 as the reference. Out: calls, answered by the engine, left to eager by the mask
rule, recompiles, wrong answers (exit code 1 if there is any).
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from compilot._tree import Call
from compilot.engines import registry
from compilot.engines.protocol import BuildRequest
from compilot.measure.closeness import compare
from compilot.measure.padding import prove_padding
from compilot.measure.padding_engine import check_engine
from compilot.records import Candidate, Padding, Settings, Shapes
from compilot.runtime.fast import Fast, attach, attach_parts
from compilot.runtime.guards import make_guard
from compilot.runtime.padded_guards import ending_at, taken_by
from compilot.runtime.sources import EntryParts
from compilot.workload.outputs import flatten
from compilot.workload.workload import Workload


class Case(NamedTuple):
    name: str
    workload: Workload
    buckets: list[tuple[int, ...]]  # sizes in the order of the proof's dimensions


def text(model: nn.Module, mask: bool) -> Workload:
    ids = torch.randint(0, 100, (2, 8))
    given = {"input_ids": ids, **({"attention_mask": torch.ones_like(ids)} if mask else {})}
    return Workload(model.eval(), (), given, dynamic={"batch": (1, 4), "seq": (1, 48)})


def cases() -> Iterator[Case]:
    from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    buckets: list[tuple[int, ...]] = [(1, 16), (1, 48), (4, 16), (4, 48)]
    small = {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    bert = BertConfig(**small, intermediate_size=64, attn_implementation="eager")  # averages where all is masked
    yield Case("BERT with mask", text(BertModel(bert), True), buckets)
    config = GPT2Config(vocab_size=100, n_embd=32, n_layer=2, n_head=2, n_positions=64, use_cache=False)
    yield Case("GPT-2 prefill", text(GPT2LMHeadModel(config), False), buckets)
    conv = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    )
    images = Workload(conv.eval(), (torch.randn(2, 3, 16, 16),), dynamic={"input": {0: (1, 16)}})
    yield Case("conv net", images, [(2,), (8,), (16,)])


def entries(case: Case, engine: str, folder: Path) -> Fast:
    """The model behind one padded entry per bucket."""
    workload = case.workload
    proof = prove_padding(workload)
    assert proof.ok, proof.refused
    assert proof.padding is not None
    parts = [
        _entry(workload, ending_at(proof.padding, sizes), engine, folder / str(n))
        for n, sizes in enumerate(case.buckets)
    ]
    return attach_parts(workload.model, tuple(parts))


def _entry(workload: Workload, padding: Padding, engine: str, folder: Path) -> EntryParts:
    model, sized = workload.model, workload.sized
    call = sized.at({group: dim.size for group, dim in zip(sized.groups, padding.dims, strict=True)})
    guard = make_guard(model, call, dynamic=(), shapes=Shapes.STATIC, grad=False)
    candidate = Candidate(settings=Settings(engine=engine), label=engine, rationale="bench")
    folder.mkdir()
    registry.build_half(engine).build(BuildRequest(model, call, guard, candidate, folder))
    leak = check_engine(attach(model, candidate, guard, folder), workload, padding)
    assert leak is None, leak
    name = "x".join(str(dim.size) for dim in padding.dims)
    return EntryParts(candidate, taken_by(guard, padding), folder, name=name, padding=padding)


def drawn(workload: Workload, draw: random.Random, number: int) -> Call:
    """A call of random sizes; a mask keeps each position with some chance, and sometimes hides a whole row."""
    sized = workload.sized
    call = sized.at({group: draw.randint(group.min, group.max) for group in sized.groups}, seed=number)
    mask = call.kwargs.get("attention_mask")
    if mask is not None:
        mask.bernoulli_(draw.choice((0.5, 0.9, 1.0)))
        mask[:, draw.randrange(mask.shape[1])] = 1
        if draw.random() < 0.05:
            mask[draw.randrange(mask.shape[0])] = 0
    return call


def measure(case: Case, engine: str, calls: int, folder: Path) -> dict[str, Any]:
    """Every answer beside eager's."""
    workload, draw, wrong = case.workload, random.Random(0), []
    fast = entries(case, engine, folder)
    exact = workload.unit(workload.model).in_double()
    with torch.no_grad():
        for number in range(calls):
            call = drawn(workload, draw, number)
            found, eager = (flatten(fn(*call.args, **call.kwargs), "output") for fn in (fast, workload.model))
            right = flatten(exact.answer(call), "output").tensors
            assert found.structure == eager.structure
            for path, tensor in eager.tensors.items():
                assert found.tensors[path].stride() == tensor.stride(), (path, tensor.shape)
                own = {"case": str(number), "output": path, "typical": 0.0, "coarsest": torch.float32}
                close = compare(found.tensors[path], tensor, right[path], **own)
                if not close.check.passed or close.non_finite:
                    wrong.append(f"call {number}, {path}: {close.check.why or close.non_finite}")
    stats = fast.stats()
    return {
        "model": case.name,
        "calls": calls,
        "fast": stats.fast,
        "by_entry": {name: one.fast for name, one in stats.entries.items()},
        "fallbacks": stats.fallbacks,
        "compiles": stats.compiles,
        "wrong": wrong[:5],
        "wrong_answers": len(wrong),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10_000, help="over all three models")
    parser.add_argument("--engine", default="onnxruntime")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for case in cases():
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(case, options.engine, -(-options.calls // 3), Path(folder)))
        if not options.json:
            print(", ".join(f"{key}: {value}" for key, value in rows[-1].items()), flush=True)
    if options.json:
        print(json.dumps({"torch": torch.__version__, "engine": options.engine, "rows": rows}, indent=1))
    return int(any(row["wrong_answers"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
