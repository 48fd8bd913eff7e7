"""A process that starts bundles with regions one after the other: `python try_regions.py STARTS`; prints JSON.

STARTS is a JSON object: a name for each start, and the arguments of `tried`.
"""

import json
import os
import sys
import warnings

import torch

import compilot

sys.path.insert(0, __file__.rpartition("/")[0])
import six_blocks


def changed(model, change):
    """The model that the bundle was made for, or one that it was not made for."""
    path, _, doubled = (change or "").partition(" ")
    if doubled == "doubled":
        model.get_submodule(path).weight.data.mul_(2)
    if change == "structure":
        model.layers = model.layers[:5]
    return model


def outcome(run, *args, **kwargs):
    """The answer, or the name of what was raised."""
    try:
        return run(*args, **kwargs)["logits"]
    except Exception as problem:
        return type(problem).__name__


def hostile(fast, model, x):
    """Calls that the plan was not made for: whether eager's own outcome came back, and whether the plan answered."""
    calls = {
        "larger batch": ((six_blocks.batch(3),), {}),
        "longer": ((torch.cat([x, x], dim=1),), {}),
        "other strides": ((x.transpose(0, 1).contiguous().transpose(0, 1),), {}),
        "double": ((x.double(),), {}),
        "one too many": ((x, x), {}),
        "unknown keyword": ((x,), {"nobody": 1}),
        "no tensor": ((None,), {}),
        "with gradients": ((x.clone().requires_grad_(),), {}),
    }
    found = {}
    for name, (args, kwargs) in calls.items():
        before = fast.stats().fast
        with torch.set_grad_enabled(name == "with gradients"):
            own, right = outcome(fast, *args, **kwargs), outcome(model, *args, **kwargs)
        same = torch.equal(own, right) if isinstance(own, torch.Tensor) and not isinstance(right, str) else own == right
        found[name] = [bool(same), fast.stats().fast - before]
    return found


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
            if change == "calls":
                found["hostile"] = hostile(fast, model, x)
        except compilot.CompilotError as refused:
            found = {"refused": type(refused).__name__, "why": str(refused)}
    heavy = [name for name in ("torch._inductor", "torch._dynamo", "onnx", "torch.onnx") if name in sys.modules]
    said = [str(one.message) for one in caught if issubclass(one.category, compilot.CompilotWarning)]
    sang = os.path.exists(os.environ.get("CANARY", ""))
    return {**found, "heavy": heavy, "warnings": said, "sang": sang}


print(json.dumps({name: tried(**start) for name, start in json.loads(sys.argv[1]).items()}))
