"""A serving process for the six blocks: `python start_regions.py PLAN compile|load|changed`; prints JSON."""

import json
import sys
import warnings

import torch

import compilot

sys.path.insert(0, __file__.rpartition("/")[0])
import six_blocks

from compilot.measure.build_cost import CompilerRuns


class Block(six_blocks.Block):
    """The same structure, other code."""

    def forward(self, hidden, **kwargs):
        hidden, cache = super().forward(hidden, **kwargs)
        return hidden * 2, cache


Block.__module__, Block.__qualname__ = six_blocks.Block.__module__, six_blocks.Block.__qualname__
plan, how = sys.argv[1:]
model, (x,), _ = six_blocks.six()
if how == "changed":
    for layer in model.layers:
        layer.__class__ = Block
runs = CompilerRuns().install()
told: dict[str, object] = {}
with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    right = model(x)["logits"]
    try:
        fast = compilot.load(plan) if how == "load" else compilot.compile(model, plan)
        answers = [fast(x)["logits"] for _ in range(3)]
        stats = fast.stats()
        told = {
            "error": max(float((answer - right).abs().max()) for answer in answers),
            "fast": stats.fast,
            "compiles": stats.compiles,
            "regions": {path: [one.fast, one.fallbacks] for path, one in stats.regions.items()},
        }
    except compilot.CompilotError as refused:
        told = {"refused": type(refused).__name__, "why": str(refused)}
heavy = [name for name in ("torch._inductor", "torch._dynamo", "onnx", "torch.onnx") if name in sys.modules]
said = [str(one.message) for one in caught if issubclass(one.category, compilot.CompilotWarning)]
print(json.dumps({**told, "heavy": heavy, "compiler_runs": runs.count, "warnings": said}))
