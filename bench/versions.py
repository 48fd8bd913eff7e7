"""Does this version try more in the same minutes than an older one? Both tune the same models in turn.

    python bench/versions.py --old OTHER_CHECKOUT/src [--only resnet18,bert_small] [--budget 5m] [--rounds 1]
                             [--steps N] [--out DIR] [--work DIR] [--table]

Each run is `compilot tune` in a process of its own with that checkout's code (PYTHONPATH), without what other runs have
taught. Which version goes first alternates. Per model and version: distinct programs or sessions that ended ok (by the
program's digest where there is one, else by settings; what was recognised as the same program does not count), trials
by state, seconds until the final winner was first tried, wall time. Each run is a step and a line of OUT/journal.jsonl;
exit code 75: more to do, 0: all done. `--table` only reads. Journals are read as plain JSON: an older version's may
have other fields. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import csv
import io
import statistics
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import stepping
import tune_runs
from compilot.records import Record
from engines_table import CONV_NETS, OTHERS
from stepping import DONE, MORE, SOURCES, MoreToDo, Steps, say
from tune_runs import Story

NEW, OLD = "new", "old"
MODELS = ("resnet18", "bert_small")
AIM = 3.0  # times as many distinct ones
HOUR_S = 3600.0


class Ran(Record, frozen=True, kw_only=True, tag="ran"):
    """One tune of one version."""

    model: str
    version: str  # NEW or OLD
    round: int
    at: str  # when it ended
    code: str  # commit
    budget: str
    wall_s: float
    problem: str = ""
    story: Story = Story(tried=(), chosen="")


class Turn(NamedTuple):
    """A run that is to be made."""

    model: str
    version: str
    round: int


def turns(models: Sequence[str], rounds: int) -> Iterator[Turn]:
    """Both versions of a model one after the other; neither is always the first."""
    for number in range(rounds):
        for place, model in enumerate(models):
            for version in (NEW, OLD) if (number + place) % 2 else (OLD, NEW):
                yield Turn(model, version, number)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    here = Path(__file__).resolve().parent
    out = options.out or here / "results" / "versions" / stepping.machine_key(stepping.this_machine())
    models = stepping.chosen_models(options.only or ",".join(MODELS), (*CONV_NETS, *OTHERS))
    if not options.table and work(options, models, out) == MORE:
        return MORE
    report(read(out), models, out)
    return DONE


def work(options: argparse.Namespace, models: Sequence[str], out: Path) -> int:
    """Run after run; MORE where the allowed ones are used up and something is left."""
    sources = {NEW: SOURCES, OLD: checked(options.old)}
    allowed = Steps(options.steps)
    done = {(ran.model, ran.version, ran.round) for ran in read(out)}
    try:
        for turn in (turn for turn in turns(models, options.rounds) if turn not in done):
            allowed.take()
            run_one(turn, sources[turn.version], options, out)
    except MoreToDo:
        say("versions", f"{allowed.taken} steps done, more to do")
        return MORE
    return DONE


def checked(old: Path | None) -> Path:
    """The other checkout's src folder; SystemExit where it is none."""
    if old is None or not (old / "compilot" / "__init__.py").is_file():
        raise SystemExit(f"--old must name the src folder of another checkout, with compilot in it; not {old}")
    return old.resolve()


def run_one(turn: Turn, sources: Path, options: argparse.Namespace, out: Path) -> None:
    folder = options.work.absolute() / f"{turn.model}-{turn.version}-{turn.round}"
    say(turn.model, f"tuning with the {turn.version} version, {options.budget}")
    ended = tune_runs.tune(turn.model, folder, options.budget, sources=sources)
    story = Story(tried=(), chosen="") if ended.problem else tune_runs.read_story(folder)
    ran = Ran(
        model=turn.model,
        version=turn.version,
        round=turn.round,
        at=stepping.now(),
        code=stepping.code_of(sources),
        budget=options.budget,
        wall_s=ended.wall_s,
        problem=ended.problem,
        story=story,
    )
    stepping.append_line(out / "journal.jsonl", ran)
    say(turn.model, ended.problem or f"{story.distinct_ok} distinct ones ok, chose {story.label}")


def read(out: Path) -> list[Ran]:
    return stepping.read_lines(out / "journal.jsonl", Ran)


# ----------------------------------------------------------------------------------------------------------- the table

HEAD = ("model", "version", "code", "round", "distinct ok", "trials", "winner after trial s", "after wall s")
HEAD_END = ("wall s", "chosen")


def report(runs: Sequence[Ran], models: Sequence[str], out: Path) -> None:
    """Table and CSV, from the journal alone."""
    own = [ran for model in models for ran in runs if ran.model == model]
    parts = [markdown(own), "", *(f"- {line}" for line in verdicts(own, models))]
    out.mkdir(parents=True, exist_ok=True)
    (out / "table.md").write_text("\n".join(parts) + "\n")
    (out / "table.csv").write_text(as_csv(own))
    print("\n".join(parts))


def cells(ran: Ran) -> list[str]:
    story = ran.story
    states = ", ".join(f"{count} {state}" for state, count in story.states.items()) or ran.problem or "none"
    spent, found = (("n/a" if s is None else f"{s:.0f}") for s in (story.spent_s, story.found_s))
    figures = [str(story.distinct_ok), states, spent, found, f"{ran.wall_s:.0f}", story.label]
    return [ran.model, ran.version, ran.code, str(ran.round), *figures]


def markdown(runs: Sequence[Ran]) -> str:
    lines = [[*HEAD, *HEAD_END], ["---"] * (len(HEAD) + len(HEAD_END)), *(cells(ran) for ran in runs)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def as_csv(runs: Sequence[Ran]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*HEAD, *HEAD_END])
    writer.writerows(cells(ran) for ran in runs)
    return out.getvalue()


def verdicts(runs: Sequence[Ran], models: Sequence[str]) -> list[str]:
    """One line per model and aim; over rounds the median counts."""
    found = []
    for model in models:
        new, old = ([r for r in runs if (r.model, r.version) == (model, v)] for v in (NEW, OLD))
        if not new or not old:
            found.append(f"{model}: not measured")
            continue
        more, before = (statistics.median(r.story.distinct_ok for r in own) for own in (new, old))
        times = more / before if before else float("inf")
        found.append(
            f"{model}: {more:g} distinct ones ok, {before:g} before: {times:.1f} times as many; aim {AIM:g}: "
            f"{'met' if times >= AIM else 'not met'}"
        )
        found.append(_sooner(model, new, old))
        found += _doubts(model, [*new, *old])
    return found


def _sooner(model: str, new: Sequence[Ran], old: Sequence[Ran]) -> str:
    """Seconds until the final winner was first tried: not more than before."""
    spent = [[r.story.spent_s for r in own if r.story.spent_s is not None] for own in (new, old)]
    if not all(spent):
        return f"{model}: seconds until the winner was first tried are not known"
    now, before = (statistics.median(own) for own in spent)
    return (
        f"{model}: the winner was first tried after {now:.0f} trial seconds, {before:.0f} before; aim not more: "
        f"{'met' if now <= before else 'not met'}"
    )


def _doubts(model: str, runs: Sequence[Ran]) -> list[str]:
    failed = [f"{model}: {r.version}: {r.problem}" for r in runs if r.problem]
    for number in {r.round for r in runs}:
        ends = [datetime.fromisoformat(r.at).timestamp() for r in runs if r.round == number]
        if max(ends) - min(ends) > HOUR_S:
            failed.append(f"{model}: the two versions were not run in the same hour")
    for version in (NEW, OLD):
        if len(codes := dict.fromkeys(r.code for r in runs if r.version == version)) > 1:
            failed.append(f"{model}: runs of several commits as the {version} version: {', '.join(codes)}")
    return failed


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, help="the src folder of the older checkout")
    parser.add_argument("--only", help=f"models, separated by commas; default: {','.join(MODELS)}")
    parser.add_argument("--budget", default="5m")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each version per model")
    parser.add_argument("--steps", type=int, help="end after so many runs; exit code 75 where more are left")
    parser.add_argument("--out", type=Path, help="journal and tables; default: bench/results/versions/KEY")
    parser.add_argument("--work", type=Path, default=Path("compilot-runs/bench-versions"), help="run folders, logs")
    parser.add_argument("--table", action="store_true", help="only print the table of what the journal has")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
