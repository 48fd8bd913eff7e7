"""`compilot.reproduce`: a run's claim, measured again. In: a run. Out: `Reproduced`.

The plan's candidate is timed beside eager in fresh processes, in a run directory of its own: with copies of the run's
files where they are as they were measured and fit this machine, else built again. The model comes from where the run
had it: its target, or its own copy of the live objects. Not covered: what the figures mean (ledger/repeating.py).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from compilot.api.given import default_run_dir, watched
from compilot.api.runs import AnyRun, named
from compilot.artifacts.rundir import RunDir
from compilot.errors import ArtifactError, InputError
from compilot.progress import Observer

if TYPE_CHECKING:
    from compilot.ledger.repeating import Reproduced
    from compilot.records import Plan, PlanEntry, RunHeader, Shipment

USUAL_BUDGET = "2m"


def reproduce(
    run: AnyRun,
    *,
    budget: str | float = USUAL_BUDGET,
    out: str | os.PathLike[str] | None = None,
    argv: Sequence[str] = (),
    observer: Observer | None = None,
    progress: bool = True,
) -> Reproduced:
    """Measure a run's claim again: holds, does not hold, or inconclusive; what `compilot reproduce` does.

    run is named as in `show`. budget is the time for everything, in seconds or as text such as "2m"; what has to be
    built again may take longer. out is the directory of the new measurement. A model that changed since is not timed:
    the claim does not hold, and `changes` says what changed.
    """
    from compilot.ledger.entries import layers_in
    from compilot.ledger.history import readable

    _, run_dir = readable(named(run))
    plan = run_dir.open_plan()
    what = Again(plan, shipment_of(run_dir), run_dir.path, layers_in(run_dir.lines()))
    return measured_again(what, budget=budget, out=out, argv=argv, observer=observer, progress=progress)


class Again(NamedTuple):
    """A plan to measure again."""

    plan: Plan
    shipment: Shipment
    folder: Path | None  # of the plan; None: its files are not at hand
    layers: Mapping[str, str] = {}  # of the model as its run saw it; none: not known


def measured_again(
    what: Again,
    *,
    budget: str | float,
    out: str | os.PathLike[str] | None = None,
    argv: Sequence[str] = (),
    observer: Observer | None = None,
    progress: bool = True,
) -> Reproduced:
    """The plan's first entry beside eager, in a new run directory."""
    from compilot.api.asking import seconds

    budget_s = seconds(budget, "the budget")
    if not what.plan.entries:
        why = "this plan keeps eager, so it claims nothing that could be measured again"
        raise InputError(f"{why}; run 'compilot tune' to search again.")
    if _is_for_sizes(what):
        why = "this plan was chosen by a replay of many sizes, which calls of one size do not measure again"
        again = "with its trace; batch sizes are given as a trace, too, one call per line"
        raise InputError(f"{why}; run 'compilot bench TARGET --plan PLAN --trace FILE' {again}.")
    name = f"reproduce-{what.plan.workload.label}"
    run_dir = RunDir.make(default_run_dir(name) if out is None else Path(out))
    run_dir.refuse_second_run("choose another folder")
    from compilot.showing.noted import noted

    with watched(observer, budget_s, progress) as shown, noted(shown, run_dir.path, budget_s) as watcher:
        return _measured(what, run_dir, budget_s, tuple(argv), watcher)


def _is_for_sizes(what: Again) -> bool:
    from compilot.ledger.entries import last_verdict

    if what.folder is None or not RunDir(what.folder).journal.exists():
        return len(what.plan.entries) > 1 or any(entry.is_for_sizes for entry in what.plan.entries)
    verdict = last_verdict(RunDir(what.folder).lines())
    return verdict is not None and verdict.sizes is not None


def _measured(what: Again, run_dir: RunDir, budget_s: float, argv: tuple[str, ...], watcher: Observer) -> Reproduced:
    from compilot.engines.of_candidate import traits_of
    from compilot.report import write_csv
    from compilot.trials import local
    from compilot.trials.limits import Limits, default_memory_limit
    from compilot.tuning.budget import Budget
    from compilot.tuning.pipeline import remembered
    from compilot.tuning.reproducing import Claimed
    from compilot.tuning.reproducing import reproduce as measure

    entry = what.plan.entries[0]
    claim = Claimed(what.plan, entry, what.shipment, _why_rebuilt(what, entry, run_dir), argv, what.layers)
    limits = Limits(memory_bytes=default_memory_limit(), machine_bytes=default_memory_limit())
    runner = local.LocalRunner(
        run_dir,
        limits=limits,
        observer=watcher,
        tolerance=entry.evidence.tolerance,
        compiler_first=bool(claim.rebuild) and traits_of(entry.candidate).compiler_at_build,
        callers=entry.evidence.callers,
    )
    with remembered(run_dir, what.plan.workload.label, watcher), runner:
        found = measure(claim, runner, run_dir, Budget(budget_s), watcher)
    write_csv(run_dir.path)
    return found


def shipment_of(run_dir: RunDir) -> Shipment:
    """How the run had its model; without that note its target, as the header names it."""
    from compilot.workload.dispatch import ship_target

    if run_dir.shipment.exists():
        return run_dir.open_shipment()
    header: RunHeader = run_dir.last_header()
    if header.workload.target is None:
        raise InputError(f"{run_dir} was tuned from Python objects that are no longer there; tune again in Python.")
    return ship_target(header.workload.target, seed=header.workload.seed, extra_dynamic=header.workload.dynamic)


# -------------------------------------------------------------------------------------------------------- the files


def _why_rebuilt(what: Again, entry: PlanEntry, run_dir: RunDir) -> str:
    """Why the plan's files cannot be timed; "": copies of them lie in the new run directory, as they were measured."""
    from compilot.artifacts.planfolder import Claim, checked, missing_file, needs_of, refuse_foreign
    from compilot.engines.of_candidate import is_eager_only

    if not entry.artifacts and is_eager_only(entry.candidate):
        return ""
    source = None if what.folder is None or not entry.artifacts_dir else what.folder / entry.artifacts_dir
    if not entry.artifacts or source is None or not source.is_dir():
        return "its files are not there"
    if why := _unfit(what.plan, entry):
        return why
    refuse_foreign(source, (source,))  # before it becomes this user's own
    target = run_dir.workspace(entry.candidate.id)
    shutil.copytree(source, target, symlinks=True)
    claim = Claim(target, entry.artifacts, needs_of(entry.candidate))
    try:
        missing = missing_file(claim)
        checked(claim)
    except ArtifactError as problem:
        missing, why = None, str(problem).partition(";")[0].replace(str(target), str(source))
    if missing is not None or why:
        shutil.rmtree(target)
    return why or (f"{source / missing.relative_to(target)} is missing" if missing is not None else "")


def _unfit(plan: Plan, entry: PlanEntry) -> str:
    """What is installed here that the files were not made for."""
    from compilot.engines.of_candidate import engines_of, needs_compiler
    from compilot.identity.differences import Severity, differences
    from compilot.identity.machine import installed_machine
    from compilot.records import Fingerprint

    engines, compiles = engines_of(entry.candidate), needs_compiler(entry.candidate)
    machine = installed_machine(plan.fingerprint.machine, compiler=compiles, engines=engines)
    here = Fingerprint(machine=machine, model=plan.fingerprint.model)
    found = differences(plan.fingerprint, here, engines, compiles=compiles)
    return next((one.sentence.rstrip(".") for one in found if one.severity is Severity.UNSAFE), "")
