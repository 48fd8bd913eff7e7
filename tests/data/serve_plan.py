"""A serving process: applies a plan to the model of a factory, asks it, and prints what happened as JSON.

Run as `python serve_plan.py FILE FACTORY PLAN`. It counts the programs that it starts and the calls of the model's own
forward: an engine that answers from its files needs neither.
"""

import importlib.util
import json
import sys
import warnings

import torch

CALLS = 20


def made(file, factory):
    spec = importlib.util.spec_from_file_location("serving", file)
    sys.modules["serving"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, factory)()


@torch.no_grad()
def served(model, args, plan):
    """The answers of a compiled model, the times that its own forward ran meanwhile, and its statistics."""
    import compilot

    forwards, code = [], type(model).forward.__code__
    inputs = [args, *(tuple(torch.randn_like(x) for x in args) for _ in range(CALLS - 1))]
    expected = [model(*one) for one in inputs]
    sys.setprofile(lambda frame, event, _: forwards.append(1) if event == "call" and frame.f_code is code else None)
    fast = compilot.compile(model, plan)
    answers = [fast(*one) for one in inputs]
    sys.setprofile(None)
    errors = [float((a - b).abs().max()) for a, b in zip(answers, expected, strict=True)]
    return {"errors": errors, "forwards": len(forwards), **fast.stats()._asdict()}


def main(file, factory, plan):
    programs = []
    sys.addaudithook(lambda event, what: programs.append(str(what[1])) if event == "subprocess.Popen" else None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = served(*made(file, factory), plan)
    heavy = [name for name in ("torch._inductor", "torch._dynamo", "torch.onnx") if name in sys.modules]
    said = [str(one.message) for one in caught if one.category.__module__.startswith("compilot")]
    return {**found, "programs": programs, "heavy": heavy, "engine": "onnxruntime" in sys.modules, "warnings": said}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
