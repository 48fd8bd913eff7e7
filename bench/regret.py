"""Does the search find what trying everything would find? The offered space, the default search, and a direct race.

    python bench/regret.py [--only mlp,lstm] [--steps N] [--out DIR] [--work DIR] [--budget 5m] [--table]

Per model: (a) the offered space exhaustively, each candidate tried once as `compilot tune` tries it: every engine's
seeds, every knob value alone on the best seed, pairs of those that helped by more than 1 %; at most 60. (b) `compilot
tune MODEL --budget 5m` for real, without what other runs have taught. (c) The best of the exhaustive trials and what
the search chose again in fresh processes; then the chosen one directly against the re-raced best, 3 processes x 160
pairs, with an A/A arm. Where both are the same candidate the regret is 0 and there is no such race.

Each step (a look, a trial, a search, a set of processes of a race) is a line of OUT/journal.jsonl; started again, the
bench goes on after the last one. With --steps N it ends after N steps. Exit code 75: there is more to do; 0: all is
done. `--table` only reads. OUT is bench/results/regret/KEY, the key that of the kind of machine; it gets table.md and
table.csv, too. Large files lie in WORK. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import regret_table as table
import stepping
from plan_arms import ArmFailed
from regret_journal import Journal, Lost, Rebuilt, Tried, kept
from regret_lab import Lab
from regret_steps import Look, RaceSet, Rebuild, Rules, Search, Step, Try, label_of, next_step
from stepping import DONE, MORE, MoreToDo, Steps, say

FAST_FIRST = (
    "mlp",
    "lstm",
    "mobilenetv2",
    "bert_small",
    "efficientnet_b0",
    "resnet18",
    "segformer_b0",
    "vit_small",
    "t5_small",
    "convnext_tiny",
    "whisper_tiny_encoder",
    "gpt2_small",
)


class Bench(NamedTuple):
    """What to run, with what, and where to write it down."""

    journal: Journal
    lab: Lab
    rules: Rules


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    machine = stepping.this_machine()
    out = options.out or Path(__file__).resolve().parent / "results" / "regret" / stepping.machine_key(machine)
    models = stepping.chosen_models(options.only, FAST_FIRST)
    rules = Rules(options.most, options.finalists, options.processes, options.rerace_pairs, options.pairs)
    bench = Bench(Journal(out / "journal.jsonl"), Lab(options.work, options.budget), rules)
    if not options.table:
        bench.journal.begin(tuple(sys.argv[1:] if argv is None else argv), machine)
        if work(bench, models, Steps(options.steps)) == MORE:
            return MORE
    report(bench, models, out)
    return DONE


def work(bench: Bench, models: Sequence[str], allowed: Steps) -> int:
    """Step after step; MORE where the allowed ones are used up and something is left."""
    try:
        for model in models:
            there = _there(bench.lab, model)
            while (step := next_step(bench.journal, model, bench.rules, there)) is not None:
                allowed.take()
                do(bench, model, step)
    except MoreToDo:
        say("regret", f"{allowed.taken} steps done, more to do")
        return MORE
    finally:
        bench.lab.close()
    return DONE


def _there(lab: Lab, model: str):
    return lambda candidate: lab.there(model, candidate)


def do(bench: Bench, model: str, step: Step) -> None:
    """Run one step and write down what came of it."""
    journal, lab = bench.journal, bench.lab
    if isinstance(step, Look):
        say(model, "looking at it, trying eager")
        journal.append(lab.look(model))
    elif isinstance(step, Try):
        trial = kept(lab.attempt(model, step.candidate, journal.trials(model)))
        journal.append(Tried(model=model, stage=step.stage, trial=trial))
        number = f"{len(journal.tried(model))}, {step.stage}"
        say(model, f"{number}: {step.candidate.label}: {trial.state}, {trial.wall_s:.1f} s {trial.reason[:80]}")
    elif isinstance(step, Rebuild):
        rebuild(bench, model, step)
    elif isinstance(step, Search):
        say(model, f"the default search, {lab.budget}")
        found = lab.search(model)
        journal.append(found)
        say(model, found.problem or f"chose {label_of(found.chosen)}, tried {len(found.story.tried)}")
    else:
        race(bench, model, step)


def rebuild(bench: Bench, model: str, step: Rebuild) -> None:
    """Files of an arm that are gone; a candidate that cannot be built again is lost."""
    say(model, f"building {label_of(step.candidate)} again, its files are gone")
    trial = bench.lab.attempt(model, step.candidate, bench.journal.trials(model), known=False)
    bench.journal.append(Rebuilt(model=model, trial=kept(trial)))
    if not bench.lab.there(model, step.candidate):
        reason = trial.reason or "left no files"
        bench.journal.append(Lost(model=model, candidate_id=step.candidate.id, reason=f"built again: {reason}"))


def race(bench: Bench, model: str, step: RaceSet) -> None:
    """One set of fresh processes; an arm that fails is out, and the race begins anew without it."""
    looked = bench.journal.looked(model)
    assert looked is not None
    names = ", ".join(label_of(candidate) for candidate in step.arms)
    say(model, f"{step.race} {step.process + 1} of {bench.rules.processes}: {names}")
    try:
        bench.journal.append(bench.lab.race(model, step, looked.diagnosis.indices))
    except ArmFailed as failed:
        bench.journal.append(Lost(model=model, candidate_id=failed.candidate_id, reason=failed.reason))
        say(model, str(failed))


def report(bench: Bench, models: Sequence[str], out: Path) -> None:
    """Table and CSV, from the journal alone."""
    rows = [table.row(bench.journal, model, bench.rules) for model in models]
    parts = [table.markdown(rows), "", *(f"- {line}" for line in (*table.totals(rows), *table.notes(rows)))]
    out.mkdir(parents=True, exist_ok=True)
    (out / "table.md").write_text("\n".join(parts) + "\n")
    (out / "table.csv").write_text(table.as_csv(rows))
    print("\n".join(parts))


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="models, separated by commas")
    parser.add_argument("--steps", type=int, help="end after so many; exit code 75 where more are left")
    parser.add_argument("--table", action="store_true", help="only print the table of what the journal has")
    parser.add_argument("--out", type=Path, help="journal and tables; default: bench/results/regret/KEY")
    parser.add_argument("--work", type=Path, default=Path("compilot-runs/bench-regret"), help="run folders, logs")
    parser.add_argument("--budget", default="5m", help="of the search")
    usual = Rules()
    parser.add_argument("--most", type=int, default=usual.most, help="candidates of the offered space per model")
    parser.add_argument("--finalists", type=int, default=usual.finalists, help="of the exhaustive trials, raced again")
    parser.add_argument("--processes", type=int, default=usual.processes, help="sets of fresh processes per race")
    parser.add_argument("--rerace-pairs", type=int, default=usual.rerace_pairs, help="per set, in the re-race")
    parser.add_argument("--pairs", type=int, default=usual.pairs, help="per set, in the direct race")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
