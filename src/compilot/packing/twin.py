"""The ahead-of-time twin of a torch.compile plan: the same compiler, started without one.

In: a run whose winner is a torch.compile plan. Out: the AOTInductor candidate with the same settings, tried, checked
and measured again beside the winner, if it is not shown slower; otherwise the reason. A torch.compile plan pays the
compiler at every start, its twin milliseconds. Not covered: dynamo backends other than Inductor: they have no twin.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from compilot.artifacts.rundir import RunDir
from compilot.engines import compiler_knobs, registry
from compilot.engines.of_candidate import engines_of, settings_of, traits_of
from compilot.engines.space import options_of
from compilot.packing.runs import FinishedRun
from compilot.progress import Observer
from compilot.records import (
    Candidate,
    Comparison,
    Decision,
    Measurement,
    Outcome,
    PlanEntry,
    Race,
    RaceLine,
    Settings,
    State,
    Trial,
    TrialLine,
    Verdict,
)
from compilot.trials.limits import Limits, default_memory_limit
from compilot.trials.local import LocalRunner
from compilot.trials.runner import ArmLost, Runner
from compilot.tuning.comparing import side_by_side, try_eager, try_one
from compilot.verdict.breakeven import break_even_in
from compilot.verdict.compare import compare
from compilot.verdict.plan import make_plan
from compilot.verdict.words import interval

PURPOSE = "twin"  # of its race: what the run itself confirmed stays what is reported of the winner
PAIRS = 40
PROCESSES = 3
TRIAL_CAP_S = 900.0
_SHARED = tuple(options_of(compiler_knobs.SHARED))  # options that mean the same to both


class Twin(NamedTuple):
    """What came of looking for a twin."""

    entry: PlanEntry | None
    because: str


def find_twin(run: FinishedRun, entry: PlanEntry, observer: Observer) -> Twin:
    """The twin of a plan entry, measured beside it."""
    candidate = twin_of(entry.candidate)
    if candidate is None:
        return Twin(None, f"{engines_of(entry.candidate)[0]} has no ahead-of-time form")
    for settings in settings_of(candidate):
        if problem := registry.build_half(settings.engine).validate(settings):
            return Twin(None, f"it has no ahead-of-time form: {problem}")
    limits = Limits(memory_bytes=default_memory_limit())
    callers = run.run_dir.header().concurrency  # as the plan's own figures
    runner = LocalRunner(run.run_dir, limits=limits, observer=observer, compiler_first=True, callers=callers)
    try:
        with runner:
            return _measure(run, entry, candidate, runner, observer)
    except ArmLost as lost:
        return Twin(None, f"the measurement was lost: {lost.reason}")


def twin_of(winner: Candidate) -> Candidate | None:
    """The AOTInductor candidate with a torch.compile candidate's settings; None: a part of it has no such form."""
    if winner.regions:
        return _twin_of_regions(winner)
    twin = _ahead(winner.settings)
    if twin is None:
        return None
    named = [name if value is True else f"{name} = {value}" for name, value in sorted(twin.options.items())]
    words = " + ".join([*named, *(["channels_last"] if twin.memory_format == "channels_last" else [])])
    return Candidate(
        settings=twin,
        label=f"{twin.engine} {words}".strip(),
        rationale=f"the same code as {winner.label}, compiled ahead of time: starts in milliseconds",
        process=winner.process,
    )


def _twin_of_regions(winner: Candidate) -> Candidate | None:
    """Regions that need no compiler stay as they are."""
    regions = []
    for region in winner.regions:
        needs = registry.needs_compiler(region.settings.engine)
        settings = _ahead(region.settings) if needs else region.settings
        if settings is None:
            return None
        regions.append(msgspec.structs.replace(region, settings=settings))
    return msgspec.structs.replace(
        winner,
        regions=tuple(regions),
        label=f"{winner.label}, ahead of time",
        rationale=f"the same code as {winner.label}, compiled ahead of time: starts without a compiler",
    )


def _ahead(settings: Settings) -> Settings | None:
    ahead = registry.traits(settings.engine).ahead_of_time
    if not ahead:
        return None
    options = {name: settings.options[name] for name in _SHARED if name in settings.options}
    if settings.mode in ("max-autotune", "max-autotune-no-cudagraphs"):
        options["max_autotune"] = True
    return msgspec.structs.replace(settings, engine=ahead, mode=None, options=options)


def _measure(run: FinishedRun, entry: PlanEntry, candidate: Candidate, runner: Runner, observer: Observer) -> Twin:
    observer.stage(f"looking for a form that starts without a compiler: {candidate.label}")
    runner.open(run.shipment)
    runner.inspect()
    eager = try_eager(runner, TRIAL_CAP_S)
    known = _known(run, candidate)
    trial = known or try_one(runner, candidate, TRIAL_CAP_S)
    observer.finished(trial, None)
    if trial.state is not State.OK:
        return Twin(None, f"{candidate.label}: {trial.state}, {trial.reason}")
    winner = Trial(candidate=entry.candidate, state=State.OK, reason="", artifacts=entry.artifacts, guard=entry.guard)
    compared = side_by_side(runner, [winner, trial], pairs=PAIRS, processes=PROCESSES, purpose=PURPOSE)
    race = compared.race
    with run.run_dir.open_journal() as journal:
        if known is None:
            journal.append(TrialLine(trial=trial, at_s=0.0))
        journal.append(RaceLine(race=race, at_s=0.0))
    versus = compare(race, candidate.id, entry.candidate.id)
    told = f"{candidate.label} against {entry.candidate.label}: {versus.ratio:.2f}x ({interval(versus)})"
    if versus.outcome in (Outcome.SLOWER, Outcome.UNDECIDED):
        return Twin(None, f"{told}, so the measured plan is packed as it is")
    entry = _entry(run, trial, eager, race, versus, compared.warm_starts[candidate.id])
    return Twin(entry, f"packed as its twin, not shown slower: {told}")


def _known(run: FinishedRun, candidate: Candidate) -> Trial | None:
    """The run may have tried it already; its files are there then, as they were measured."""
    found = run.run_dir.trials().get(candidate.id)
    if found is None or found.state is not State.OK:
        return None
    cache = traits_of(candidate).cache_folder
    return None if run.run_dir.why_changed(found, cache=cache) else found


def _entry(
    run: FinishedRun, trial: Trial, eager: Trial, race: Race, versus: Comparison, warm: Measurement
) -> PlanEntry:
    verdict = Verdict(
        decision=Decision.USE,
        chosen_id=trial.candidate.id,
        because="",
        comparisons=(versus,),
        break_even=break_even_in(
            race,
            compare(race, trial.candidate.id, race.arms[0]),
            cold_s=trial.measurement.cold_s if trial.measurement else None,
            warm_s=warm.cold_s,
            eager_first_s=eager.measurement.cold_s if eager.measurement else None,
        ),
    )
    plan = make_plan(
        verdict,
        [eager, trial],
        race,
        run.run_dir.header(),
        warm_starts={trial.candidate.id: warm},
        plain_compile_id=None,
        created=run.plan.created,
        version=run.plan.compilot,
        artifacts_dir=RunDir.artifacts_dir(trial.candidate.id),
    )
    return plan.entries[0]
