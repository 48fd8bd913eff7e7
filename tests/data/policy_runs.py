"""One policy for many sizes, built, replayed and written as a plan by real processes, for integration tests."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from compilot.api.tracing import Requests
from compilot.artifacts.rundir import RunDir
from compilot.progress import Observer
from compilot.records import (
    Candidate,
    EngineSizes,
    Evidence,
    PaddingProof,
    Plan,
    Settings,
    ShapeCosts,
    Shapes,
    Shipment,
    Traffic,
    Trial,
)
from compilot.trials.limits import Limits
from compilot.trials.local import LocalRunner
from compilot.trials.runner import FreshReplay, ReplayRules
from compilot.tuning.budget import Budget
from compilot.tuning.comparing import try_eager, try_one
from compilot.tuning.journal import RunJournal, make_header
from compilot.tuning.options import TuneOptions
from compilot.tuning.replays import Made
from compilot.tuning.size_arms import Base, Policy, made
from compilot.tuning.size_costs import SizePrograms
from compilot.tuning.size_notes import usable_padding
from compilot.verdict.policies import ShapeRules, choose


class PolicyRun(NamedTuple):
    """What a run with real processes gave."""

    folder: Path
    traffic: Traffic
    proof: PaddingProof
    dynamic: Trial
    policy: Made
    replay: FreshReplay
    plan: Plan


def all_sizes(engine: str) -> Candidate:
    """An engine's program for all sizes."""
    return Candidate(settings=Settings(engine=engine, shapes=Shapes.DYNAMIC), label=engine, rationale="a test")


def run_policy(
    folder: Path,
    shipment: Shipment,
    requests: Requests,
    engine: str,
    costs: ShapeCosts,
    *,
    largest: int,
    replayed: int,
    batch_sizes: tuple[int, ...] = (),
) -> PolicyRun:
    """The policy that these costs choose, as `tune` makes it. costs: made up, so that it is the one to look at."""
    observer, run_dir = Observer(), RunDir.make(folder)
    options = TuneOptions(budget_s=600.0, trace=requests.trace, batch_sizes=batch_sizes)
    with (
        RunJournal(run_dir, options, Budget(600.0), observer) as journal,
        LocalRunner(run_dir, limits=Limits(warm_s=1.0), observer=observer) as runner,
    ):
        model, seen = runner.open(shipment), runner.inspect()
        journal.begin(model, seen)
        traffic, proof = runner.read_traffic(requests.trace.sizes), runner.prove_padding()
        try_eager(runner, 60.0)
        dynamic = try_one(runner, all_sizes(engine), 120.0)
        choice = choose(traffic.demand, costs, ShapeRules(max_entries=3, largest=(largest,)))
        sizes = EngineSizes(engine=engine, label=engine, costs=costs, choice=choice)
        policy = Policy(sizes, choice.chosen, Base(all_sizes(engine), dynamic))
        programs = SizePrograms(runner, journal, traffic, observer)
        one = made(policy, 0, programs, traffic, usable_padding(proof, traffic), 120.0)
        assert isinstance(one, Made), one
        replay = runner.replay([one.arm], ReplayRules(replayed))
        header = make_header(model.ref, seen.fingerprint, options)
    plan = Plan(
        schema=4,
        compilot="0",
        created=header.created,
        workload=header.workload,
        fingerprint=header.fingerprint,
        because="a test",
        entries=tuple(msgspec.structs.replace(entry, evidence=Evidence()) for entry in one.arm.entries),
    )
    run_dir.save_plan(plan)
    run_dir.keep_shipment(shipment)
    return PolicyRun(run_dir.path, traffic, proof, dynamic, one, replay, plan)
