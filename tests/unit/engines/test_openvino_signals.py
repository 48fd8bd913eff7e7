"""A process that has run OpenVINO goes on handling its signals."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("openvino")

TWO_COME_AND_GO = """
import gc, signal, sys, time
from pathlib import Path
import torch
from compilot._tree import Call
from compilot.engines.openvino import build, load
from compilot.engines.protocol import BuildRequest, LoadRequest
from compilot.records import Candidate, Settings, Shapes
from compilot.runtime.guards import make_guard

model, call = torch.nn.Linear(4, 2).eval(), Call((torch.ones(1, 4),), {})
guard = make_guard(model, call, dynamic=(), shapes=Shapes.STATIC, grad=False)
settings = Settings(engine="openvino")
folder = Path(sys.argv[1])
build.build(BuildRequest(model, call, guard, Candidate(settings=settings, label="", rationale=""), folder))
loaded = [load.load(LoadRequest(model, guard, settings, folder)) for _ in range(2)]
answers = [one.call(torch.ones(1, 4)) for one in loaded]
assert all(torch.allclose(answer, model(torch.ones(1, 4)), atol=1e-5) for answer in answers)
while loaded:
    del loaded[0]  # in the order in which they came
    gc.collect()
signal.signal(signal.SIGALRM, lambda *_: print("handled"))
signal.setitimer(signal.ITIMER_REAL, 0.01)
while signal.getitimer(signal.ITIMER_REAL)[0]:
    time.sleep(0.01)
print("alive")
"""


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["-X", "faulthandler"]], ids=["plain", "with a fault handler"])
def test_a_signal_is_handled_after_the_engine_was_let_go(tmp_path: Path, more: list[str]) -> None:
    command = [sys.executable, *more, "-c", TWO_COME_AND_GO, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-2:]) == (0, ["handled", "alive"]), done.stderr
