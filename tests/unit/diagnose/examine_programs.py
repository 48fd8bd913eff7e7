"""Examines every program in tests/data/breaks; run by test_break_programs.py in a process of its own.

In: target strings as arguments. Out: one JSON object on stdout: target -> its findings, its number of graphs, what was
not looked at, and what eager answers to the first example.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import random
import sys
import warnings
from typing import Any

import msgspec
import torch
from torch.utils import _pytree

from compilot.diagnose import trusted
from compilot.diagnose.examination import Examination
from compilot.workload import Workload, load_target

SEED = int(os.environ.get("COMPILOT_TEST_SEED", "0"))
# what advice may set; here every program begins with torch's own values
SETTINGS = ("capture_scalar_outputs", "capture_dynamic_output_shape_ops", "allow_rnn", "trace_autograd_ops")
DEFAULTS = {name: getattr(torch._dynamo.config, name) for name in SETTINGS}


def seen(target: str) -> dict[str, object]:
    torch.compiler.reset()
    for name, value in DEFAULTS.items():
        setattr(torch._dynamo.config, name, value)
    random.seed(SEED)  # targets load with a fixed seed of their own; this is for what is drawn while they run
    torch.manual_seed(SEED)
    with contextlib.redirect_stdout(io.StringIO()):
        workload = load_target(target)
        answer = answered(workload)
        examination = Examination(workload)
        examination.eager()
        examination.capture()
        examination.weigh()
        examination.drive()
        report = examination.report()
    findings = [msgspec.to_builtins(one) for one in report.findings if one.where]
    return {"findings": findings, "graphs": len(report.graphs), "unseen": report.unseen, "answer": answer}


def answered(workload: Workload) -> list[float]:
    """The numbers of the first tensor of eager's answer, or the number that it is."""
    call = workload.call
    with torch.set_grad_enabled(workload.grad):
        answer: Any = workload.model(*call.args, **call.kwargs)
    first = next(iter(_pytree.tree_leaves(answer)))
    return torch.as_tensor(first).detach().double().flatten().tolist()  # type: ignore[no-any-return]


if __name__ == "__main__":
    trusted.TWICE = math.inf  # what is left out on a busy machine has its own test
    warnings.simplefilter("ignore")
    print(json.dumps({target: seen(target) for target in sys.argv[1:]}))
