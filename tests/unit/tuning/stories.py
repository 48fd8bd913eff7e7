"""The whole story of `tune` on a runner that runs nothing, with a search of the tests' own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from compilot.artifacts.rundir import RunDir
from compilot.candidates.search import TimeLeft
from compilot.progress import Observer
from compilot.records import Candidate, Diagnosis, Goal, Plan, Settings, Shipment, Trial, Verdict
from compilot.testing.runner import FakeRunner, Fates
from compilot.tuning.budget import Budget
from compilot.tuning.journal import RunJournal
from compilot.tuning.options import TuneOptions
from compilot.tuning.pipeline import tune

MIB = 2**20
WORKLOAD = Shipment(sys_path=(), cwd="", target="nowhere.py:nothing")


def candidate(name: str, **options: Any) -> Candidate:
    return Candidate(settings=Settings(engine=name, options=options), label=name, rationale="a test")


class ListSearch:
    """Asks for what it was given, in order."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self.left = list(candidates)
        self.told: list[Trial] = []
        self.diagnosis: Diagnosis | None = None

    def begin(self, diagnosis: Diagnosis) -> None:
        self.diagnosis = diagnosis

    def ask(self, slots: int, budget: TimeLeft) -> list[Candidate]:
        batch, self.left = self.left[:slots], self.left[slots:]
        return batch

    def tell(self, trial: Trial) -> None:
        self.told.append(trial)
        self.left = [c for c in self.left if c.id != trial.candidate.id]


class Story(NamedTuple):
    plan: Plan
    verdict: Verdict
    runner: FakeRunner
    search: Any
    run_dir: RunDir


def told(
    folder: Path,
    fates: Fates,
    *,
    search: Any = None,
    goal: Goal | None = None,
    budget_s: float = 600.0,
    resume: bool = False,
    observer: Observer | None = None,
    options: TuneOptions | None = None,
    finish_early: bool = False,
    **how: Any,
) -> Story:
    """One run; options: instead of goal and budget; how: as FakeRunner takes it."""
    options = options or TuneOptions(budget_s=budget_s, goal=goal or Goal())
    limits = {"max_compile_s": options.max_compile_s, "max_error": options.max_error}
    runner = FakeRunner(fates, eager_call_s=how.pop("eager_call_s", 0.02), **limits, **how)
    if search is None:
        assert not callable(fates)
        search = ListSearch([candidate(name) for name in fates if name != "eager"])
    budget = Budget(options.budget_s, clock=runner.clock)
    observer = observer or Observer()
    run_dir = RunDir.make(folder / "run")
    with RunJournal(run_dir, options, budget, observer, resume=resume) as journal, runner:
        plan = tune(
            WORKLOAD,
            search=search,
            runner=runner,
            journal=journal,
            budget=budget,
            goal=options.goal,
            observer=observer,
            finish_early=finish_early,
        )
        assert journal.verdict is not None
    return Story(plan, journal.verdict, runner, search, run_dir)
