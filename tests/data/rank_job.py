"""One rank of a distributed job that starts from one build, for tests/integration/test_ranks.py and bench/ranks.py.

    python rank_job.py '{"rank": 0, "ranks": 4, "port": 29500, "bundle": "...", "build_s": 6, "limit_s": 3, ...}'

Prints one line of JSON.
"""

from __future__ import annotations

import datetime
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import compilot
from compilot.artifacts.store.fetching import digest_of_file
from compilot.fleet import ranks
from compilot.runtime.bundles import example_call


def main(asked: dict[str, Any]) -> dict[str, Any]:
    limit = datetime.timedelta(seconds=asked["limit_s"])
    where = f"tcp://127.0.0.1:{asked['port']}"
    dist.init_process_group("gloo", where, rank=asked["rank"], world_size=asked["ranks"])
    group = dist.new_group(timeout=limit)  # of its own: how long the ranks take to start is not the question
    built: list[float] = []

    def build() -> str:
        time.sleep(asked["build_s"])
        built.append(time.time())
        if asked.get("fail"):
            raise compilot.InputError("the builder has no model")
        return str(asked["bundle"])

    if asked.get("far"):  # as on a host that does not see the builder's disk
        ranks._copied = lambda *_: False
    began = time.time()
    try:
        fast = compilot.fleet.load_together(build, wait=asked["wait_s"])
    except compilot.CompilotError as problem:
        return {"error": f"{type(problem).__name__}: {problem}", "seconds": time.time() - began}
    call = example_call(Path(asked["bundle"]), compilot.artifacts.bundle_trust.Trust())
    with torch.no_grad():
        answer = fast(*call.args, **call.kwargs)["logits"].sum()
    total = answer.clone()
    dist.all_reduce(total, group=group)  # all are here within the limit, or it raises
    kept = sorted(Path(asked["cache"]).glob("ranks/*.cpbundle"))
    told = {
        "built": len(built),
        "same": bool(torch.allclose(total, answer * asked["ranks"])),
        "fast": fast.stats().fast,
        "kept": [digest_of_file(path) for path in kept],
    }
    return told | {"naive": naive(asked, group)} if asked.get("naive") else told


def naive(asked: dict[str, Any], group: Any) -> str:
    """What happens to ranks that wait for the builder in a collective."""
    try:
        if asked["rank"] == 0:
            time.sleep(asked["build_s"])
        else:
            dist.barrier(group=group)
    except Exception as problem:
        return type(problem).__name__
    return "no time-out"


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))), flush=True)
