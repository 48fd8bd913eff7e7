"""A process that starts plans and bundles one after the other, and prints what became of each as JSON.

Run as `python try_starts.py STARTS`; STARTS is a JSON object: a name for each start, and the arguments of `tried`.
"""

import importlib.util
import json
import os
import sys
import tempfile
import warnings
from pathlib import Path

import torch

import compilot

sys.path.insert(0, __file__.rpartition("/")[0])
import bundling

HOW = {
    "load": lambda model, plan: compilot.load(plan),
    "signed only": lambda model, plan: compilot.load(plan, require_signature=True),
    "compile": lambda model, plan: compilot.compile(model, plan),
    "strict": lambda model, plan: compilot.compile(model, plan, strict=True),
    "in place": lambda model, plan: compilot.compile(model, plan, inplace=True),
    "settings": lambda model, plan: compilot.apply_process(plan),  # to be refused only
}


def made(factory_file):
    """The model of the factory `model` in a file; without a file, the one that the bundles were made of."""
    if factory_file is None:
        return bundling.model()
    spec = importlib.util.spec_from_file_location("factory_file", factory_file)
    sys.modules["factory_file"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.model()


def logits(model):
    with torch.no_grad():
        return model(bundling.batch(1), extra={"bias": torch.ones(32)})["logits"]


def tried(plan, how, model=None, env=None):
    """What one start gave: an answer, held against eager's, or a refusal; and what it left behind."""
    os.environ.update(env or {})
    tempfile.tempdir = os.environ.get("TMPDIR")  # whatever can be written there: this disk is what is tried
    model = made(model)
    right, kind, threads = logits(model), type(model), torch.get_num_threads()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            fast = HOW[how](model, plan)
            found = {"error": float((logits(fast) - right).abs().max()), "fast": fast.stats().fast}
        except compilot.CompilotError as refused:
            found = {"refused": type(refused).__name__, "why": str(refused)}
            found["differences"] = list(getattr(refused, "differences", ()))
    untouched = type(model) is kind and torch.equal(logits(model), right) and torch.get_num_threads() == threads
    said = [f"{one.category.__name__}: {one.message}" for one in caught]
    sang = Path(os.environ["CANARY"]).exists()
    return {**found, "untouched": untouched, "warnings": said, "sang": sang}


print(json.dumps({name: tried(**start) for name, start in json.loads(sys.argv[1]).items()}))
