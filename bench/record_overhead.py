"""What `compilot.record` adds to one call. In: nothing. Out: a table of nanoseconds, medians of 5 processes.

Each process times a model that answers at once, bare and recorded, in turns: many rounds of many calls, the median
round of each. Rows: one and two tensors, by position and by keyword, a dict of two, 500 sizes one after the other, and
what is off the fast path: a call of another form than the first of its kind. Clock: the thread's own time, so that
other programs on the machine do not count; --wall for the time of day.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import compilot

PROCESSES = 5
ROUNDS = 60
CALLS = 2000  # of a round
LIMIT_NS = 2000  # promised for up to two tensors
Calls = list[tuple[tuple[Any, ...], dict[str, Any]]]


class AtOnce(nn.Module):
    """Gives back its first input."""

    def forward(self, x: Any, mask: Any = None) -> Any:
        return x


def rows() -> dict[str, Calls]:
    """By name: the calls of a round, in turns."""
    x, mask = torch.randn(4, 8), torch.ones(4, 8)
    many = [torch.empty(size, 8) for size in range(1, 501)]
    return {
        "1 tensor": [((x,), {})],
        "2 tensors": [((x, mask), {})],
        "2 tensors, 1 by keyword": [((x,), {"mask": mask})],
        "2 tensors by keyword": [((), {"x": x, "mask": mask})],
        "2 tensors in a dict": [(({"x": x, "mask": mask},), {})],
        "2 tensors, 500 sizes": [((one, mask), {}) for one in many],
        "off the fast path": [((x, 3), {})],
    }


def nanoseconds(fn: Callable[..., Any], calls: Calls, clock: Callable[[], int]) -> float:
    """One round: nanoseconds per call."""
    todo = list(itertools.islice(itertools.cycle(calls), CALLS))
    begin = clock()
    for args, kwargs in todo:
        fn(*args, **kwargs)
    return (clock() - begin) / CALLS


def measured(wall: bool) -> dict[str, float]:
    """What recording adds to each row, in this process."""
    clock = time.perf_counter_ns if wall else time.thread_time_ns
    added = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, calls) in enumerate(rows().items()):
            model = AtOnce().eval()
            with compilot.record(model, Path(folder) / f"{number}.jsonl") as served:
                if name == "off the fast path":
                    for _ in range(300):
                        served(torch.ones(1), torch.ones(1))  # the form that is known then
                for args, kwargs in calls * max(1, 1000 // len(calls)):  # the first calls are kept in order
                    served(*args, **kwargs)
                pairs = [(nanoseconds(model, calls, clock), nanoseconds(served, calls, clock)) for _ in range(ROUNDS)]
            added[name] = statistics.median(recorded - bare for bare, recorded in pairs)
    return added


def main() -> None:
    """Five processes, their medians."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--json", action="store_true")
    options.add_argument("--wall", action="store_true")
    options.add_argument("--one", action="store_true", help="this process only, as JSON")
    asked = options.parse_args()
    if asked.one:
        print(json.dumps(measured(asked.wall)))
        return
    command = [sys.executable, __file__, "--one", *(["--wall"] if asked.wall else [])]
    found = [json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(PROCESSES)]
    table = {name: sorted(one[name] for one in found) for name in found[0]}
    if asked.json:
        print(json.dumps(table))
        return
    print(f"{'added by record':<26} {'median':>8}   of {PROCESSES} processes, ns per call")
    for name, values in table.items():
        over = "  over the promised 2000" if statistics.median(values) > LIMIT_NS and "tensor" in name else ""
        print(f"{name:<26} {statistics.median(values):>8.0f}   {values[0]:.0f}..{values[-1]:.0f}{over}")


if __name__ == "__main__":
    main()
