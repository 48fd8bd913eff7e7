"""`compilot bench TARGET --plan PLAN`: eager, plain torch.compile and plans side by side. In: a target. Out: one table.

Nothing is searched and nothing decided: each arm is built cold, checked, and timed in fresh processes beside eager.
A plan that was made for another model or machine is measured all the same, and what differs is said. A plan's declared
dimensions are the bench's too. An arm that fails, in its trial or in the race, is a row of the table like any other.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from compilot.api import default_run_dir
from compilot.artifacts.rundir import RunDir
from compilot.cli import common
from compilot.showing import watching

if TYPE_CHECKING:
    from compilot.artifacts.journal import Journal
    from compilot.progress import Observer
    from compilot.records import Candidate, DynamicDim, Fingerprint, Plan, Trial, WorkloadRef
    from compilot.report import RunData
    from compilot.trials.runner import Runner

TRIAL_CAP_S = 600.0


class BenchRequest(NamedTuple):
    """What is to be compared, and how long."""

    target: str
    plans: tuple[tuple[Path, Plan], ...]
    pairs: int
    processes: int
    dynamic: tuple[DynamicDim, ...] = ()
    seed: int | None = None  # None: the target's own


def bench(
    target: Annotated[str, typer.Argument(help="path/to/file.py:factory or package.module:factory")],
    plan: Annotated[list[Path] | None, typer.Option(help="A plan.json to measure. Repeatable.")] = None,
    pairs: Annotated[int, typer.Option(min=6, max=2000, help="Interleaved pairs per process.")] = 40,
    processes: Annotated[int, typer.Option(min=1, max=20, help="Sets of fresh processes.")] = 3,
    dynamic: Annotated[
        list[str] | None,
        typer.Option(
            help="An input dimension that varies: NAME:DIM=MIN..MAX, or batch=MIN..MAX, seq=MIN..MAX for all inputs. "
            "Repeatable. Default: the plans' own."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the inputs, instead of the target's own.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run directory. Default: compilot-runs/bench-NAME-TIME.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Measure eager, plain torch.compile and the given plans side by side."""
    with common.guarded(debug=debug, as_json=json):
        from compilot.artifacts.planfolder import open_plan

        plans = tuple((path, open_plan(path)) for path in plan or ())
        run_dir = (out or default_run_dir(f"bench-{common.factory_name(target)}")).absolute()
        dims = dimensions([each for _, each in plans], dynamic or ())
        with watching(None, quiet=quiet) as observer:
            labels = measure(BenchRequest(target, plans, pairs, processes, dims, seed), run_dir, observer)
        show(run_dir, labels, as_json=json)


def dimensions(plans: Sequence[Plan], spellings: Sequence[str]) -> tuple[DynamicDim, ...]:
    """What the plans declare, the widest range where several speak of one dimension; an option overrides them."""
    import msgspec

    from compilot.workload.dynamic import parse_dynamic

    widest: dict[tuple[str, int], DynamicDim] = {}
    for dim in (dim for plan in plans for dim in plan.workload.dynamic):
        place = (dim.input, dim.dim)
        known = widest.get(place, dim)
        widest[place] = msgspec.structs.replace(dim, min=min(known.min, dim.min), max=max(known.max, dim.max))
    declared = {place: widest[place] for place in sorted(widest)}
    declared |= {(dim.input, dim.dim): dim for dim in map(parse_dynamic, spellings)}
    return tuple(declared.values())  # the options last: what they mean is known in the worker, and the later counts


def measure(request: BenchRequest, run_dir: Path, observer: Observer) -> dict[str, str]:
    """Build, check and time every arm; the journal in the run directory has it all. Returns id -> plan path."""
    from compilot.report import write_csv
    from compilot.trials.limits import Limits, default_memory_limit
    from compilot.trials.local import LocalRunner
    from compilot.tuning.pipeline import remembered

    limits = Limits(memory_bytes=default_memory_limit(), machine_bytes=default_memory_limit())
    allowed = [e.evidence.tolerance for _, plan in request.plans for e in plan.entries if e.evidence.tolerance]
    tolerance = max(allowed, default=None)  # a plan in a lower precision is judged as it was when it was made
    where = RunDir(run_dir)
    with (
        remembered(where, request.target, observer),
        LocalRunner(where, limits=limits, observer=observer, tolerance=tolerance, compiler_first=True) as runner,
    ):
        journal, candidates, labels = _prepare(runner, request, run_dir, observer)
        with journal:
            trials = _trials(runner, journal, candidates, observer)
            _races(runner, journal, trials, request, observer)
    write_csv(run_dir)
    return labels


def _prepare(
    runner: Runner, request: BenchRequest, run_dir: Path, observer: Observer
) -> tuple[Journal, list[Candidate], dict[str, str]]:
    """Start eager, open the journal, and collect the arms: plain torch.compile, then the plans' candidates."""
    from compilot.candidates.spaces import candidates_of
    from compilot.engines.registry import plain_compile
    from compilot.records import DiagnosisLine
    from compilot.tuning.journal import make_header
    from compilot.tuning.options import TuneOptions
    from compilot.workload.dispatch import ship_target

    observer.stage("starting eager, the baseline, and trying the C++ compiler")
    model = runner.open(ship_target(request.target, seed=request.seed, extra_dynamic=request.dynamic))
    seen = runner.inspect()
    header = make_header(model.ref, seen.fingerprint, TuneOptions(budget_s=0.0, argv=tuple(sys.argv)))
    journal = RunDir(run_dir).create_journal(header)
    journal.append(DiagnosisLine(diagnosis=seen.diagnosis, prepare_s=seen.compiler_tried_s or 0.0))
    for note in [*model.notes, *_plan_notes(request.plans, model.ref, seen.fingerprint)]:
        observer.note(note)
    arms = {candidate.id: candidate for candidate in candidates_of(plain_compile(), seen.diagnosis)[:1]}
    labels: dict[str, str] = {}
    for path, plan in request.plans:
        for entry in plan.entries:
            arms.setdefault(entry.candidate.id, entry.candidate)
            labels[entry.candidate.id] = str(path)
    return journal, list(arms.values()), labels


def _plan_notes(plans: Sequence[tuple[Path, Plan]], ref: WorkloadRef, here: Fingerprint) -> list[str]:
    """What a reader should know about a plan before its figures."""
    from compilot.identity.differences import explain_difference

    notes = [f"{path} keeps the model eager; there is nothing more to measure" for path, p in plans if not p.entries]
    for path, plan in plans:
        notes += [f"{path}: {text}" for text in explain_difference(plan.fingerprint, here)]
        if plan.workload.dynamic != ref.dynamic:
            was, now = _spelled(plan.workload.dynamic), _spelled(ref.dynamic)
            notes.append(f"{path}: tuned with dynamic dimensions {was}, measured here with {now}")
        if plan.workload.seed != ref.seed:
            notes.append(f"{path}: tuned with seed {plan.workload.seed}, measured here with seed {ref.seed}")
    return notes


def _spelled(dims: Sequence[DynamicDim]) -> str:
    return ", ".join(f"{d.input}:{d.dim}={d.min}..{d.max}" for d in dims) or "none"


def _trials(runner: Runner, journal: Journal, arms: Sequence[Candidate], observer: Observer) -> list[Trial]:
    """Each arm built cold and checked, in its own process; those that work go on."""
    from compilot.engines.eager.build import EAGER
    from compilot.records import State, TrialLine
    from compilot.tuning.comparing import tell_scatter, try_eager, try_one

    good = []
    for number, candidate in enumerate([EAGER, *arms], 1):
        observer.trying(candidate, number, 0.0)
        trial = try_eager(runner, TRIAL_CAP_S) if candidate.is_eager else try_one(runner, candidate, TRIAL_CAP_S)
        journal.append(TrialLine(trial=trial, at_s=0.0))
        observer.finished(trial, None)
        if candidate.is_eager:
            tell_scatter(trial, None, observer)  # what the runner said of others is no figure of eager's own
            _tell_room(runner.capacity.workers, len(arms) + 2, observer)
        elif trial.state is State.OK:
            good.append(trial)
        runner.keep([])
    return good


def _tell_room(room: int, wanted: int, observer: Observer) -> None:
    """Fewer workers fit than all arms with eager twice."""
    if room < wanted:
        text = f"the model is large for this machine's memory: at most {room} of {wanted} workers live at once"
        observer.note(f"{text}, so arms are raced in smaller groups or without the second eager")


def _races(
    runner: Runner, journal: Journal, trials: Sequence[Trial], request: BenchRequest, observer: Observer
) -> None:
    """Fresh processes, interleaved; an arm that fails in a race has its failure for a result."""
    import msgspec

    from compilot.records import RaceLine, TrialLine, WarmStartLine
    from compilot.tuning.comparing import Compared, survivors

    by_id = {trial.candidate.id: trial for trial in trials}
    how = {"pairs": request.pairs, "processes": request.processes}
    for found in survivors(runner, trials, **how, purpose="bench"):
        if not isinstance(found, Compared):
            failed = msgspec.structs.replace(by_id[found.owner], state=found.state, reason=found.reason)
            journal.append(TrialLine(trial=failed, at_s=0.0))
            observer.finished(failed, None)
            continue
        journal.append(RaceLine(race=found.race, at_s=0.0))
        observer.raced(found.race)
        for candidate_id, measurements in found.warm.items():
            for measurement in measurements:
                journal.append(WarmStartLine(candidate_id=candidate_id, measurement=measurement))


def show(run_dir: Path, labels: dict[str, str], *, as_json: bool) -> None:
    """The result on stdout: one JSON document, or the table and one sentence per arm."""
    from compilot import report

    data = report.read_run(run_dir)
    if as_json:
        document: dict[str, Any] = report.as_json(run_dir)
        document["sentence"] = " ".join(sentences(data, labels))
        document["sentences"] = sentences(data, labels)
        return common.print_json(document)
    from rich.console import Console

    from compilot.report import terminal

    console = Console()
    console.print(terminal.table(data, width=console.width), *terminal.legend(data, console.width), sep="\n")
    console.print()
    for sentence in sentences(data, labels):
        console.print(sentence, highlight=False, markup=False)
    console.print()
    where = RunDir(common.nearby(run_dir))
    return console.print(f"{where}: {where.journal.name}, {where.trials_csv.name}", soft_wrap=True, highlight=False)


def sentences(data: RunData, labels: dict[str, str]) -> list[str]:
    """The honest sentence of each arm that ran, in the order of the table."""
    from compilot.report.sentences import arm_sentence

    found = []
    for trial in data.trials.values():
        if trial.candidate.is_eager:
            continue
        name = trial.candidate.label
        name += f" ({labels[trial.candidate.id]})" if trial.candidate.id in labels else ""
        found.append(f"{name}: {arm_sentence(data, trial)}")
    return found
