"""Examines every program in tests/data/breaks; run by test_break_programs.py in a process of its own.

In: target strings as arguments. Out: one JSON object on stdout: target -> its findings, its number of graphs, and what
was not looked at.
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

import msgspec
import torch

from compilot.diagnose import trusted
from compilot.diagnose.examination import Examination
from compilot.workload import load_target

SEED = int(os.environ.get("COMPILOT_TEST_SEED", "0"))


def seen(target: str) -> dict[str, object]:
    torch.compiler.reset()
    random.seed(SEED)  # targets load with a fixed seed of their own; this is for what is drawn while they run
    torch.manual_seed(SEED)
    with contextlib.redirect_stdout(io.StringIO()):
        examination = Examination(load_target(target))
        examination.eager()
        examination.capture()
        examination.weigh()
        examination.drive()
        report = examination.report()
    findings = [msgspec.to_builtins(one) for one in report.findings if one.where]
    return {"findings": findings, "graphs": len(report.graphs), "unseen": report.unseen}


if __name__ == "__main__":
    trusted.TWICE = math.inf  # what is left out on a busy machine has its own test
    warnings.simplefilter("ignore")
    print(json.dumps({target: seen(target) for target in sys.argv[1:]}))
