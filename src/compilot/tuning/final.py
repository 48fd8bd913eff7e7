"""The final: the best candidates race each other, and the winner is measured again in fresh processes.

In: a runner, the journal with its trials, what may be spent. Out: whom to confirm; the confirmation that the plan
quotes. Covered: candidates that fail in a race, cold starts that were measured beside other builds, races that an
interrupted part of the run has in its journal. Not covered: who is good enough (verdict/finalists.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from compilot.candidates.search import plain_compile
from compilot.measure.stats import LOOKS, MIN_MARGIN
from compilot.progress import Observer
from compilot.records import Goal, Kind, Measurement, Objective, Race, State, Trial
from compilot.trials.runner import BESIDE, ArmLost, RaceRules, Runner, SetRules
from compilot.tuning.budget import Spending
from compilot.tuning.comparing import first_has_the_tail, in_fresh_processes
from compilot.tuning.journal import RunJournal
from compilot.verdict.finalists import best_in_race, best_unraced, pick_finalists, rival_of, yardstick_for

RACE_PAIRS = 40  # the race only sorts finalists; the confirmation is what the plan quotes


class Confirmed(NamedTuple):
    """What the plan quotes; no race: there was nobody to confirm."""

    race: Race | None
    warm: dict[str, Measurement]


class Final(NamedTuple):
    """Who takes part, and with what."""

    runner: Runner
    journal: RunJournal
    spending: Spending
    goal: Goal
    finalists: int
    observer: Observer

    # -------------------------------------------------------------------------------------------------- the race

    def race(self) -> list[Trial]:
        """Race the best candidates against each other on live workers; returns those worth confirming."""
        while True:
            try:
                return self._one_race()
            except ArmLost as lost:
                self.journal.strike_out(lost)

    def _one_race(self) -> list[Trial]:
        """One race among the finalists that are left."""
        finalists = self._ready(lambda: self._picked()[: max(1, self.spending.workers - 1)])
        ids = [trial.candidate.id for trial in finalists]
        if earlier := self.journal.race_of(ids):
            return self._worth_confirming(earlier)
        if len(finalists) < 2 or not self.spending.affords_a_race():
            return self._with_yardstick(best_unraced(finalists, self.goal))
        looks = tuple(n for n in LOOKS if n <= RACE_PAIRS)
        speed_alone = self.goal.objective is Objective.LATENCY and self.goal.horizon_calls is None
        share_s = self.spending.race_share_s()
        rules = RaceRules(looks, half_width=MIN_MARGIN, until_sorted=speed_alone, for_s=share_s)
        race = self.runner.race(finalists, rules)
        self.journal.raced(race)
        return self._worth_confirming(race)

    def _picked(self) -> list[Trial]:
        return pick_finalists(self.journal.trials, self.goal, self.finalists)

    def _worth_confirming(self, race: Race) -> list[Trial]:
        """The chosen one, a rival that it was not told from, and the yardstick; as far as the budget allows."""
        trials = self.journal.trials
        chosen = best_in_race(trials, race, self.goal)
        rival = rival_of(chosen, race)
        found = [trials[chosen]]
        if rival is not None and self.spending.affords_rival(trials[rival]):
            found.append(trials[rival])
        return self._with_yardstick(found)

    def _with_yardstick(self, chosen: list[Trial]) -> list[Trial]:
        """The chosen ones, and plain torch.compile beside them where that works and the budget allows."""
        trials = self.journal.trials
        plain = yardstick_for(chosen, trials, plain_compile([t.candidate for t in trials.values()]))
        return [*chosen, plain] if plain is not None and self.spending.affords([*chosen, plain]) else chosen

    def _ready(self, pick: Callable[[], list[Trial]]) -> list[Trial]:
        """Those picked, each with what a finalist needs; when one is refused on the way, others are picked."""
        while True:
            found = [self._over_many_steps(self._started_alone(trial)) for trial in pick()]
            if all(trial.state is State.OK for trial in found):
                return found

    def _over_many_steps(self, trial: Trial) -> Trial:
        """A finalist of a training has shown that its loss goes where eager's goes."""
        seen = trial.check is not None and trial.check.curve is not None
        if self.journal.header.workload.kind is not Kind.TRAINING or seen:
            return trial
        self.observer.stage(f"training with {trial.candidate.label} for many steps, beside eager and float64")
        proven = self.runner.over_many_steps(trial, self.spending.curve_s())
        self.journal.append(proven)
        return proven

    def _started_alone(self, trial: Trial) -> Trial:
        """A cold start that was measured beside other builds is measured again."""
        if trial.measurement is None or BESIDE not in trial.measurement.doubts:
            return trial
        self.observer.stage(f"building {trial.candidate.label} once more, alone, for its cold start")
        alone = self.runner.built_alone(trial, self.spending.trial_limit_s())
        self.journal.append(alone)
        return alone

    # ------------------------------------------------------------------------------------------ the confirmation

    def confirm(self, finalists: Sequence[Trial]) -> Confirmed:
        """Fresh processes, fresh data, the same files: what the plan quotes comes from here."""
        while finalists:
            try:
                return self._one_confirmation(finalists)
            except ArmLost as lost:
                self.journal.strike_out(lost)
                finalists = self._with_yardstick(self._ready(lambda: best_unraced(self._picked(), self.goal)))
        return Confirmed(None, {})

    def _one_confirmation(self, finalists: Sequence[Trial]) -> Confirmed:
        """The finalists in fresh processes, set after set."""
        if earlier := self.journal.confirmation_of([t.candidate.id for t in finalists]):
            return Confirmed(*earlier)
        self.observer.stage(f"confirming {finalists[0].candidate.label} in {self.spending.processes} fresh processes")
        spending, pairs, tail_s = self.spending, self.spending.confirm_pairs(finalists), self.spending.tail_s()

        def rules(race: Race) -> SetRules:
            share_s = spending.confirm_share_s(race)
            return first_has_the_tail(SetRules(pairs, len(race.processes), share_s, tail_s))

        compared = in_fresh_processes(
            self.runner,
            finalists,
            enough=lambda race: spending.confirmed_enough(race, finalists),
            rules=rules,
        )
        self.journal.confirmed(compared)
        return Confirmed(compared.race, compared.warm_starts)
