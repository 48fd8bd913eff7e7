"""What a process's allocator and huge pages do to a model's speed: each way in its own process, in turns.

    python bench/allocators.py [--models resnet18,bert_small] [--ways usual,kept,huge] [--compiled] [--processes 3]

Ways: `usual`; `kept` (freed memory stays in the process, a plan's `keep_memory`); `huge` (glibc asks for huge pages,
`GLIBC_TUNABLES=glibc.malloc.hugetlb=1`); `kept-huge` (both); `torch-huge` (torch asks for them,
`THP_MEM_ALLOC_ENABLE=1`); `collapsed` and `kept-collapsed` (after the warm-up what the process has is made huge pages,
once, by `MADV_COLLAPSE`); `jemalloc`, `tcmalloc` (preloaded, where installed). Printed for each: usual / way of seconds
per call with the 95 % interval over processes, peak memory, and how much of it lies in huge pages. Nothing else should
run meanwhile.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HUGE = 2 * 2**20
MADV_COLLAPSE = 25  # asm-generic/mman-common.h, Linux 6.1
BATCH_S = 0.05
WARM_S = 4.0
ASK_GLIBC = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
WAYS: dict[str, dict[str, str]] = {
    "usual": {},
    "kept": {},
    "huge": ASK_GLIBC,
    "kept-huge": ASK_GLIBC,
    "torch-huge": {"THP_MEM_ALLOC_ENABLE": "1"},
    "collapsed": {},
    "kept-collapsed": {},
    "jemalloc": {"LD_PRELOAD": "libjemalloc.so.2"},
    "tcmalloc": {"LD_PRELOAD": "libtcmalloc_minimal.so.4"},
}


# --------------------------------------------------------------------------------------------------------- one process


def collapse() -> int:
    """Make what this process has of memory huge pages, where whole ones fit; how many bytes were taken."""
    library = ctypes.CDLL(None, use_errno=True)
    taken = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        found = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw.p \S+ 00:00 0\s*(\[heap\])?$", line)
        if found is None:
            continue
        begin, end = (int(found[i], 16) for i in (1, 2))
        begin, end = -(-begin // HUGE) * HUGE, end // HUGE * HUGE
        for at in range(begin, end, HUGE):  # one at a time: a hole in the middle is no reason to leave the others out
            taken += HUGE * (library.madvise(ctypes.c_void_p(at), ctypes.c_size_t(HUGE), MADV_COLLAPSE) == 0)
    return taken


def serve(model: str, way: str, *, compiled: bool) -> None:
    """Load, warm up, then a batch for each line on stdin."""
    from compilot._allocator import keep_memory

    if way.startswith("kept"):
        keep_memory(True)
    import torch

    import engines_models

    torch.set_grad_enabled(False)
    module, args, kwargs = getattr(engines_models, model)()
    call = torch.compile(module) if compiled else module
    warm(lambda: call(*args, **kwargs))
    if way.endswith("collapsed"):
        collapse()
        warm(lambda: call(*args, **kwargs))
    say({"ready": True})
    took = timed(lambda: call(*args, **kwargs), 3)
    calls = max(1, math.ceil(BATCH_S / took))
    for _ in sys.stdin:
        say({"call_s": timed(lambda: call(*args, **kwargs), calls), **memory()})


def warm(call: Any) -> None:
    end = time.monotonic() + WARM_S
    call(), call()
    while time.monotonic() < end:
        call()


def timed(call: Any, calls: int) -> float:
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begin) / calls


def memory() -> dict[str, float]:
    """Of this process, in MiB: the peak, and what lies in huge pages."""
    peak = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    huge = re.search(r"AnonHugePages:\s+(\d+)", Path("/proc/self/smaps_rollup").read_text())
    assert peak is not None
    assert huge is not None
    return {"peak_mib": int(peak[1]) / 1024, "huge_mib": int(huge[1]) / 1024}


def say(found: dict[str, Any]) -> None:
    print("@" + json.dumps(found), flush=True)


# -------------------------------------------------------------------------------------------------------------- turns


class Arm:
    """One process."""

    def __init__(self, model: str, way: str, *, compiled: bool) -> None:
        command = [sys.executable, __file__, "--serve", way, "--models", model, *(["--compiled"] if compiled else [])]
        env = {**os.environ, **WAYS[way]}
        self._process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.last: dict[str, Any] = {}
        self._hear()

    def time_batch(self) -> float:
        """Seconds per call of one batch."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self.last = self._hear()
        return float(self.last["call_s"])

    def settle(self) -> bool:
        """Its threads go idle."""
        time.sleep(0.01)
        return True

    def end(self) -> None:
        """Let it go."""
        self._process.communicate()

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("@"):
                return dict(json.loads(line[1:]))
        raise SystemExit("a process ended early")


def raced(model: str, ways: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """Samples by way, process by process, and the last figures of memory."""
    from compilot.measure.racing import race

    rounds: list[tuple[tuple[float, ...], ...]] = []
    memory: dict[str, dict[str, float]] = {}
    for number in range(options.processes):
        arms = [Arm(model, way, compiled=options.compiled) for way in ways]
        rounds.append(race(arms, looks=(options.rounds,), stop=lambda _: True, seed=number).rounds)
        memory = {way: arm.last for way, arm in zip(ways, arms, strict=True)}
        for arm in arms:
            arm.end()
    return {"rounds": rounds, "memory": memory}


def shown(model: str, ways: list[str], found: dict[str, Any]) -> None:
    from compilot.measure.stats import hierarchical_bootstrap

    for at, way in enumerate(ways):
        ratios = [[math.log(row[0] / row[at]) for row in rows] for rows in found["rounds"]]
        call_ms = statistics.median(row[at] for rows in found["rounds"] for row in rows) * 1e3
        interval = hierarchical_bootstrap(ratios) if at else None
        text = "1"
        if interval is not None:
            text = "{:.3f} ({:.3f}-{:.3f})".format(*map(math.exp, (interval.estimate, interval.low, interval.high)))
        held = found["memory"][way]
        figures = f"{call_ms:.2f} | {text} | {held['peak_mib']:.0f} | {held['huge_mib']:.0f}"
        print(f"| {model} | {way} | {figures} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="resnet18,convnext_tiny,bert_small,gpt2_small")
    parser.add_argument("--ways", default="usual,kept,huge,kept-huge,torch-huge,collapsed,kept-collapsed")
    parser.add_argument("--compiled", action="store_true", help="torch.compile with its defaults instead of eager")
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.models, options.serve, compiled=options.compiled)
        return
    print("| model | way | ms per call | usual / way (95 %) | peak MiB | huge MiB |\n|---|---|--:|--:|--:|--:|")
    ways = options.ways.split(",")
    for model in options.models.split(","):
        shown(model, ways, raced(model, ways, options))


if __name__ == "__main__":
    main()
