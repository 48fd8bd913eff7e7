"""Is the plan as fast as the best engine written by hand? Twelve models, every engine, each arm in its own process.

    python bench/engines.py [--only resnet18,mlp] [--out DIR] [--work DIR] [--pairs 160] [--processes 3]
                            [--screening 32] [--tune-budget 2m] [--table]

Per model: (a) `compilot tune`; (b) every arm built in its own process and compared with eager; (c) a screening race of
all arms, one process each; (d) the judged race of plain torch.compile, the best hand-written arm (the best two where
the screening cannot tell them apart) and the plan: fresh processes, interleaved, the plan paired directly; (e) where
the plan's whole interval lies below 0.97 of the best by hand, a second fresh race. Each step is a line of
OUT/journal.jsonl; started again, the bench goes on after the last one. `--table` only reads the journal. OUT also gets
table.md and table.csv; large files lie in WORK. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import datetime
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import engines_arms
import engines_table as table
from compilot.artifacts.planfile import load_plan
from engines_arms import ArmFailed
from engines_journal import AGAIN, JUDGED, SCREENING, Begun, Built, Journal, Tuned
from engines_table import CONV_NETS, OTHERS

MODELS = Path(__file__).resolve().parent / "engines_models.py"
ARMS = (table.EAGER, *table.BY_HAND, table.PLAN)
SPENT_OVER_S = 900.0  # beyond its budget a tune may finish its confirmation; then it is stuck


class Bench(NamedTuple):
    """What to run and where to keep it."""

    journal: Journal
    work: Path
    pairs: int
    processes: int
    screening: int
    budget: str


def main() -> None:
    options = parse()
    journal = Journal(options.out / "journal.jsonl")
    models = options.only.split(",") if options.only else [*CONV_NETS, *OTHERS]
    if unknown := [name for name in models if name not in (*CONV_NETS, *OTHERS)]:
        raise SystemExit(f"unknown models: {', '.join(unknown)}; there are {', '.join((*CONV_NETS, *OTHERS))}")
    if not options.table:
        journal.append(Begun(created=datetime.datetime.now(datetime.UTC).isoformat(), argv=tuple(sys.argv)))
        bench = Bench(journal, options.work, options.pairs, options.processes, options.screening, options.tune_budget)
        for model in models:
            measure(bench, model)
    report(journal, models, options.out)


def measure(bench: Bench, model: str) -> None:
    """Every step of one model that the journal does not have yet."""
    begin = time.monotonic()
    tune(bench, model)
    for arm in ARMS:
        if arm not in bench.journal.arms(model) and (arm != table.PLAN or _has_plan(bench, model)):
            say(model, f"building {arm}")
            built = engines_arms.build(bench.work, model, arm)
            bench.journal.append(built)
            say(model, f"{arm}: {'agrees with eager' if built.ok else built.reason}, {built.wall_s:.0f} s")
    if able(bench, model)[:1] != [table.EAGER]:
        return say(model, "eager itself fails; nothing to race")
    run_race(bench, model, SCREENING)
    run_race(bench, model, JUDGED)
    if table.below(table.row(bench.journal, model).plan_best):
        say(model, "below the limit: a second race on fresh data")
        run_race(bench, model, AGAIN)
    return say(model, f"{table.row(bench.journal, model).verdict}; {time.monotonic() - begin:.0f} s")


def tune(bench: Bench, model: str) -> None:
    """`compilot tune` into a folder that is kept; one that was cut off starts anew."""
    if bench.journal.tuned(model) is not None:
        return
    say(model, f"tuning, {bench.budget}")
    folder = bench.work / "tune" / model
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    code = "from compilot.cli.main import run; run()"
    command = [sys.executable, "-c", code, "tune", f"{MODELS}:{model}", "--budget", bench.budget, "--out", str(folder)]
    begin = time.monotonic()
    with (folder.parent / f"{model}.log").open("wb") as log:
        try:
            done = subprocess.run([*command, "--quiet"], stdout=log, stderr=log, timeout=_limit_s(bench.budget))
            problem = "" if done.returncode == 0 else f"compilot tune ended with code {done.returncode}: {log.name}"
        except subprocess.TimeoutExpired:
            problem = "compilot tune did not end"
    bench.journal.append(_tuned(bench, model, folder, problem, time.monotonic() - begin))


def _tuned(bench: Bench, model: str, folder: Path, problem: str, wall_s: float) -> Tuned:
    if problem:
        return Tuned(model=model, ok=False, wall_s=wall_s, budget=bench.budget, because=problem)
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
    )


def run_race(bench: Bench, model: str, name: str) -> None:
    """Sets of fresh processes until there are enough; an arm that fails is struck out and the race begins anew."""
    while True:
        arms = able(bench, model) if name == SCREENING else judged_arms(bench, model)
        done = len([r for r in bench.journal.raced(model, name) if r.arms == tuple(arms)])
        count, pairs = (1, bench.screening) if name == SCREENING else (bench.processes, bench.pairs)
        if done >= count:
            return
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


def able(bench: Bench, model: str) -> list[str]:
    """Arms that were built and agree with eager."""
    built = bench.journal.arms(model)
    return [arm for arm in ARMS if arm in built and built[arm].ok]


def judged_arms(bench: Bench, model: str) -> list[str]:
    """Plain torch.compile, the best hand-written arm or two of the screening, the plan."""
    row = table.row(bench.journal, model)
    wanted = (table.COMPILE, *table.rivals(row.over_eager, row.built), table.PLAN)
    return [arm for arm in able(bench, model) if arm in wanted]


def report(journal: Journal, models: list[str], out: Path) -> None:
    """Table and CSV, from the journal alone."""
    rows = [table.row(journal, model) for model in models]
    parts = [table.markdown(rows), ""]
    for name, members in (("conv nets", CONV_NETS), ("others", OTHERS)):
        if group := [r for r in rows if r.model in members]:
            parts.append(f"- {table.group_line(name, group)}")
    parts += [f"- failed: {text}" for text in table.failures(rows)]
    parts += [f"- doubt: {text}" for text in table.doubts(rows)]
    out.mkdir(parents=True, exist_ok=True)
    (out / "table.md").write_text("\n".join(parts) + "\n")
    (out / "table.csv").write_text(table.as_csv(rows))
    print("\n".join(parts))


def say(model: str, text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {model}: {text}", flush=True)


def _has_plan(bench: Bench, model: str) -> bool:
    tuned = bench.journal.tuned(model)
    return tuned is not None and tuned.ok


def _limit_s(budget: str) -> float:
    from compilot._durations import parse_duration

    return 3 * parse_duration(budget) + SPENT_OVER_S


def parse() -> argparse.Namespace:
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="models, separated by commas")
    parser.add_argument("--out", type=Path, default=here / "results" / "engines", help="journal and tables")
    parser.add_argument(
        "--work", type=Path, default=Path("compilot-runs/bench-engines"), help="artifacts, caches, logs"
    )
    parser.add_argument("--pairs", type=int, default=160, help="per process, in the judged race")
    parser.add_argument("--processes", type=int, default=3, help="sets of fresh processes in the judged race")
    parser.add_argument("--screening", type=int, default=32, help="rounds of the screening race")
    parser.add_argument("--tune-budget", default="2m")
    parser.add_argument("--table", action="store_true", help="only print the table of what the journal has")
    return parser.parse_args()


if __name__ == "__main__":
    main()
