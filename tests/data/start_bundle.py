"""A serving process: starts a bundle without a model and prints what happened as JSON.

Run as `python start_bundle.py BUNDLE [USER]`; with a user's number, it goes on as that user before it starts.
"""

import json
import os
import sys
import tempfile
import warnings

import torch

import compilot
from compilot.artifacts import unpack

sys.path.insert(0, __file__.rpartition("/")[0])
import bundling


def go_on_as(user: int) -> None:
    """Another user from here on; a start before that imports everything, as that user may not read this Python."""
    meant = {name: os.environ.get(name, "") for name in ("HOME", "COMPILOT_CACHE")}
    with tempfile.TemporaryDirectory() as own:
        os.environ.update(dict.fromkeys(meant, own))  # nothing of this first start is left in that user's home
        compilot.load(sys.argv[1])
        os.environ.update(meant)
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


def count_unpackings() -> list[str]:
    """Where this process unpacks a bundle from now on."""
    real, places = unpack._unpack, []

    def counted(bundle, folder):
        places.append(str(folder))
        real(bundle, folder)

    unpack._unpack = counted
    return places


if len(sys.argv) > 2:
    go_on_as(int(sys.argv[2]))
told: dict[str, object] = {}
places = count_unpackings()
seen = warnings.catch_warnings(record=True)
try:
    caught = seen.__enter__()
    warnings.simplefilter("always")
    fast = compilot.load(sys.argv[1])
    x, extra = bundling.batch(1), {"bias": torch.ones(32)}
    with torch.no_grad():
        answer = fast(x, extra=extra)
        again = fast(extra=extra, x=x)
        right = bundling.model()(x, extra=extra)
    careless = fast(x, extra=extra)  # grad mode: there is nothing that could be differentiated
    assert not careless["logits"].requires_grad
    error = max(float((a["logits"] - right["logits"]).abs().max()) for a in (answer, again, careless))
    told = {
        "error": error,
        "warnings": [str(w.message) for w in caught],
        "keys": list(answer),
        "fast": fast.stats().fast,
        "startup": fast.startup,
    }
except compilot.CompilotError as refused:
    told = {"refused": type(refused).__name__, "why": str(refused)}
heavy = [name for name in ("torch._inductor", "torch._dynamo", "onnx", "torch.onnx") if name in sys.modules]
print(json.dumps({**told, "heavy": heavy, "unpacked": len(places)}))
