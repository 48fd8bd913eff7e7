"""Is the plan as fast as the best engine written by hand? Twelve models, every engine, each arm in its own process.

    python bench/engines.py [--only resnet18,mlp] [--out DIR] [--work DIR] [--pairs 160] [--processes 3]
                            [--screening 32] [--tune-budget 2m] [--tune-from DIR] [--steps N] [--table]

Per model: (a) `compilot tune`, or with --tune-from the run that bench/regret.py left in DIR/MODEL (its WORK/tune);
(b) every arm built in its own process and compared with eager; where the plan sets threads or the allocator, every arm
by hand once more with those settings; (c) a screening race of all arms, one process each, and one of those with the
plan's settings; (d) the judged race of plain torch.compile, the best hand-written arm (the best two where the screening
cannot tell them apart), the best with the plan's settings, and the plan: fresh processes, interleaved, the plan paired
directly; (e) where the plan's whole interval lies below 0.98 of the best by hand, a second fresh race. Each step is a
line of OUT/journal.jsonl; started again, the bench goes on after the last one, so a new measurement needs a new --out.
OUT is bench/results/engines/KEY, the key that of the kind of machine (the journal beside those folders is older than
the keys). With --steps N it ends after N steps; exit code 75: there is more to do, 0: all is done. `--table` only reads
the journal. OUT also gets table.md and table.csv; large files lie in WORK. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import engines_arms
import engines_mean
import engines_table as table
import stepping
import tune_runs
from compilot._durations import spell_duration
from compilot.artifacts.planfile import load_plan
from compilot.artifacts.rundir import RunDir
from compilot.records import ProcessSettings
from engines_arms import ArmFailed
from engines_journal import AGAIN, GIVEN_SCREENING, JUDGED, SCREENING, Built, Journal, Tuned
from engines_table import CONV_NETS, OTHERS
from stepping import DONE, MORE, MoreToDo, Steps, say

ARMS = (table.EAGER, *table.BY_HAND, table.PLAN)
TUNE = "COMPILOT_BENCH_TUNE"  # as by_hand.py reads it


class Bench(NamedTuple):
    """What to run and where to keep it."""

    journal: Journal
    work: Path
    pairs: int
    processes: int
    screening: int
    budget: str
    allowed: Steps
    tune_from: Path | None = None  # where the runs of another bench lie


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    models = stepping.chosen_models(options.only, (*CONV_NETS, *OTHERS))
    if not options.table and work(options, models) == MORE:
        return MORE
    report(Journal(options.out / "journal.jsonl"), models, options.out)
    return DONE


def work(options: argparse.Namespace, models: Sequence[str]) -> int:
    """Step after step; MORE where the allowed ones are used up and something is left."""
    journal = Journal(options.out / "journal.jsonl")
    source = options.tune_from and options.tune_from.resolve()
    refuse_missing(journal, models, source)
    if source is not None:
        os.environ[TUNE] = str(source)  # worker processes inherit it
    journal.begin(stepping.now(), tuple(sys.argv))
    counts = (options.pairs, options.processes, options.screening)
    bench = Bench(journal, options.work, *counts, options.tune_budget, Steps(options.steps), source)
    try:
        for model in models:
            measure(bench, model)
    except MoreToDo:
        say("engines", f"{bench.allowed.taken} steps done, more to do")
        return MORE
    return DONE


def refuse_missing(journal: Journal, models: Sequence[str], source: Path | None) -> None:
    """SystemExit where runs of another bench are wanted and are not there, or are not those of the journal."""
    for model in models:
        tuned = journal.tuned(model)
        if source is not None and tuned is None and not (source / model / "plan.json").is_file():
            raise SystemExit(
                f"{source} has no plan for {model}; run bench/regret.py for it first, or leave out --tune-from."
            )
        if tuned is not None and tuned.source != (str(source or "")):
            raise SystemExit(
                f"the journal has a plan for {model} from {tuned.source or 'a tune of its own'}; name another --out, "
                "or give --tune-from as before."
            )


def measure(bench: Bench, model: str) -> None:
    """Every step of one model that the journal does not have yet."""
    begin = time.monotonic()
    tune(bench, model)
    for arm in wanted_arms(bench, model):
        if arm not in bench.journal.arms(model):
            bench.allowed.take()
            say(model, f"building {arm}")
            built = engines_arms.build(bench.work, model, arm)
            bench.journal.append(built)
            say(model, f"{arm}: {'agrees with eager' if built.ok else built.reason}, {built.wall_s:.0f} s")
    if able(bench, model)[:1] != [table.EAGER]:
        return say(model, "eager itself fails; nothing to race")
    for race in (SCREENING, GIVEN_SCREENING, JUDGED):
        run_race(bench, model, race)
    row = table.row(bench.journal, model)
    if table.below(row.plan_best) or table.below(row.plan_given):
        say(model, "below the limit: a second race on fresh data")
        run_race(bench, model, AGAIN)
    return say(model, f"{table.row(bench.journal, model).verdict}; {time.monotonic() - begin:.0f} s")


def wanted_arms(bench: Bench, model: str) -> list[str]:
    """Every arm; the plan where there is one, and arms by hand with its settings where it has some."""
    tuned = bench.journal.tuned(model)
    if tuned is None or not tuned.ok:
        return [table.EAGER, *table.BY_HAND]
    return [*ARMS, *(table.BY_HAND_GIVEN if tuned.process != ProcessSettings() else ())]


def tune(bench: Bench, model: str) -> None:
    """`compilot tune` into a folder that is kept; one that was cut off starts anew. Or the run of another bench."""
    if bench.journal.tuned(model) is not None:
        return None
    if bench.tune_from is not None:
        return bench.journal.append(_taken(bench, model, bench.tune_from))
    bench.allowed.take()
    say(model, f"tuning, {bench.budget}")
    folder = bench.work / "tune" / model
    ended = tune_runs.tune(model, folder, bench.budget)
    return bench.journal.append(_tuned(bench, model, folder, ended.problem, ended.wall_s))


def _taken(bench: Bench, model: str, source: Path) -> Tuned:
    """A finished run, with the budget that it had."""
    header = RunDir(source / model).header()
    budget = spell_duration(header.budget_s)
    return _tuned(bench._replace(budget=budget), model, source / model, "", 0.0)


def _tuned(bench: Bench, model: str, folder: Path, problem: str, wall_s: float) -> Tuned:
    source = str(bench.tune_from or "")
    if problem:
        return Tuned(model=model, ok=False, wall_s=wall_s, budget=bench.budget, because=problem, source=source)
    plan = load_plan(folder / "plan.json")
    entry = plan.entries[0] if plan.entries else None
    return Tuned(
        model=model,
        ok=True,
        wall_s=round(wall_s, 1),
        budget=bench.budget,
        engine=entry.candidate.settings.engine if entry else "eager",
        label=entry.candidate.label if entry else "eager",
        because=plan.because,
        candidates_tried=entry.evidence.candidates_tried if entry else 0,
        machine=plan.fingerprint.machine,
        process=plan.process,
        source=source,
    )


def run_race(bench: Bench, model: str, name: str) -> None:
    """Sets of fresh processes until there are enough; an arm that fails is struck out and the race begins anew."""
    while arms := race_arms(bench, model, name):
        done = len([r for r in bench.journal.raced(model, name) if r.arms == tuple(arms)])
        screening = name in (SCREENING, GIVEN_SCREENING)
        count, pairs = (1, bench.screening) if screening else (bench.processes, bench.pairs)
        if done >= count:
            return
        bench.allowed.take()
        say(model, f"{name} race {done + 1} of {count}: {', '.join(arms)}")
        seed = done + (100 if name == AGAIN else 0)
        try:
            raced = engines_arms.race_once(bench.work, model, arms, name=name, process=seed, pairs=pairs)
        except ArmFailed as failed:
            if failed.arm == table.EAGER:
                raise
            bench.journal.append(Built(model=model, arm=failed.arm, ok=False, reason=failed.reason))
            say(model, str(failed))
            continue
        bench.journal.append(raced)


def race_arms(bench: Bench, model: str, name: str) -> list[str]:
    """Who takes part; nobody where no arm by hand has the plan's settings."""
    if name == SCREENING:
        return able(bench, model)
    if name == GIVEN_SCREENING:
        given = [arm for arm in able_given(bench, model) if arm in wanted_arms(bench, model)]
        return [table.EAGER, *given] if given else []
    return judged_arms(bench, model)


def able(bench: Bench, model: str) -> list[str]:
    """Arms that were built and agree with eager."""
    built = bench.journal.arms(model)
    return [arm for arm in ARMS if arm in built and built[arm].ok]


def able_given(bench: Bench, model: str) -> list[str]:
    """The same of those with the plan's settings."""
    built = bench.journal.arms(model)
    return [arm for arm in table.BY_HAND_GIVEN if arm in built and built[arm].ok]


def judged_arms(bench: Bench, model: str) -> list[str]:
    """Plain torch.compile, the best hand-written arm or two of each screening, the plan."""
    row = table.row(bench.journal, model)
    given = table.given_rivals(bench.journal, model)
    wanted = (table.COMPILE, *table.rivals(row.over_eager, row.built), *given, table.PLAN)
    return [arm for arm in (*able(bench, model), *able_given(bench, model)) if arm in wanted]


def report(journal: Journal, models: Sequence[str], out: Path) -> None:
    """Table and CSV, from the journal alone."""
    rows = [table.row(journal, model) for model in models]
    parts = [table.markdown(rows), ""]
    for name, members in (("conv nets", CONV_NETS), ("others", OTHERS)):
        if group := [r for r in rows if r.model in members]:
            parts.append(f"- {table.group_line(name, group)}")
    parts += [f"- {text}" for text in engines_mean.lines(rows)]
    parts += [f"- failed: {text}" for text in table.failures(rows)]
    parts += [f"- doubt: {text}" for text in table.doubts(rows)]
    out.mkdir(parents=True, exist_ok=True)
    (out / "table.md").write_text("\n".join(parts) + "\n")
    (out / "table.csv").write_text(table.as_csv(rows))
    print("\n".join(parts))


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="models, separated by commas")
    parser.add_argument("--out", type=Path, help="journal and tables")
    parser.add_argument(
        "--work", type=Path, default=Path("compilot-runs/bench-engines"), help="artifacts, caches, logs"
    )
    parser.add_argument("--pairs", type=int, default=160, help="per process, in the judged race")
    parser.add_argument("--processes", type=int, default=3, help="sets of fresh processes in the judged race")
    parser.add_argument("--screening", type=int, default=32, help="rounds of the screening race")
    parser.add_argument("--tune-budget", default="2m")
    parser.add_argument("--tune-from", type=Path, help="take the runs that lie here, one folder per model")
    parser.add_argument("--steps", type=int, help="end after so many; exit code 75 where more are left")
    parser.add_argument("--table", action="store_true", help="only print the table of what the journal has")
    options = parser.parse_args(argv)
    options.out = options.out or here / "results" / "engines" / stepping.machine_key(stepping.this_machine())
    return options


if __name__ == "__main__":
    sys.exit(main())
