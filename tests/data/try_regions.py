"""A process that starts bundles with regions one after the other: `python try_regions.py STARTS`; prints JSON.

STARTS is a JSON object: a name for each start, and the arguments of `tried`.
"""

import json
import sys
import warnings

import torch

import compilot

sys.path.insert(0, __file__.rpartition("/")[0])
import six_blocks


def changed(model, change):
    """The model that the bundle was made for, or one that it was not made for."""
    if change == "weights":
        model.layers[1].up.weight.data.mul_(2)
    if change == "structure":
        model.layers = model.layers[:5]
    return model


def tried(bundle, options=None, change=None):
    """What one start gave: an answer, held against eager's, or a refusal."""
    model, (x,), _ = six_blocks.six()
    model = changed(model, change)
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        right = model(x)["logits"]
        try:
            fast = compilot.compile(model, bundle, **(options or {}))
            error, stats = float((fast(x)["logits"] - right).abs().max()), fast.stats()
            regions = {path: [one.fast, one.fallbacks] for path, one in stats.regions.items()}
            found = {"error": error, "fast": stats.fast, "regions": regions}
        except compilot.CompilotError as refused:
            found = {"refused": type(refused).__name__, "why": str(refused)}
    heavy = [name for name in ("torch._inductor", "torch._dynamo", "onnx", "torch.onnx") if name in sys.modules]
    said = [str(one.message) for one in caught if issubclass(one.category, compilot.CompilotWarning)]
    return {**found, "heavy": heavy, "warnings": said}


print(json.dumps({name: tried(**start) for name, start in json.loads(sys.argv[1]).items()}))
