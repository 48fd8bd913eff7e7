"""Examines every program in tests/data/breaks; run by test_break_programs.py in a process of its own.

In: target strings as arguments. Out: one JSON object on stdout: target -> its findings.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import sys
import warnings

import msgspec
import torch

from compilot.diagnose.examine import Examination
from compilot.workload import load_target

SEED = 0


def findings(target: str) -> list[dict[str, object]]:
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
    return [msgspec.to_builtins(one) for one in report.findings if one.where]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps({target: findings(target) for target in sys.argv[1:]}))
