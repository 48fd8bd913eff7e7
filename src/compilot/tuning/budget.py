"""Time as a budget: everything that reserves time is here.

In: what trials and calls have cost so far. Out: may another trial start, how long may each part take, how many pairs
can be afforded. The cost of the race and of the confirmation is reserved before a trial starts, so that a run ends with
a proven plan rather than with one more candidate. The clock is passed in.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from compilot.candidates.search import plain_compile
from compilot.engines.eager.build import EAGER
from compilot.engines.of_candidate import is_eager_only, traits_of
from compilot.engines.traits import IMPORT_S
from compilot.measure.curve_steps import CURVE_RUNS, SEEDS, affordable_steps
from compilot.measure.racing import FEWEST_ROUNDS
from compilot.measure.stats import LOOKS, MIN_MARGIN, candidate_columns, hierarchical_bootstrap, log_ratios
from compilot.records import Goal, Objective, Race, State, StepFacts, Trial
from compilot.trials.runner import BESIDE, TAIL_CALLS, TAIL_S, Capacity
from compilot.verdict.finalists import FINALISTS, choose_finalists, screening_ratio

CONFIRM_PROCESSES = 3  # a process keeps its own small bias for life: one is not enough
MOST_CONFIRM_PROCESSES = 5
CONFIRM_PAIRS = 80  # per process; a further process tells more than further pairs
OVERRUN_SHARE = 0.25  # of the budget: what a confirmation under way may run over,
OVERRUN_S = 60.0  # and at the least this much: three sets of fresh processes, which mostly import
RACE_OVERRUN_SHARE = 0.05  # of the budget, for a race: without it a few pairs decide, which cost 27 % of speed once
CURVE_SHARE = 0.135  # of the budget of a training: 50 steps of 100 ms in five minutes
CURVE_S = 8.0
TAIL_SHARE_P99 = 0.15
TAIL_SHARE = 0.015  # of what is left, for the single calls of each confirmed arm
FIRST_BUILD_S = 60.0  # at the least: most builds take 10 to 40 s, and a run that built nothing has told nothing
FIRST_GUESS_TRIAL_S = 15.0
LEAST_TRIAL_S = 2.0  # the warm-up alone takes one
FIRST_GUESS_CALL_S = 0.02
FEWEST_ABLE = 2  # a single one would be chosen by its place in the order, not by its speed
WORTH_CONFIRMING = 1.1  # over eager at the screening; a short confirmation cannot tell less from noise
RIVALS_WORKERS = 5  # eager twice, the chosen one, its rival, the yardstick
YARDSTICKS_WORKERS = 4
MIN_BATCH_S = 0.020
SETTLE_S = 0.010  # threads of the previous arm going idle
WARM_UP_S = 1.3
ANSWER_RESERVE_S = 1.0  # writing the plan


class Budget:
    """How much time is left."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._begin = clock()
        self._excused_s: Callable[[], float] = lambda: 0.0

    def excuse(self, seconds: Callable[[], float]) -> None:
        """Do not count so much of what has passed, as it grows: it was waited for others."""
        self._excused_s = seconds

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._begin

    @property
    def remaining_s(self) -> float:
        return self.seconds + self._excused_s() - self.elapsed_s

    def cut(self, left_s: float) -> None:
        """So much is left at the most."""
        self.seconds -= max(0.0, self.remaining_s - left_s)

    def trial_cap_s(self, reserve_s: float) -> float:
        """The longest one step of a trial may take: what is left before the reserve, but never under 20 s."""
        return max(20.0, self.remaining_s - reserve_s)


class Left(NamedTuple):
    """What a search may use; the rest of the budget is spoken for."""

    remaining_s: float


class Spending:
    """What a run may spend on each of its parts, from what it has learned of its own pace."""

    def __init__(
        self,
        budget: Budget,
        trials: Mapping[str, Trial],
        capacity: Callable[[], Capacity],
        goal: Goal,
        finalists: int = FINALISTS,
        after_share: float = 0.0,
        step: StepFacts | None = None,
    ) -> None:
        """trials: every finished one, eager first, as it grows. after_share: of the budget, for what comes after them
        in place of a race and a confirmation. step: of a training, whose finalists train for many steps.
        """
        self.budget = budget
        self._trials = trials
        self._capacity = capacity
        self._goal = goal
        self._finalists = finalists
        self._after_s = after_share * budget.seconds
        self._step = step

    @property
    def workers(self) -> int:
        """How many may live at once."""
        return self._capacity().workers

    @property
    def processes(self) -> int:
        """Sets of fresh ones that a confirmation takes at the least."""
        return CONFIRM_PROCESSES

    @property
    def costs(self) -> Costs:
        """What the run has learned of its own pace so far."""
        capacity = self._capacity()
        return Costs(self._eager_call_s(), capacity.open_s, 0.0 if capacity.forked else IMPORT_S)

    def _eager_call_s(self) -> float:
        eager = self._trials.get(EAGER.id)
        calls = sorted(eager.measurement.call_s) if eager is not None and eager.measurement else []
        return calls[len(calls) // 2] if calls else FIRST_GUESS_CALL_S

    # ----------------------------------------------------------------------------------------------------- trials

    def for_trials(self) -> Left:
        """What is left for trying, with what comes after it still to be paid; all while stopping gains nothing."""
        if self._after_s:
            return Left(self.budget.remaining_s - self._after_s if len(self._trials) > 1 else math.inf)
        if not self.worth_stopping():
            return Left(self.trial_limit_s() if self._has_built() else math.inf)
        return Left(self.budget.remaining_s - self.reserve_s() + self.slack_s())

    def may_try(self) -> bool:
        """Is there time for the quickest kind of trial? Whether a certain one fits is for the search to say."""
        return self.for_trials().remaining_s > self._quick_trial_s()

    def end_trying(self) -> float:
        """Leave only the time for what comes after the trials; how much that is."""
        self.budget.cut(self.reserve_s())
        return max(0.0, self.budget.remaining_s)

    def trial_limit_s(self) -> float:
        """For one trial; until an engine has built something, all of the budget and at least a minute.

        While there is nothing to confirm, only what it cannot run over is kept back for it: a trial that takes as long
        as those before it would be ended in its middle, and so would all that are like it.
        """
        over_s = 0.0 if self.worth_stopping() else self.overrun_s
        limit_s = self.budget.trial_cap_s(max(0.0, self.reserve_s() - over_s))
        return limit_s if self._has_built() else max(limit_s, self.budget.seconds, FIRST_BUILD_S)

    def _has_built(self) -> bool:
        """Whether some engine answered a first call; eager in another form builds nothing."""
        return any(not is_eager_only(t.candidate) for t in self._trials.values() if t.measurement is not None)

    def worth_stopping(self) -> bool:
        """Stop for the confirmation's sake only when there is a gain that it could show, or no time at all."""
        if self.budget.remaining_s <= 0:
            return len(self._trials) > 1  # however short the budget, one candidate is tried
        best = [self._trials[i] for i in choose_finalists(self._trials.values(), limit=1)]
        return any((screening_ratio(t) or 0.0) >= WORTH_CONFIRMING for t in best)

    def slack_s(self) -> float:
        """Until two candidates have worked, trying may use what a confirmation may run over: one has no rival."""
        able = [t for t in self._trials.values() if t.state is State.OK and not t.candidate.is_eager]
        return OVERRUN_SHARE * self.budget.seconds if len(able) < FEWEST_ABLE else 0.0

    def _quick_trial_s(self) -> float:
        """As quick as the quickest of the last three."""
        tried = [t.wall_s for t in self._trials.values() if not t.candidate.is_eager and t.state is State.OK]
        return max(LEAST_TRIAL_S, min(tried[-3:], default=FIRST_GUESS_TRIAL_S))

    # --------------------------------------------------------------------------------------- what is still to come

    def reserve_s(self) -> float:
        """After the trials: cold starts alone, the race where there is somebody to race, and the confirmation."""
        if self._after_s:
            return self._after_s
        finalists = [self._trials[i] for i in choose_finalists(self._trials.values(), limit=self._finalists)]
        doubted = [t.measurement for t in finalists if t.measurement and BESIDE in t.measurement.doubts]
        alone = sum(measurement.cold_s + self.costs.open_s for measurement in doubted)
        racing = self.race_s() if len(finalists) > 1 else 0.0
        return alone + racing + self.curves_s(finalists) + self.confirm_reserve_s()

    def curve_s(self) -> float:
        """For eager's own losses over many steps, of a training; its finalists take a part of that each."""
        return max(CURVE_S, CURVE_SHARE * self.budget.seconds)

    def curves_s(self, finalists: Sequence[Trial]) -> float:
        """What the loss curves still cost: eager's own runs once, then those of each finalist that has none yet."""
        missing = [trial for trial in finalists if trial.check is None or trial.check.curve is None]
        if self._step is None or not missing:
            return 0.0
        call_s = self._eager_call_s()
        steps = affordable_steps(call_s, self.curve_s())
        lower = [trial for trial in missing if trial.check is not None and trial.check.tolerance is not None]
        seeded = len(missing) if self._step.drops else len(lower)  # several seeds each, the others one run each
        eagers = SEEDS if lower and not self._step.drops else 0  # one more for each seed of these
        if len(missing) == len(finalists):  # eager's are made with those of the first one
            eagers += CURVE_RUNS
        return steps * call_s * (eagers + seeded * SEEDS + len(missing) - seeded)

    def confirm_reserve_s(self) -> float:
        """What the confirmation of the best so far will need, with plain torch.compile beside it where that works."""
        best = [self._trials[i] for i in choose_finalists(self._trials.values(), limit=1)]
        plain_id = plain_compile([t.candidate for t in self._trials.values()])
        able = [t for t in self._trials.values() if t.candidate.id == plain_id and t.state is State.OK]
        return confirmation_s(self.costs, [*best, *(t for t in able if t not in best)])

    def race_s(self) -> float:
        """A first look at the finalists: one more eager worker, then rounds over all of them."""
        return self.costs.open_s + LOOKS[0] * round_s(self.costs.eager_call_s, self._finalists + 2)

    def affords_a_race(self) -> bool:
        """Before the confirmation; a last trial that took longer than expected must not cost the race."""
        allowed_s = self.budget.remaining_s + RACE_OVERRUN_SHARE * self.budget.seconds
        return allowed_s >= self.confirm_reserve_s() + self.race_s()

    def race_share_s(self) -> float:
        """A quarter of what is left, but its first look: the confirmation matters more than the race."""
        return max(self.race_s(), self.budget.remaining_s / 4)

    # ----------------------------------------------------------------------------------------------- confirmation

    def affords_rival(self, rival: Trial) -> bool:
        """To confirm it beside the chosen one."""
        enough = self.confirm_reserve_s() + confirmation_s(self.costs, [rival]) / 2
        return self.budget.remaining_s > enough and self.workers >= RIVALS_WORKERS

    def affords(self, trials: Sequence[Trial]) -> bool:
        """To confirm them in short races."""
        enough = confirmation_s(self.costs, trials, FEWEST_ROUNDS)
        return self.budget.remaining_s > enough and self.workers >= YARDSTICKS_WORKERS

    def confirm_pairs(self, finalists: Sequence[Trial]) -> int:
        """Pairs per process that fit into what is left, over all confirming processes; at least the first look's."""
        left = self.budget.remaining_s / CONFIRM_PROCESSES - confirm_fixed_s(self.costs, finalists)
        rounds = left / round_s(self.costs.eager_call_s, len(finalists) + 2)
        return max((n for n in LOOKS if n <= min(rounds, CONFIRM_PAIRS)), default=LOOKS[0])

    def confirm_share_s(self, race: Race) -> float:
        """Time for the rounds of the next set of processes: an even share of what is left."""
        return max(0.0, self.budget.remaining_s) / max(1, CONFIRM_PROCESSES - len(race.processes))

    def tail_s(self) -> float:
        """Time for the single calls of each confirmed arm; who wants the p99 gets as many as it needs."""
        wanted = self._goal.objective is Objective.P99
        share = TAIL_SHARE_P99 if wanted else TAIL_SHARE
        longest = TAIL_CALLS * 2 * self.costs.eager_call_s if wanted else TAIL_S
        return min(longest, max(0.0, self.budget.remaining_s) * share)

    @property
    def overrun_s(self) -> float:
        """What a confirmation may run over the budget."""
        return max(OVERRUN_S, OVERRUN_SHARE * self.budget.seconds)

    def confirmed_enough(self, race: Race, finalists: Sequence[Trial]) -> bool:
        """At least three processes; up to five while the interval is wider than 1 % and the budget lasts."""
        done = len(race.processes)
        if done and -self.budget.remaining_s > self.overrun_s:
            return True  # not confirmed: a model too slow for this budget keeps eager
        if done < CONFIRM_PROCESSES or done >= MOST_CONFIRM_PROCESSES:
            return done >= MOST_CONFIRM_PROCESSES
        widths = [interval_half_width(race, column) for column in candidate_columns(race)[:1]]
        narrow = all(width is not None and width <= MIN_MARGIN for width in widths)
        pairs = len(race.processes[0].rounds)
        rounds = pairs * round_s(self.costs.eager_call_s, len(race.arms))
        return narrow or self.budget.remaining_s < confirm_fixed_s(self.costs, finalists) + rounds


def interval_half_width(race: Race, column: int) -> float | None:
    """Half-width of an arm's interval against eager; None: it cannot be computed."""
    interval = hierarchical_bootstrap(log_ratios(race, column, 0))
    return None if interval is None else interval.half_width


# ------------------------------------------------------------------------------------------------------ what it costs


class Costs(NamedTuple):
    """What the run has learned of its own pace."""

    eager_call_s: float
    open_s: float  # start of one worker: imports and the model
    compiler_s: float = IMPORT_S  # importing torch's compiler in a worker; nothing where it is forked with it


def confirm_fixed_s(costs: Costs, trials: Sequence[Trial]) -> float:
    """Starting and warming one set of fresh processes: eager twice and these candidates."""
    starts = (len(trials) + 2) * 0.6 * costs.open_s  # they import side by side on two or more cores
    return starts + sum(first_call_again_s(costs, t) for t in trials) + (len(trials) + 2) * WARM_UP_S


def confirmation_s(costs: Costs, trials: Sequence[Trial], pairs: int = 20) -> float:
    """What the confirmation of these candidates needs at the least."""
    rounds = pairs * round_s(costs.eager_call_s, len(trials) + 2)
    return CONFIRM_PROCESSES * (confirm_fixed_s(costs, trials) + rounds) + ANSWER_RESERVE_S


def round_s(call_s: float, arms: int) -> float:
    """One round over these many arms; a batch lasts at least 20 ms and usually a call more."""
    return arms * (max(MIN_BATCH_S * 1.3, call_s) + SETTLE_S)


def first_call_again_s(costs: Costs, trial: Trial) -> float:
    """What the first call will cost in a fresh process that finds the files of the first one."""
    engine = traits_of(trial.candidate)
    imports = costs.compiler_s if engine.through_dynamo else 0.0
    return imports + trial.measurement.cold_s * engine.warm_share if trial.measurement else 0.0
