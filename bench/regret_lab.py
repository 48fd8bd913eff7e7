"""Where bench/regret.py tries, tunes and races: the processes behind its steps.

In: a model, a candidate, arms. Out: trials, a search's story, samples. Trials are those of `compilot tune`: the same
runner, the same steps, the same known programs and the same early end of hopeless ones. One runner serves many trials
of a model: opening and looking at it is costly. Files lie in WORK/space/MODEL and WORK/tune/MODEL; of the exhaustive
trials only those of the fastest are kept, or the disk would fill. Not covered: what comes next (regret_steps.py).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import msgspec

import plan_arms
import tune_runs
from compilot.artifacts.planfile import load_plan
from compilot.artifacts.rundir import RunDir
from compilot.doctor import checkup
from compilot.engines.eager.build import EAGER
from compilot.errors import CompilotError
from compilot.progress import Observer
from compilot.records import Candidate, IndexFacts, Shipment, State, Trial
from compilot.trials.limits import Limits, default_memory_limit
from compilot.trials.local import LocalRunner
from compilot.trials.runner import Inspection, Job
from compilot.tuning.comparing import try_eager
from compilot.tuning.journal import completed, examined
from compilot.tuning.options import TuneOptions
from compilot.tuning.pipeline import doctor_s
from compilot.verdict.finalists import best_screened, choose_finalists
from compilot.workload.dispatch import ship_target
from plan_arms import Arm
from regret_journal import Looked, Raced, Searched, kept
from regret_steps import RaceSet, ids

LIKE = TuneOptions()  # what is tried is what `compilot tune` would try with its usual options
KEPT = 8  # workspaces: twice as many as are raced

Trials = Mapping[str, Trial]


class Lab:
    """Everything that starts processes. One model's runner lives at a time."""

    def __init__(self, work: Path, budget: str) -> None:
        self.work = work.absolute()
        self.budget = budget
        self._open: tuple[str, LocalRunner] | None = None

    def close(self) -> None:
        """End the runner's processes."""
        if self._open is not None:
            self._open[1].close()
            self._open = None

    def space_folder(self, model: str) -> Path:
        return self.work / "space" / model

    def tune_folder(self, model: str) -> Path:
        return self.work / "tune" / model

    def there(self, model: str, candidate: Candidate) -> bool:
        """Whether a candidate's files are in one of the two folders; eager has none."""
        return candidate.settings.engine == EAGER.settings.engine or self._home(model, candidate) is not None

    def _home(self, model: str, candidate: Candidate) -> Path | None:
        """The search's own files first: they are what it chose."""
        folders = (self.tune_folder(model), self.space_folder(model))
        return next((f for f in folders if any(RunDir(f).workspace(candidate.id).glob("*"))), None)

    # ----------------------------------------------------------------------------------------------------- trials

    def look(self, model: str) -> Looked:
        """Open the model as `compilot tune` does, with the compiler's trial and the doctor, and try eager."""
        self.close()
        begin = time.monotonic()
        directory = RunDir.make(self.space_folder(model))
        try:
            seen, eager = self._begun(model, first=True)
            diagnosis = examined(completed(seen, LIKE), seen.doctor, directory, Observer())
        except CompilotError as problem:
            self.close()
            return Looked(model=model, reason=str(problem), wall_s=round(time.monotonic() - begin, 1))
        wall_s = round(time.monotonic() - begin, 1)
        return Looked(model=model, diagnosis=diagnosis, eager=kept(eager), wall_s=wall_s)

    def attempt(self, model: str, candidate: Candidate, trials: Trials, *, known: bool = True) -> Trial:
        """One trial; known: programs that were seen before are not measured again, only the best keep their files."""
        try:
            if self._open is None or self._open[0] != model:
                self._begun(model)
            assert self._open is not None
            runner = self._open[1]
            codes = {t.code_sha256: t.candidate.id for t in trials.values() if t.code_sha256 and t.state is State.OK}
            best = best_screened(trials.values())
            runner.submit([Job(candidate, LIKE.budget_s, codes, best) if known else Job(candidate, LIKE.budget_s)])
            trial = next(iter(runner.completed()))
        except CompilotError as problem:  # eager's own process failed: no trial can go on with it
            self.close()
            return Trial(candidate=candidate, state=State.CRASHED, reason=f"no trial: {problem}")
        runner.keep([])
        if known:  # else it is built for a race, however fast it was
            self._tidy(model, {**trials, candidate.id: trial})
        return trial

    def _begun(self, model: str, *, first: bool = False) -> tuple[Inspection, Trial]:
        """A runner that has the model, with what it saw and eager's trial."""
        self.close()
        directory = RunDir.make(self.space_folder(model))
        spare = default_memory_limit()
        doctor = partial(checkup.beside, folder=directory.doctor, total_s=doctor_s(LIKE.budget_s))
        runner = LocalRunner(
            directory,
            limits=Limits(memory_bytes=spare, machine_bytes=spare).within(LIKE.budget_s),
            observer=Observer(),
            compiler_first=first,
            doctor=doctor if first else None,
        )
        self._open = (model, runner)
        runner.open(shipment_of(model))
        seen = runner.inspect()
        return seen, try_eager(runner, LIKE.budget_s)

    def _tidy(self, model: str, trials: Trials) -> None:
        """Remove what was built for candidates that will not race."""
        directory = RunDir(self.space_folder(model))
        keep = {EAGER.id, *choose_finalists(trials.values(), limit=KEPT)}
        for candidate_id in set(trials) - keep:
            shutil.rmtree(directory.workspace(candidate_id), ignore_errors=True)

    # ----------------------------------------------------------------------------------------- the search, the races

    def search(self, model: str) -> Searched:
        """The default search for real, in a process of its own."""
        self.close()
        folder = self.tune_folder(model)
        ended = tune_runs.tune(model, folder, self.budget)
        found = Searched(model=model, budget=self.budget, wall_s=ended.wall_s, problem=ended.problem)
        if ended.problem:
            return found
        plan, story = load_plan(folder / "plan.json"), tune_runs.read_story(folder)
        chosen = plan.entries[0].candidate if plan.entries else EAGER
        return msgspec.structs.replace(found, chosen=chosen, story=story)

    def race(self, model: str, step: RaceSet, indices: IndexFacts) -> Raced:
        """One set of fresh processes; raises plan_arms.ArmFailed."""
        self.close()
        arms = [Arm(one, self._home(model, one) or self.space_folder(model)) for one in step.arms]
        one = plan_arms.race_once(shipment_of(model), arms, indices, process=step.process, pairs=step.pairs)
        return Raced(
            model=model,
            race=step.race,
            process=step.process,
            arms=ids(step.arms),
            samples=one.samples,
            load=one.load,
            wall_s=one.wall_s,
        )


def shipment_of(model: str) -> Shipment:
    return ship_target(f"{tune_runs.MODELS}:{model}")
