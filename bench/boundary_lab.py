"""Where bench/boundary.py looks, builds, tunes, races and lives: the processes behind its steps.

In: a case and a step. Out: the line for the journal. Arms are built by the very trials of `compilot tune`, into
WORK/CASE/arms; a case is opened, looked at and eager timed once for all of its arms, as long as nothing else is done in
between. Tunes are processes of their own with folders WORK/CASE/NAME; races load the files of both in fresh
processes (plan_arms.py). What was repaired is raced as it would be without the repair: the engine of the plan's regions
on the whole model, wrong answers and all, with the same settings. Not covered: what comes next (boundary_cases.py).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import msgspec

import plan_arms
import tune_runs
from boundary_cases import Build, Case, Live, Look, RaceSet, Step, Tune, ids
from boundary_journal import AnyLine, Built, CaseLines, Life, Looked, Lost, Raced, Tuned
from compilot.artifacts.planfile import load_plan
from compilot.artifacts.rundir import RunDir
from compilot.candidates.boundary import main_region
from compilot.engines.eager.build import EAGER
from compilot.errors import CompilotError
from compilot.progress import Observer
from compilot.records import Candidate, Diagnosis, IndexFacts, PlanEntry, State, Trial, Verdict, VerdictLine
from compilot.trials.limits import Limits, default_memory_limit
from compilot.trials.local import LocalRunner
from compilot.tuning.comparing import try_eager, try_one
from compilot.workload.dispatch import ship_target
from plan_arms import Arm, ArmFailed
from regret_journal import kept

ARMS = "arms"
LIFE = Path(__file__).resolve().with_name("boundary_life.py")
TRIAL_S = 1800.0  # of one arm: a whole model of 24 layers is compiled in minutes
LIFE_S = 3600.0


class Opened(NamedTuple):
    """A case whose model is open."""

    case: str
    runner: LocalRunner
    diagnosis: Diagnosis
    timed: bool = False  # eager was


class Lab:
    """Everything that starts processes."""

    def __init__(self, work: Path, budget: str, pairs: int) -> None:
        self.work = work.absolute()
        self.budget = budget
        self.pairs = pairs
        self._open: Opened | None = None
        self._until_closed = ExitStack()

    def take(self, case: Case, step: Step, lines: CaseLines) -> AnyLine:
        """One step; what fails is a line, too."""
        if not isinstance(step, Look | Build):
            self.close()
        match step:
            case Look():
                return self.look(case)
            case Build():
                return Built(case=case.name, arm=step.arm, trial=kept(self.build(case, step.candidate)))
            case Tune():
                return self.tune(case, step, lines)
            case RaceSet():
                return self.race(case, step, lines)
            case Live():
                return live(case, step)

    def folder(self, case: Case, name: str) -> Path:
        return self.work / case.name / name.replace(" ", "-")

    # ------------------------------------------------------------------------------------------------------- the arms

    def look(self, case: Case) -> Looked:
        """Open the model; its arms follow from what is seen."""
        try:
            diagnosis = self._opened(case).diagnosis
            arms = case.arms(diagnosis)
        except CompilotError as problem:
            self.close()
            return Looked(case=case.name, reason=str(problem))
        return Looked(
            case=case.name,
            diagnosis=diagnosis,
            arms={name: arm for name, arm in arms.items() if isinstance(arm, Candidate)},
            absent={name: arm for name, arm in arms.items() if isinstance(arm, str)},
        )

    def build(self, case: Case, candidate: Candidate) -> Trial:
        """One trial; its files stay for the race."""
        try:
            opened = self._opened(case)
            if not opened.timed:
                try_eager(opened.runner, TRIAL_S)
                self._open = opened._replace(timed=True)
            return try_one(opened.runner, candidate, TRIAL_S)
        except CompilotError as problem:
            self.close()
            return Trial(candidate=candidate, state=State.CRASHED, reason=f"no trial: {problem}")

    def _opened(self, case: Case) -> Opened:
        """The case's model in eager's process, looked at; the same as before where it is still open."""
        if self._open is not None and self._open.case == case.name:
            return self._open
        self.close()
        spare = default_memory_limit()
        limits = Limits(memory_bytes=spare, machine_bytes=spare).within(TRIAL_S)
        directory = RunDir.make(self.folder(case, ARMS))
        runner = LocalRunner(directory, limits=limits, observer=Observer(), compiler_first=True)
        self._until_closed.enter_context(runner)
        runner.open(ship_target(case.target))
        self._open = Opened(case.name, runner, runner.inspect().diagnosis)
        return self._open

    def close(self) -> None:
        """End the processes of what is open: nothing else runs beside a tune, a race or a life."""
        self._open = None
        self._until_closed.close()

    # ----------------------------------------------------------------------------------------------------- the search

    def tune(self, case: Case, step: Tune, lines: CaseLines) -> Tuned:
        """The search for real, in a process of its own."""
        folder = self.folder(case, step.arm)
        ended = tune_runs.tune(case.name, folder, self.budget, target=case.target, words=step.words)
        found = Tuned(
            case=case.name,
            arm=step.arm,
            words=step.words,
            budget=self.budget,
            wall_s=ended.wall_s,
            problem=ended.problem,
        )
        if ended.problem:
            return found
        plan, verdict = load_plan(folder / "plan.json"), verdict_in(folder)
        entry = plan.entries[0] if plan.entries else None
        diagnosis = lines.looked.diagnosis if lines.looked is not None else Diagnosis()
        raceable = any(repair.state is not State.INFEASIBLE for repair in verdict.repairs)  # it was built, and is wrong
        return msgspec.structs.replace(
            found,
            chosen=entry.candidate if entry is not None else EAGER,
            check=entry.evidence.check if entry is not None else "",
            caveats=entry.caveats if entry is not None else (),
            repairs=verdict.repairs,
            failed=unrepaired(entry, diagnosis) if raceable and entry is not None else None,
            story=tune_runs.read_story(folder),
        )

    # ------------------------------------------------------------------------------------------------------ the races

    def race(self, case: Case, step: RaceSet, lines: CaseLines) -> Raced | Lost:
        """One set of fresh processes; an arm that fails is out, and the race begins anew without it."""
        arms = [Arm(one, self._home(case, one)) for one in step.arms]
        indices = lines.looked.diagnosis.indices if lines.looked is not None else IndexFacts()
        try:
            one = plan_arms.race_once(ship_target(case.target), arms, indices, process=step.process, pairs=self.pairs)
        except ArmFailed as failed:
            return Lost(case=case.name, candidate_id=failed.candidate_id, reason=failed.reason)
        return Raced(case=case.name, arms=ids(step.arms), process=step.process, samples=one.samples, load=one.load)

    def _home(self, case: Case, candidate: Candidate) -> Path:
        """The run that has a candidate's files; where none has any, they are made on the way."""
        folders = [self.folder(case, name) for name in (*case.tunes, ARMS)]
        return next((f for f in folders if any(RunDir(f).workspace(candidate.id).glob("*"))), folders[-1])


def verdict_in(folder: Path) -> Verdict:
    return next(line.verdict for line in reversed(RunDir(folder).lines()) if isinstance(line, VerdictLine))


def unrepaired(entry: PlanEntry, diagnosis: Diagnosis) -> Candidate:
    """The plan's engine on the whole model, with everything else as in the plan."""
    chosen = entry.candidate
    own = main_region(chosen, diagnosis).settings if chosen.regions else chosen.settings
    return Candidate(settings=own, process=chosen.process, label=f"{own.engine}, unrepaired", rationale="an arm")


# ----------------------------------------------------------------------------------------------------------- the lives


def live(case: Case, step: Live) -> Life:
    """A fresh process with empty caches, timed from outside."""
    known = {"case": case.name, "arm": step.arm, "round": step.round, "calls": step.calls}
    with tempfile.TemporaryDirectory() as empty:
        job = {"target": case.target, "candidate": msgspec.to_builtins(step.candidate), "calls": step.calls}
        command = [sys.executable, str(LIFE), json.dumps(job), str(Path(empty, "work"))]
        env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(Path(empty, "torch"))}
        begin = time.monotonic()
        try:
            run = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=LIFE_S)
        except subprocess.TimeoutExpired:
            return Life(**known, wall_s=LIFE_S, problem="did not end")
        wall_s = time.monotonic() - begin
    if run.returncode != 0:
        return Life(**known, wall_s=wall_s, problem=run.stderr.strip()[-300:] or f"ended with code {run.returncode}")
    return Life(**known, wall_s=wall_s, **json.loads(run.stdout.splitlines()[-1]))


def forget(work: Path, case: Case) -> None:
    """Remove what a finished case left on disk."""
    shutil.rmtree(work.absolute() / case.name, ignore_errors=True)
