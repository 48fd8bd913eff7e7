"""Arms for `compilot.bench --trace`: eager, torch.compile as users have it, and whole plans over the same requests.

In: a shipment with a trace, plans with their folders. Out: a journal with trials of torch.compile and one replay. A
plan is loaded from its own files, as a program would, with all its entries: static ones, padded ones, dynamic ones. An
arm that cannot be loaded, whose answers are not eager's, or that fails is a row with its reason.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compilot.api.arms import BenchRequest, NamedPlan
    from compilot.artifacts.journal import Journal
    from compilot.progress import Observer
    from compilot.records import Candidate, Diagnosis, Trace, Trial
    from compilot.trials.runner import Runner
    from compilot.tuning.replays import Made


def replay_arms(
    runner: Runner, journal: Journal, request: BenchRequest, diagnosis: Diagnosis, trace: Trace, observer: Observer
) -> None:
    """Try torch.compile, load the plans, replay all of them; the journal has it."""
    from compilot.records import PaddingProof, ReplayLine, TrafficLine
    from compilot.tuning.replays import ReplayPlan, replayed
    from compilot.tuning.size_notes import empty_calls_note

    traffic = runner.read_traffic(trace.sizes, recorded=trace.header is not None)
    journal.append(TrafficLine(traffic=traffic, proof=PaddingProof(), notes=tuple(empty_calls_note(traffic))))
    plain = [_tried(runner, journal, one, observer) for one in _plain(diagnosis)]
    arms = [one for one in plain if one is not None]
    arms += [_planned(plan, number) for number, plan in enumerate(request.plans, 1) if plan.plan.entries]
    requests, calls = len(request.shipment.replay), sum(one.count for one in traffic.demand)
    how = ReplayPlan(request.processes, lambda _: requests, calls=calls, distinct=len(traffic.demand))
    replay = replayed(runner, arms, how, observer)
    if replay is not None:
        journal.append(ReplayLine(replay=replay))
        observer.raced(replay.race)


def _plain(diagnosis: Diagnosis) -> list[Candidate]:
    from compilot.tuning.serving import plain_candidates

    return plain_candidates(diagnosis, ())


def _tried(runner: Runner, journal: Journal, candidate: Candidate, observer: Observer) -> Made | None:
    """torch.compile as an ordinary trial: what is wrong is not timed."""
    from compilot.api.arms import TRIAL_CAP_S
    from compilot.records import State, TrialLine
    from compilot.tuning.comparing import try_one
    from compilot.tuning.size_arms import single

    observer.trying(candidate, 2, 0.0)
    trial: Trial = try_one(runner, candidate, TRIAL_CAP_S)
    journal.append(TrialLine(trial=trial, at_s=0.0))
    observer.finished(trial, None)
    return single(trial, candidate.id, candidate.label) if trial.state is State.OK else None


def _planned(named: NamedPlan, number: int) -> Made:
    """A plan as it is, with its own files."""
    from compilot.engines.of_candidate import engines_of
    from compilot.records import PolicyArm
    from compilot.trials.runner import Arm
    from compilot.tuning.replays import Made

    entries = named.plan.entries
    record = PolicyArm(
        id=f"plan-{number}",
        label=named.name,
        engine=" + ".join(dict.fromkeys(name for entry in entries for name in engines_of(entry.candidate))),
        policy=None,
        programs=tuple(entry.name or entry.candidate.label for entry in entries),
        candidates=tuple(entry.candidate.id for entry in entries),
        start_s=entries[0].evidence.cold_s or 0.0,
        size_bytes=sum(file.size_bytes for entry in entries for file in entry.artifacts),
    )
    return Made(Arm(record.id, entries, _folder(named)), record)


def _folder(named: NamedPlan) -> Path:
    """Where the plan's files are; what is not there fails when it is loaded, with the engine's own words."""
    from compilot.artifacts.homes import home_of

    path = Path(named.name)
    found = named.plan.path.parent if named.plan.path is not None else home_of(named.plan)
    if found is None:
        found = path if path.is_dir() else path.parent
    return found.absolute()
