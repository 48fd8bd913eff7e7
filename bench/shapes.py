"""Is the plan for a trace as fast as the best that people do by hand? Three models x two traces.

    python bench/shapes.py [--only bert-lengths,conv-bursts] [--budget 8m] [--processes 3] [--requests 256]
                           [--steps N] [--out DIR] [--work DIR] [--table]

For each case `compilot tune --trace`, then total time over the same requests under eager, plain torch.compile,
dynamic=True, powers-of-two buckets by hand, and the plan, interleaved, in fresh processes, each idle before the next
has its turn. The requests are another sample of the trace than the one that chose the plan. A second table has the time
to the first answers: of the first set of processes, whose compile caches are empty; the other sets have its caches.
Aims: the plan is not shown slower than the best of them anywhere, 1.3x over the best torch.compile policy on two, no
recompile after the warm-up, 99.9 % of the calls fast, and tune's forecast within 10 % of its own replay.
About 70 minutes with the usual options, most of it the six tunes.

Each tune and each set of processes is a step and a line of OUT/journal.jsonl; exit code 75: more to do; 1: an aim is
missed; 0: all met. `--table` only reads. SHAPES_TINY=1 makes everything tiny: give such runs an --out of their own.
Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import shapes_table
import stepping
from shapes_journal import Journal
from shapes_lab import Case, Lab
from shapes_models import MODELS, TRACES
from stepping import MORE, MoreToDo, Steps, say

CASES = [Case(model, trace) for model in MODELS for trace in TRACES]


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    here = Path(__file__).resolve().parent
    out = options.out or here / "results" / "shapes" / stepping.machine_key(stepping.this_machine())
    names = stepping.chosen_models(options.only, [case.name for case in CASES])
    cases = [case for case in CASES if case.name in names]
    journal = Journal(out / "journal.jsonl")
    lab = Lab(options.work, options.budget, options.requests)
    if not options.table and work(cases, journal, lab, options.processes, Steps(options.steps)) == MORE:
        return MORE
    return report(cases, journal, out)


def work(cases: Sequence[Case], journal: Journal, lab: Lab, processes: int, allowed: Steps) -> int:
    """Step after step; MORE where the allowed ones are used up and something is left."""
    try:
        for case in cases:
            if journal.tuned(case.name) is None:
                allowed.take()
                say(case.name, "tune")
                journal.append(tuned := lab.tune(case))
                if tuned.problem:
                    say(case.name, tuned.problem)
                    continue
            while (done := len(journal.raced(case.name))) < processes:
                allowed.take()
                say(case.name, f"race {done + 1}")
                journal.append(lab.race(case, done, journal.lost(case.name)))
    except MoreToDo:
        say("shapes", f"{allowed.taken} steps done, more to do")
        return MORE
    return stepping.DONE


def report(cases: Sequence[Case], journal: Journal, out: Path) -> int:
    """The tables, and what is not as it should be."""
    found = shapes_table.seen(cases, journal)
    text = shapes_table.tables(found)
    out.mkdir(parents=True, exist_ok=True)
    (out / "table.md").write_text(text + "\n")
    print(text)
    missed = shapes_table.problems(found, len(cases))
    for problem in missed:
        print(f"problem: {problem}")
    return 1 if missed else stepping.DONE


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="cases: bert-lengths, gpt2-bursts, ...")
    parser.add_argument("--budget", default="8m", help="of each tune")
    parser.add_argument("--processes", type=int, default=3, help="sets of fresh processes")
    parser.add_argument("--requests", type=int, default=256, help="of the trace, in each process")
    parser.add_argument("--steps", type=int, help="end after so many; exit code 75 where more are left")
    parser.add_argument("--out", type=Path, help="journal and tables; default: bench/results/shapes/KEY")
    parser.add_argument("--work", type=Path, default=Path("compilot-runs/bench-shapes"), help="run folders, logs")
    parser.add_argument("--table", action="store_true", help="only print the tables of what the journal has")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
