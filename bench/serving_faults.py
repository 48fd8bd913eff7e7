"""Does a server go on with right answers, whatever happens to its plan, its child, its disk and its store?

    python bench/serving_faults.py DIR [--only CASE,CASE] [--runs 10] [--again]

Every fault is injected --runs times, with threads that call all the time and look at every answer. Each case is one
line of DIR/serving_faults.jsonl; one that held as often as is asked for is not run again. What must hold in each run:
no call fails, every answer is right, the service goes on, and an event names the reason.

  wrong-always     a plan that is wrong on every call; it never answers a user
  wrong-1-in-20    wrong on 1 call in 20; rolled back, at most one wrong answer
  slower           rolled back by its median
  raises           its engine raises at the 1,000th call
  killed-*         the building child killed with kill -9 at moments of its life, while the Swap is building, fetching,
                   live or rolled back. It is tried again, and ends live
  disk-full        the cache on a file system of its own that has no room, from no byte on to nearly enough
  store-away       a folder that is not there, a port that nobody listens at, a server that only has errors, a server
                   that never answers; the first comes back in the end
  processes        4 processes with 32 threads each: no answer lost, one build, one load each
  swaps            1,000 swaps under load

Exit code 1 where a goal is missed. About 15 minutes. None of these are figures of speed.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import serving_fault_children as children
import serving_fault_plans as plans
from compilot.records import Record
from serving_load import Run
from stepping import StampedLines

CASES: dict[str, Callable[[int], Run]] = {
    "wrong-always": plans.wrong_always,
    "wrong-1-in-20": plans.wrong_sometimes,
    "slower": plans.slower,
    "raises": plans.raises,
    "killed-building": children.killed_building,
    "killed-fetching": children.killed_fetching,
    "killed-live": children.killed_live,
    "killed-rolled-back": children.killed_rolled_back,
    "disk-full": children.disk_full,
    "store-away": children.store_away,
    "processes": children.processes,
    "swaps": plans.swaps,
}
ONCE = {"processes", "swaps"}  # each is many by itself


class CaseLine(Record, frozen=True, kw_only=True):
    """One case, run several times."""

    case: str
    held: int
    runs: tuple[Run, ...]
    answers: int
    wrong: int
    failed: int
    seconds: float
    at: str = ""
    code: str = ""


def run_case(name: str, count: int) -> CaseLine:
    """One line."""
    begin = time.monotonic()
    found = tuple(CASES[name](number) for number in range(count))
    return CaseLine(
        case=name,
        held=sum(not run.missed for run in found),
        runs=found,
        answers=sum(run.answers for run in found),
        wrong=sum(run.wrong for run in found),
        failed=sum(run.failed for run in found),
        seconds=round(time.monotonic() - begin, 1),
    )


def told(line: CaseLine) -> str:
    """A line for people."""
    count = len(line.runs)
    what = f"{line.answers:,} answers, {line.wrong} wrong, {line.failed} failed, {line.seconds:.0f} s"
    text = f"{line.case:20} {line.held} of {count}  {what}"
    odd = [f"    run {number}: {'; '.join(run.missed)}" for number, run in enumerate(line.runs) if run.missed]
    return "\n".join([text, *odd])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default=",".join(CASES), help="cases, with commas between them")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--again", action="store_true", help="also those that held before")
    args = parser.parse_args()
    logging.getLogger("compilot").setLevel(logging.CRITICAL)  # what is injected is warned of, thousands of times
    warnings.filterwarnings("ignore", message="the compiled model failed")
    names = args.only.split(",")
    if unknown := [name for name in names if name not in CASES]:
        parser.error(f"unknown cases: {', '.join(unknown)}; there are {', '.join(CASES)}")
    lines: StampedLines[CaseLine] = StampedLines(args.folder / "serving_faults.jsonl", CaseLine)
    missed = 0
    for name in names:
        count = 1 if name in ONCE else args.runs
        done = [line for line in lines.lines if line.case == name and line.held == len(line.runs) >= count]
        if not done or args.again:
            lines.append(run_case(name, count))
            done = lines.lines[-1:]
        print(told(done[-1]), flush=True)
        missed += done[-1].held < len(done[-1].runs)
    print(f"{len(names) - missed} of {len(names)} cases held")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
