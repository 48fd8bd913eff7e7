"""Is the boundary that the search chooses the right one, and is what fails repaired? Three parts, one journal.

    python bench/boundary.py [--parts gpt2,six,repair] [--only bert,branch-0] [--budget 3m] [--pairs 60]
                             [--processes 3] [--rounds 5] [--calls 100] [--steps N] [--out DIR] [--work DIR] [--table]

gpt2     24 layers: whole-model compile against regional compile: cold starts in fresh processes with empty caches (wall
         seconds, C++ compiler runs, programs), steady speed against eager; the plans of `tune --horizon 100` (total
         wall of 100 calls in fresh processes, every arm in each round) and of `--horizon 1000000` (the fastest arm).
         Arms that are the same candidate have the same lives.
six      GPT-2, BERT, ViT, a Llama, a U-Net, an MLP-Mixer, of six layers: whole, regional, bottleneck, hybrid and what
         the search chose, in one race.
repair   one block of twelve that a registered backend gets wrong, that torch's own seeded miscompile gets wrong (five
         seeds each: is the block named, and how fast is the plan without it?), or that cannot be exported (two seeds:
         is the plan faster than eager, and than torch.compile of the whole?). All processes of this part keep freed
         memory: without that eager takes 19 or 35 ms here, by the layout of its process' heap.

What it should take on two cores, by its budgets: 20 tunes are half of it. The `at` of the journal's lines says what it
took.

    python bench/boundary.py --parts gpt2                  25 minutes
    python bench/boundary.py --parts six                   40 minutes
    python bench/boundary.py --parts repair --budget 2m    30 minutes

Each look, each trial, each tune, each set of raced processes and each life is a step and a line of OUT/journal.jsonl;
exit code 75: more to do, 0: all done. `--table` only reads. BOUNDARY_TINY=1 makes the models tiny (BOUNDARY_WIDTH and
BOUNDARY_ROWS those of repair): give such runs an --out of their own. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import boundary_table
import stepping
from boundary_cases import CALLS, OF_FILES, PARTS, Case, Rules, Step, cases, next_step
from boundary_journal import Journal
from boundary_lab import Lab
from compilot.candidates.spaces import usable_engines
from stepping import DONE, MORE, MoreToDo, Steps, say


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    here = Path(__file__).resolve().parent
    out = options.out or here / "results" / "boundary" / stepping.machine_key(stepping.this_machine())
    rules = Rules(options.processes, options.pairs, options.rounds, options.calls)
    journal = Journal(out / "journal.jsonl")
    parts = stepping.chosen_models(options.parts, PARTS)
    wanted = cases(parts, options.only.split(",") if options.only else (), engine_of_files(options.table))
    with closing(Lab(options.work, options.budget, options.pairs)) as lab:
        if not options.table and work(wanted, journal, rules, lab, Steps(options.steps)) == MORE:
            return MORE
    boundary_table.report(wanted, journal, rules, out)
    return DONE


def engine_of_files(table: bool) -> str:
    """The first that is here; a table asks nobody."""
    able = () if table else usable_engines(OF_FILES)
    return next(iter(able), OF_FILES[0])


KEEPS = {"MALLOC_TRIM_THRESHOLD_": "1000000000", "MALLOC_MMAP_THRESHOLD_": "1000000000"}  # glibc's, read at a start


def set_heap(part: str) -> None:
    """What the processes of a part do with freed memory."""
    for name, value in KEEPS.items():
        if part == "repair":
            os.environ[name] = value
        else:
            os.environ.pop(name, None)


def work(wanted: Sequence[Case], journal: Journal, rules: Rules, lab: Lab, allowed: Steps) -> int:
    """Step after step; MORE where the allowed ones are used up and something is left."""
    try:
        for case in wanted:
            while (step := next_step(case, journal.of(case.name), rules)) is not None:
                allowed.take()
                say(case.name, words(step))
                set_heap(case.part)
                journal.append(lab.take(case, step, journal.of(case.name)))
    except MoreToDo:
        say("boundary", f"{allowed.taken} steps done, more to do")
        return MORE
    return DONE


def words(step: Step) -> str:
    """What is about to be done."""
    shown = {"arm", "round", "process", "words"}
    return " ".join([type(step).__name__.lower(), *(str(v) for k, v in step._asdict().items() if k in shown)])


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS), help="separated by commas")
    parser.add_argument("--only", help="cases: gpt2-24, bert, backend-3, ...")
    parser.add_argument("--budget", default="3m", help="of each tune")
    parser.add_argument("--pairs", type=int, default=60, help="per process")
    parser.add_argument("--processes", type=int, default=3, help="sets of fresh processes")
    parser.add_argument("--rounds", type=int, default=5, help="of lives")
    parser.add_argument("--calls", type=int, default=CALLS, help="of a life")
    parser.add_argument("--steps", type=int, help="end after so many; exit code 75 where more are left")
    parser.add_argument("--out", type=Path, help="journal and tables; default: bench/results/boundary/KEY")
    parser.add_argument("--work", type=Path, default=Path("compilot-runs/bench-boundary"), help="run folders, logs")
    parser.add_argument("--table", action="store_true", help="only print the tables of what the journal has")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
