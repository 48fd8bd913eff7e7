"""One candidate tried for real, in a worker process as in a run, and the plan of a run that it won."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from compilot.artifacts.rundir import RunDir
from compilot.engines.eager.build import EAGER
from compilot.progress import Observer
from compilot.records import (
    JOURNAL_SCHEMA,
    Candidate,
    Decision,
    Diagnosis,
    Plan,
    ProcessSamples,
    Race,
    RunHeader,
    Settings,
    State,
    Trial,
    Verdict,
)
from compilot.trials.limits import Limits
from compilot.trials.local import LocalRunner
from compilot.tuning import comparing
from compilot.verdict import make_plan
from compilot.workload.dispatch import ship_target

CREATED = "2026-01-01T00:00:00+00:00"


class Tried(NamedTuple):
    """What a run would know."""

    diagnosis: Diagnosis
    header: RunHeader
    eager: Trial
    trial: Trial
    run_dir: Path

    def plan(self) -> Plan:
        """The plan if it had been twice as fast as eager: only the figures are made up."""
        assert self.trial.state is State.OK, self.trial.reason
        own = self.trial.candidate.id
        samples = ProcessSamples(rounds=((2e-3, 1e-3),) * 40)
        race = Race(arms=(EAGER.id, own), with_aa=False, processes=(samples,) * 3, purpose="confirm")
        verdict = Verdict(decision=Decision.USE, chosen_id=own, because="made by hand")
        how = {"plain_compile_id": None, "created": CREATED, "version": self.header.compilot}
        return make_plan(verdict, [self.eager, self.trial], race, self.header, {}, **how, artifacts_dir=f"work/{own}")


def try_one(target: str, engine: str, run_dir: Path) -> Tried:
    """Eager's trial and the engine's, in processes of their own."""
    candidate = Candidate(settings=Settings(engine=engine), label=engine, rationale="test")
    with LocalRunner(RunDir(run_dir), limits=Limits(warm_s=1.0), observer=Observer()) as runner:
        opened, inspected = runner.open(ship_target(target)), runner.inspect()
        eager, trial = comparing.try_eager(runner, 60.0), comparing.try_one(runner, candidate, 240.0)
    known = {"workload": opened.ref, "fingerprint": inspected.fingerprint}
    header = RunHeader(schema=JOURNAL_SCHEMA, compilot="0", created=CREATED, budget_s=1.0, **known)
    return Tried(inspected.diagnosis, header, eager, trial, run_dir)
