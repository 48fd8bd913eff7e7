"""A million calls over 500 sizes: is memory flat, is anything compiled again, is any answer wrong?

    python bench/churn.py [--calls 1000000] [--engine onnxruntime] [--json]

A small MLP (well below 0.1 ms a call) over batches of 1 to 500 rows, drawn at random: static entries for the most
common sizes and padded buckets for all others. Memory is the process's resident set after a tenth of the calls and at
the end; one call in a hundred is compared with eager's answer. Exit code 1: memory grew by more than 2 %, a program was
built after the first tenth, a call was not fast, or an answer was wrong.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import nn

from compilot._tree import Call
from compilot.engines import registry
from compilot.engines.protocol import BuildRequest
from compilot.measure.padding import prove_padding
from compilot.records import Candidate, Padding, Settings, Shapes
from compilot.runtime.fast import Fast, attach_parts
from compilot.runtime.guards import make_guard
from compilot.runtime.padded_guards import ending_at, taken_by
from compilot.runtime.sources import EntryParts
from compilot.workload.workload import Workload

LARGEST = 500
COMMON = (1, 2, 4, 8)
BUCKETS = (32, 128, LARGEST)
EVERY = 100  # calls, of which one is compared
GROWTH = 0.02


def made(engine: str, folder: Path) -> tuple[nn.Module, Fast]:
    """The model, and the model behind static entries and padded buckets."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    proof = prove_padding(Workload(model, (torch.randn(3, 8),), dynamic={"input": {0: (1, LARGEST)}}))
    assert proof.padding is not None, proof.refused
    parts = [_entry(model, rows, None, engine, folder) for rows in COMMON]
    parts += [_entry(model, rows, ending_at(proof.padding, [rows]), engine, folder) for rows in BUCKETS]
    return model, attach_parts(model, tuple(parts))


def _entry(model: nn.Module, rows: int, padding: Padding | None, engine: str, folder: Path) -> EntryParts:
    own, call = folder / f"{rows}", Call((torch.randn(rows, 8),), {})
    own.mkdir()
    guard = make_guard(model, call, dynamic=(), shapes=Shapes.STATIC, grad=False)
    candidate = Candidate(settings=Settings(engine=engine), label=engine, rationale="bench")
    registry.build_half(engine).build(BuildRequest(model, call, guard, candidate, own))
    taken = guard if padding is None else taken_by(guard, padding)
    return EntryParts(candidate, taken, own, name=f"{rows}", padding=padding)


def churn(model: nn.Module, fast: Fast, calls: int) -> dict[str, Any]:
    """The calls; what was seen on the way."""
    draw, process, pool = random.Random(0), psutil.Process(), torch.randn(LARGEST, 8)
    wrong, settled, built, begin = 0, 0, 0, time.perf_counter()
    with torch.no_grad():
        for number in range(calls):
            x = pool[: draw.choice(COMMON) if number % 3 == 0 else draw.randint(1, LARGEST)]
            answer = fast(x)
            if number % EVERY == 0:
                wrong += not torch.allclose(answer, model(x), rtol=1e-4, atol=1e-5)
            if number == calls // 10:
                settled, built = process.memory_info().rss, fast.stats().compiles
    after, stats = process.memory_info().rss, fast.stats()
    return {
        "calls": calls,
        "us_per_call": (time.perf_counter() - begin) / calls * 1e6,
        "rss_after_a_tenth": settled,
        "rss_at_the_end": after,
        "growth": after / settled - 1,
        "fast_share": stats.fast_share,
        "built_late": stats.compiles - built,
        "by_entry": {name: entry.fast for name, entry in stats.entries.items()},
        "compared": -(-calls // EVERY),
        "wrong": wrong,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--engine", default="onnxruntime")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        row = churn(*made(options.engine, Path(folder)), options.calls)
    print(json.dumps({"torch": torch.__version__, **row}, indent=1) if options.json else row)
    return int(row["growth"] > GROWTH or row["built_late"] > 0 or row["fast_share"] < 1 or row["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
