"""Is a plan that had more time ever slower? One model with several budgets, then the plans in a direct race.

    python bench/budgets.py [--model resnet18] [--budgets 60s,5m,20m] [--pairs 160] [--processes 3]
                            [--steps N] [--out DIR] [--work DIR] [--table]

Each tune runs in a process of its own, without what other runs have taught. The race loads the very files that each
run measured, in fresh processes, the first plan twice (A/A). A plan with more time is shown slower where the whole 95 %
interval of its speed-up over the shorter one's lies below 1 by more than the race's own margin. Plans that chose the
same candidate are equal and do not race each other. Each tune and each set of processes is a step and a line of
OUT/journal.jsonl; exit code 75: more to do, 0: all done. `--table` only reads. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import plan_arms
import stepping
import tune_runs
from compilot._durations import parse_duration
from compilot.artifacts.planfile import load_plan
from compilot.artifacts.rundir import RunDir
from compilot.engines.eager.build import EAGER
from compilot.records import Candidate, Comparison, DiagnosisLine, IndexFacts, Outcome, ProcessSamples, Race, Record
from compilot.verdict.compare import compare_columns
from compilot.workload.dispatch import ship_target
from engines_table import CONV_NETS, OTHERS
from plan_arms import Arm, ArmFailed
from stepping import DONE, MORE, MoreToDo, Steps, say
from tune_runs import Story


class Tuned(Record, frozen=True, kw_only=True, tag="tuned"):
    """One budget was spent."""

    model: str
    budget: str
    at: str
    code: str
    wall_s: float
    problem: str = ""
    chosen: Candidate = EAGER
    story: Story = Story(tried=(), chosen="")


class Raced(Record, frozen=True, kw_only=True, tag="raced"):
    """One set of fresh processes; the first two arms are the same candidate."""

    model: str
    process: int
    arms: tuple[str, ...]  # candidate ids
    at: str
    code: str
    samples: ProcessSamples
    load: str = ""


class Lost(Record, frozen=True, kw_only=True, tag="lost"):
    """A plan's candidate failed in the race."""

    model: str
    candidate_id: str
    reason: str


AnyLine = Tuned | Raced | Lost


class Bench(NamedTuple):
    """What to run and where to keep it."""

    model: str
    budgets: tuple[str, ...]  # the shortest first
    out: Path
    work: Path
    pairs: int
    processes: int

    def lines(self) -> list[AnyLine]:
        return [x for x in stepping.read_lines(self.out / "journal.jsonl", AnyLine) if x.model == self.model]

    def append(self, line: AnyLine) -> None:
        stepping.append_line(self.out / "journal.jsonl", line)

    def folder(self, budget: str) -> Path:
        return self.work.absolute() / f"{self.model}-{budget}"

    def tuned(self) -> dict[str, Tuned]:
        """By budget, the shortest first."""
        found = {x.budget: x for x in self.lines() if isinstance(x, Tuned)}
        return {budget: found[budget] for budget in self.budgets if budget in found}

    def lost(self) -> dict[str, str]:
        return {x.candidate_id: x.reason for x in self.lines() if isinstance(x, Lost)}

    def arms(self) -> tuple[Candidate, ...]:
        """Each chosen candidate once, the first twice; nobody where all plans are the same."""
        plans = {t.chosen.id: t.chosen for t in self.tuned().values() if not t.problem}
        able = [candidate for own, candidate in plans.items() if own not in self.lost()]
        return (able[0], *able) if len(able) > 1 else ()

    def race(self) -> Race:
        """The sets of processes over these arms so far."""
        ids = tuple(candidate.id for candidate in self.arms())
        found = [x for x in self.lines() if isinstance(x, Raced) and x.arms == ids]
        load = "; ".join(dict.fromkeys(x.load for x in found if x.load))
        return Race(arms=ids, with_aa=True, processes=tuple(x.samples for x in found), purpose="bench", load=load)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    here = Path(__file__).resolve().parent
    out = options.out or here / "results" / "budgets" / stepping.machine_key(stepping.this_machine())
    stepping.chosen_models(options.model, (*CONV_NETS, *OTHERS))
    budgets = tuple(sorted(options.budgets.split(","), key=parse_duration))
    bench = Bench(options.model, budgets, out, options.work, options.pairs, options.processes)
    if not options.table and work(bench, Steps(options.steps)) == MORE:
        return MORE
    report(bench)
    return DONE


def work(bench: Bench, allowed: Steps) -> int:
    """Step after step; MORE where the allowed ones are used up and something is left."""
    try:
        for budget in (budget for budget in bench.budgets if budget not in bench.tuned()):
            allowed.take()
            tune(bench, budget)
        while bench.arms() and len(bench.race().processes) < bench.processes:
            allowed.take()
            race_set(bench)
    except MoreToDo:
        say(bench.model, f"{allowed.taken} steps done, more to do")
        return MORE
    return DONE


def tune(bench: Bench, budget: str) -> None:
    say(bench.model, f"tuning, {budget}")
    folder = bench.folder(budget)
    ended = tune_runs.tune(bench.model, folder, budget)
    stamp = {"at": stepping.now(), "code": stepping.code_of(), "wall_s": ended.wall_s, "problem": ended.problem}
    if ended.problem:
        return bench.append(Tuned(model=bench.model, budget=budget, **stamp))
    plan = load_plan(folder / "plan.json")
    chosen = plan.entries[0].candidate if plan.entries else EAGER
    story = tune_runs.read_story(folder)
    return bench.append(Tuned(model=bench.model, budget=budget, chosen=chosen, story=story, **stamp))


def race_set(bench: Bench) -> None:
    """One set of fresh processes; an arm that fails is out, and the race begins anew without it."""
    arms, number = bench.arms(), len(bench.race().processes)
    homes = {t.chosen.id: bench.folder(budget) for budget, t in reversed(bench.tuned().items())}
    say(bench.model, f"race {number + 1} of {bench.processes}: {', '.join(one.label for one in arms)}")
    shipment = ship_target(f"{tune_runs.MODELS}:{bench.model}")
    placed = [Arm(one, homes[one.id]) for one in arms]
    try:
        one = plan_arms.race_once(shipment, placed, indices_of(homes.values()), process=number, pairs=bench.pairs)
    except ArmFailed as failed:
        say(bench.model, str(failed))
        return bench.append(Lost(model=bench.model, candidate_id=failed.candidate_id, reason=failed.reason))
    return bench.append(
        Raced(
            model=bench.model,
            process=number,
            arms=tuple(one.id for one in arms),
            at=stepping.now(),
            code=stepping.code_of(),
            samples=one.samples,
            load=one.load,
        )
    )


def indices_of(folders: Iterable[Path]) -> IndexFacts:
    """What the runs know of the model's index inputs: the same in each."""
    for folder in folders:
        for line in RunDir(folder).lines():
            if isinstance(line, DiagnosisLine):
                return line.diagnosis.indices
    return IndexFacts()


# ----------------------------------------------------------------------------------------------------------- the table


class Row(NamedTuple):
    """A longer budget's plan against a shorter one's. Above 1: the longer one's is faster."""

    longer: str
    shorter: str
    same: bool  # both chose the same candidate
    comparison: Comparison | None

    @property
    def verdict(self) -> str:
        if self.same:
            return "the same candidate"
        if self.comparison is None:
            return "not measured"
        return "shown slower" if self.comparison.outcome is Outcome.SLOWER else "not shown slower"


def rows(bench: Bench) -> list[Row]:
    """Each longer budget against each shorter one."""
    race = bench.race()
    done = len(race.processes) >= bench.processes
    return [
        Row(b, a, first.chosen.id == second.chosen.id, _compared(race, second, first) if done else None)
        for (a, first), (b, second) in combinations(_planned(bench.tuned()).items(), 2)
    ]


def _planned(tuned: Mapping[str, Tuned]) -> dict[str, Tuned]:
    return {budget: t for budget, t in tuned.items() if not t.problem}


def _compared(race: Race, longer: Tuned, shorter: Tuned) -> Comparison | None:
    if longer.chosen.id not in race.arms or shorter.chosen.id not in race.arms:
        return None
    return compare_columns(race, race.arms.index(longer.chosen.id), race.arms.index(shorter.chosen.id))


def report(bench: Bench) -> None:
    """Table and CSV, from the journal alone."""
    found = rows(bench)
    parts = [markdown(bench, found), "", *(f"- {line}" for line in notes(bench, found))]
    bench.out.mkdir(parents=True, exist_ok=True)
    (bench.out / f"{bench.model}.md").write_text("\n".join(parts) + "\n")
    (bench.out / f"{bench.model}.csv").write_text(as_csv(found))
    print("\n".join(parts))


def markdown(bench: Bench, found: Sequence[Row]) -> str:
    tuned = [["budget", "wall s", "tried", "chosen"], ["---"] * 4]
    for budget, one in bench.tuned().items():
        tuned.append([budget, f"{one.wall_s:.0f}", str(len(one.story.tried)), one.problem or one.chosen.label])
    raced = [["longer / shorter", "speed-up (95 %)", "margin", "verdict"], ["---"] * 4]
    raced += [[f"{r.longer} / {r.shorter}", *_figures(r.comparison), r.verdict] for r in found]
    return "\n\n".join("\n".join(f"| {' | '.join(cells)} |" for cells in table) for table in (tuned, raced))


def _figures(c: Comparison | None) -> list[str]:
    return ["n/a", "n/a"] if c is None else [f"{c.ratio:.3f}x ({c.low:.3f}-{c.high:.3f})", f"{100 * c.margin:.1f} %"]


def notes(bench: Bench, found: Sequence[Row]) -> list[str]:
    shown = [f"{r.longer} after {r.shorter}" for r in found if r.verdict == "shown slower"]
    unknown = sum(r.verdict == "not measured" for r in found) + len(bench.budgets) - len(_planned(bench.tuned()))
    state = "not met" if shown else "not decided" if unknown else "met"
    lines = [f"plans with more time that are shown slower: {', '.join(shown) or 'none'}; aim none: {state}"]
    race = bench.race()
    if race.processes:
        aa = compare_columns(race, 1, 0)
        lines.append(f"A/A {aa.ratio:.3f}x ({aa.low:.3f}-{aa.high:.3f}), {aa.processes} x {aa.pairs} pairs")
    lines += [f"failed in the race: {own}: {why}" for own, why in bench.lost().items()]
    return [*lines, *([race.load] if race.load else [])]


def as_csv(found: Sequence[Row]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["longer", "shorter", "same_candidate", "ratio", "low", "high", "margin", "verdict"])
    for r in found:
        c = r.comparison
        figures = [c.ratio, c.low, c.high, c.margin] if c is not None else [""] * 4
        writer.writerow([r.longer, r.shorter, r.same, *figures, r.verdict])
    return out.getvalue()


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--budgets", default="60s,5m,20m", help="separated by commas")
    parser.add_argument("--pairs", type=int, default=160, help="per process")
    parser.add_argument("--processes", type=int, default=3, help="sets of fresh processes")
    parser.add_argument("--steps", type=int, help="end after so many; exit code 75 where more are left")
    parser.add_argument("--out", type=Path, help="journal and tables; default: bench/results/budgets/KEY")
    parser.add_argument("--work", type=Path, default=Path("compilot-runs/bench-budgets"), help="run folders, logs")
    parser.add_argument("--table", action="store_true", help="only print the table of what the journal has")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
