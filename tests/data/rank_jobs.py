"""Distributed jobs of some ranks on this machine, each rank with a cache of its own, as on hosts of their own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

JOB = Path(__file__).with_name("rank_job.py")
LONGEST_S = 300


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_ranks(
    folder: Path, bundle: Path, ranks: int = 4, of_rank: Mapping[int, dict[str, Any]] | None = None, **asked: Any
) -> list[dict[str, Any]]:
    """What each rank of a job tells; of_rank: what only one of them is asked."""
    port = free_port()
    started = []
    for rank in range(ranks):
        cache = folder / f"cache-{rank}"
        cache.mkdir(mode=0o700, exist_ok=True)
        told = {"rank": rank, "ranks": ranks, "port": port, "bundle": str(bundle), "cache": str(cache), **asked}
        env = {**os.environ, "COMPILOT_CACHE": str(cache), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(JOB), json.dumps({**told, **(of_rank or {}).get(rank, {})})]
        started.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    try:
        return [_told(process) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()


def _told(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=LONGEST_S)
    assert process.returncode == 0, err[-3000:]
    answer: dict[str, Any] = json.loads(out.splitlines()[-1])
    return answer
