"""Is the method honest? Eager against itself, many times; then against itself made slower by a known amount.

    python bench/aa.py [--comparisons 40] [--slowdowns 20] [--pairs 40] [--slow-pairs 80] [--processes 3]

Every comparison is made as a plan's confirmation is: three sets of live processes, an A/A arm in each round, the same
bootstrap and margin. The slow-down is not a timer's but real work: a model of 100 equal layers against one with more of
them, so 4 more layers are 4 % more work. It is twice the margin that the A/A comparisons had; the slow-down races have
more pairs, because a race whose interval is as wide as its margin cannot show twice that margin. Nothing else should
run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from pathlib import Path

from compilot.artifacts.rundir import RunDir
from compilot.measure.racing import race
from compilot.progress import Observer
from compilot.records import Outcome, ProcessSamples, Race
from compilot.trials.child import Child
from compilot.trials.limits import Limits
from compilot.trials.workers import Workers
from compilot.verdict.compare import compare_columns
from compilot.workload.dispatch import ship_target

MODELS = Path(__file__).parent / "aa_models.py"
ARMS = 3  # eager, its A/A twin, and the arm that is judged


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        same = arms(Path(folder) / "same", "layers_100", ARMS * options.processes)
        print(f"A/A: {options.comparisons} comparisons of {options.processes} processes x {options.pairs} pairs")
        results = [compare_once(same, options.pairs, number) for number in range(options.comparisons)]
        if results:
            report_same(results)
        extra = options.extra or max(2, round(200 * statistics.median(r.margin for r in results)))
        print(f"slow-down: {extra} % more work, {options.slow_pairs} pairs")
        slow = arms(Path(folder) / "slow", f"layers_{100 + extra}", options.processes)
        slowed = [compare_once(same, options.slow_pairs, number, slow) for number in range(options.slowdowns)]
        if slowed:
            report_slow(slowed, extra)
        for child in [*same, *slow]:
            child.quit()
    if options.json:
        Path(options.json).write_text(json.dumps({"same": table(results), "slow": table(slowed), "extra": extra}))


def arms(folder: Path, factory: str, count: int) -> list[Child]:
    """Fresh eager workers, warmed up."""
    workers = Workers(ship_target(f"{MODELS}:{factory}"), RunDir(folder), limits=Limits(), observer=Observer())
    return [workers.extra_eager(f"{factory}-{n}") for n in range(count)]


def compare_once(same: list[Child], pairs: int, number: int, slow: list[Child] | None = None):
    """One comparison as the confirmation makes it; which process plays which part is drawn anew each time."""
    draw = random.Random(number)
    pool = draw.sample(same, len(same))
    sets = []
    for process in range(len(same) // ARMS):
        three = pool[process * ARMS : (process + 1) * ARMS]
        if slow is not None:
            three = [*three[:2], slow[process]]
        sets.append(race(three, looks=(pairs,), stop=lambda _: True, seed=number * 10 + process))
    result = judged(sets)
    interval = f"{result.low:.3f}-{result.high:.3f}"
    print(
        f"  {number + 1:3}: ratio {result.ratio:.3f} ({interval}), margin {result.margin:.1%}, {result.outcome}",
        flush=True,
    )
    return result


def judged(sets: list[ProcessSamples]):
    whole = Race(arms=("eager", "eager", "judged"), with_aa=True, processes=tuple(sets), purpose="aa")
    return compare_columns(whole, 2, 0)


def report_same(results) -> None:
    quiet = sum(r.outcome is Outcome.NO_DIFFERENCE for r in results)
    ratios = sorted(r.ratio for r in results)
    print(f"no difference: {quiet} of {len(results)}; ratios {ratios[0]:.3f} to {ratios[-1]:.3f}")


def report_slow(results, extra: int) -> None:
    found = sum(r.outcome is Outcome.SLOWER for r in results)
    ratio = statistics.median(r.ratio for r in results)
    print(f"{extra} % slow-down found: {found} of {len(results)}; median ratio {ratio:.3f}")


def table(results) -> list[dict[str, object]]:
    keys = ("ratio", "low", "high", "margin", "mde", "aa_noise")
    return [{**{k: getattr(r, k) for k in keys}, "outcome": str(r.outcome)} for r in results]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--comparisons", type=int, default=40)
    parser.add_argument("--slowdowns", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--slow-pairs", type=int, default=80, help="pairs of the slow-down races")
    parser.add_argument("--extra", type=int, help="per cent of more work; default: twice the median A/A margin")
    parser.add_argument("--json")
    return parser.parse_args()


if __name__ == "__main__":
    began = time.monotonic()
    main()
    print(f"took {time.monotonic() - began:.0f} s")
