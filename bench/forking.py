"""Is a forked worker as fast as a fresh interpreter, and how much sooner is it there?

    python bench/forking.py [--target examples/resnet.py:resnet18] [--processes 20] [--rounds 40]

Forked and fresh workers of the same target take turns: in each pair of processes both are alive, warmed up, and timed
batch by batch in random order, as arms of a race. Printed: the ratio fresh / forked of seconds per call with its 95 %
interval over pairs of processes, how much the processes of each kind differ among themselves, and the seconds until
each had its model. With --engine the same for a candidate of that engine, built once by a forked and a fresh process
each. Exit code 1 where the interval does not lie within 2 % of 1. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from compilot.engines.eager.build import EAGER
from compilot.measure.racing import race
from compilot.measure.stats import hierarchical_bootstrap
from compilot.records import Candidate, Settings, Shipment
from compilot.trials.child import Child
from compilot.trials.limits import worker_env
from compilot.trials.nursery import Nursery
from compilot.trials.opening import opening
from compilot.trials.processes import Start, fresh
from compilot.trials.protocol import Build, Built, Opened, Warm, Warmed
from compilot.trials.replies import answered
from compilot.workload.dispatch import ship_target

WITHIN = 0.02
LIMIT_S = 600.0


class Ready(NamedTuple):
    """A warm worker."""

    child: Child
    open_s: float  # from its start until it had the model
    imports: tuple[str, ...]


def main() -> None:
    options = parse()
    candidate = EAGER
    if options.engine:
        candidate = Candidate(settings=Settings(engine=options.engine), label=options.engine, rationale="bench")
    shipment = ship_target(options.target)
    with tempfile.TemporaryDirectory(prefix="compilot-forking-") as folder:
        rows = measured(Path(folder), shipment, candidate, options)
    report(rows, options)


def measured(folder: Path, shipment: Shipment, candidate: Candidate, options: argparse.Namespace) -> list[dict]:
    """One row per pair of processes."""
    nursery = Nursery(folder / "forkserver.log")
    rows = []
    try:
        first = ready(folder, "learn", shipment, EAGER, nursery.start)
        nursery.learn(first.imports)
        nursery.settle()
        first.child.kill()
        for number in range(options.processes):
            kinds = {"forked": nursery.choose(compiles=candidate is not EAGER), "fresh": fresh}
            names = list(kinds) if number % 2 else list(kinds)[::-1]  # neither is always the older one
            arms = {name: ready(folder, f"{name}{number}", shipment, candidate, kinds[name]) for name in names}
            samples = race(
                [arms["forked"].child, arms["fresh"].child], looks=(options.rounds,), stop=lambda _: True, seed=number
            )
            for arm in arms.values():
                arm.child.kill()
            rows.append({"open_s": {name: arm.open_s for name, arm in arms.items()}, "rounds": samples.rounds})
            say(rows[-1], number)
    finally:
        nursery.close()
    if nursery.why_not:
        raise SystemExit(f"workers were not forked: {nursery.why_not}")
    return rows


def ready(folder: Path, name: str, shipment: Shipment, candidate: Candidate, start: Start) -> Ready:
    """A worker that has built its candidate and is warm."""
    begin = time.monotonic()
    workspace = folder / name
    workspace.mkdir()
    child = Child(name, log=folder / f"{name}.log", env=worker_env(workspace), start=start)
    opened = answered(child.ask(opening(shipment, candidate, workspace), Opened, limit_s=LIMIT_S, doing="opening"))
    took = time.monotonic() - begin
    answered(child.ask(Build(), Built, limit_s=LIMIT_S, doing="building"))
    answered(child.ask(Warm(for_s=20.0), Warmed, limit_s=LIMIT_S, doing="warming up"))
    return Ready(child, took, opened.imports)


def say(row: dict, number: int) -> None:
    forked, other = (statistics.median(r[i] for r in row["rounds"]) * 1e3 for i in (0, 1))
    opened = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in row["open_s"].items())
    print(f"{number + 1}: forked {forked:.2f} ms, fresh {other:.2f} ms; open: {opened}", file=sys.stderr, flush=True)


def report(rows: list[dict], options: argparse.Namespace) -> None:
    interval = hierarchical_bootstrap([[math.log(fresh / forked) for forked, fresh in r["rounds"]] for r in rows])
    if interval is None:
        raise SystemExit("too few pairs for an interval")
    ratio, low, high = (math.exp(value) for value in (interval.estimate, interval.low, interval.high))
    medians = {i: [math.log(statistics.median(r[i] for r in row["rounds"])) for row in rows] for i in (0, 1)}
    spread = {name: statistics.stdev(medians[i]) for i, name in enumerate(("forked", "fresh"))}
    opened = {name: statistics.median(row["open_s"][name] for row in rows) for name in ("forked", "fresh")}
    found = {"ratio": ratio, "low": low, "high": high, "spread": spread, "open_s": opened, "processes": len(rows)}
    if options.json:
        print(json.dumps({**found, "rows": rows}))
    else:
        print(f"fresh / forked {ratio:.4f} (95 % {low:.4f}-{high:.4f}; {len(rows)} x {options.rounds} pairs)")
        print(f"processes differ by (std of log): forked {spread['forked']:.3f}, fresh {spread['fresh']:.3f}")
        print(f"model there after: forked {opened['forked']:.2f} s, fresh {opened['fresh']:.2f} s")
    if not (low >= 1 - WITHIN and high <= 1 + WITHIN):
        raise SystemExit(1)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="examples/resnet.py:resnet18")
    parser.add_argument("--engine", default="", help="a candidate of this engine instead of eager")
    parser.add_argument("--processes", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
