"""The smallest candidate goes through race and confirmation, although its build took the most memory of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from compilot.tuning.stages import Options, Run, confirm, race_finalists

from compilot.engines.eager.build import EAGER
from compilot.progress import Observer
from compilot.records import Candidate, Decision, Measurement, Objective, ProcessSamples, Race, Settings, State, Trial
from compilot.tuning.budget import Budget
from compilot.verdict.decide import decide

MIB = 2**20


class Arm:
    """A candidate with what it takes: per call, while it is built, and in a fresh process."""

    def __init__(self, name: str, call_s: float, built_mib: int, fresh_mib: int) -> None:
        settings = Settings() if name == "eager" else Settings(engine=name)
        self.candidate = Candidate(settings=settings, label=name, rationale="")
        self.call_s, self.built_mib, self.fresh_mib = call_s, built_mib, fresh_mib

    def measured(self, peak_mib: int) -> Measurement:
        return Measurement(
            cold_s=1.0,
            cold_cache=True,
            call_s=(self.call_s,) * 20,
            peak_rss_bytes=peak_mib * MIB,
            steady_rss_bytes=self.fresh_mib * MIB,
        )

    def trial(self) -> Trial:
        pairs = tuple((eager_s * 0.02, self.call_s * eager_s) for eager_s in (1.0, 1.01, 0.99, 1.0) * 2)
        measurement = self.measured(self.built_mib)
        return Trial(candidate=self.candidate, state=State.OK, reason="", measurement=measurement, screening=pairs)


class FakeRunner:
    """Times and sizes as the arms have them; room for two candidates beside eager and its twin."""

    workers_at_once = 4
    opened_in_s = 1.0
    toolchain = None

    def __init__(self, arms: Sequence[Arm]) -> None:
        self.arms = {arm.candidate.id: arm for arm in arms}
        self.confirmed: list[str] = []

    def race(self, candidates: Sequence[Candidate], *, purpose: str, **_: Any) -> Race:
        return self._race([c.id for c in candidates], purpose, 1)

    def confirm(
        self, candidates: Sequence[Candidate], *, enough: Callable[[Race], bool], **_: Any
    ) -> tuple[Race, dict[str, list[Measurement]]]:
        self.confirmed = [c.label for c in candidates]
        arms = [self.arms[EAGER.id], *(self.arms[c.id] for c in candidates)]
        warm = {arm.candidate.id: [arm.measured(arm.fresh_mib)] for arm in arms}
        return self._race([c.id for c in candidates], "confirm", 3), warm

    def _race(self, ids: list[str], purpose: str, processes: int) -> Race:
        arms = (EAGER.id, EAGER.id, *ids)
        drift = [1.0 + 0.002 * (i % 5) for i in range(40)]
        rounds = tuple(tuple(self.arms[i].call_s * by for i in arms) for by in drift)
        samples = (ProcessSamples(rounds=rounds),) * processes
        return Race(arms=arms, with_aa=True, processes=samples, purpose=purpose)


class FakeJournal:
    def append(self, line: object) -> None:
        """Nobody reads it here."""


def run_of(*arms: Arm) -> tuple[Run, FakeRunner]:
    runner: Any = FakeRunner(arms)
    journal: Any = FakeJournal()
    trials = {arm.candidate.id: arm.trial() for arm in arms}
    options = Options(objective=Objective.MEMORY, budget_s=600.0)
    return Run(runner, journal, Budget(600.0), options, Observer(), trials), runner


def choose(*arms: Arm) -> tuple[Any, FakeRunner]:
    run, runner = run_of(*arms)
    race, warm = confirm(run, race_finalists(run))
    verdict = decide(list(run.trials.values()), race, objective=Objective.MEMORY, warm_starts=warm)
    return verdict, runner


EAGER_ARM = Arm("eager", 0.02, 500, 500)


def test_the_smallest_is_confirmed_and_chosen_however_much_its_build_took():
    fast, next_best = Arm("fast", 0.01, 800, 700), Arm("next", 0.012, 900, 800)
    small = Arm("small", 0.02, 2000, 300)
    verdict, runner = choose(EAGER_ARM, fast, next_best, small)
    assert runner.confirmed[0] == "small"
    assert verdict.decision is Decision.USE
    assert verdict.chosen_id == small.candidate.id
    assert "peak memory 300 MiB against eager's 500 MiB" in verdict.because


def test_a_small_one_that_the_race_shows_slower_makes_room_for_the_next_smallest():
    fast, slow = Arm("fast", 0.01, 800, 400), Arm("slow", 0.03, 900, 100)
    verdict, runner = choose(EAGER_ARM, fast, slow)
    assert runner.confirmed[0] == "fast"
    assert verdict.chosen_id == fast.candidate.id
