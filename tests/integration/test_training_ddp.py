"""Data-parallel training with gloo, two processes: each part that is served trains as eager does under DDP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rank_jobs import free_port

pytestmark = pytest.mark.slow
JOB = Path(__file__).parents[1] / "data" / "ddp_training.py"
SERVED = ["fused", "compiled update", "update one by one", "model", "regions", "model with loss", "plan"]


@pytest.fixture(scope="module")
def told() -> list[dict[str, Any]]:
    """What both ranks say of themselves."""
    port = free_port()
    env = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    commands = [[sys.executable, str(JOB), json.dumps({"rank": rank, "ranks": 2, "port": port})] for rank in range(2)]
    ranks = [
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for command in commands
    ]
    try:
        answers = [rank.communicate(timeout=300) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert [rank.returncode for rank in ranks] == [0, 0], answers[0][1][-3000:] + answers[1][1][-3000:]
    return [json.loads(out.splitlines()[-1]) for out, _ in answers]


@pytest.mark.parametrize("part", SERVED)
def test_it_trains_as_eager_does(told: list[dict[str, Any]], part: str) -> None:
    first, second = (one["trained"][part] for one in told)
    assert first["weights"] == second["weights"]  # gradients were exchanged
    for rank in (first, second):
        assert rank["far"] < 1e-4
        assert (rank["fast"], rank["steps"], rank["fallbacks"]) == (6, 3, {})


def test_what_is_not_served_is_refused_in_a_sentence(told: list[dict[str, Any]]) -> None:
    for rank in told:
        assert rank["refused"] == {
            "one graph": "one graph for forward and backward would leave out what DDP does with gradients",
            "compiled autograd": "compiled autograd does not work with DDP's own reducer",
        }


def test_every_part_was_tried(told: list[dict[str, Any]]) -> None:
    assert [*told[0]["trained"]] == SERVED
