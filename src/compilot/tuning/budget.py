"""Time as a budget.

In: what trials and calls have cost so far. Out: may another trial start, how many pairs can be afforded. The cost of
the race and of the confirmation is reserved before a trial starts, so that a run ends with a proven plan rather than
with one more candidate. Pure: the clock is passed in.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from compilot.engines import registry
from compilot.errors import InputError
from compilot.records import Trial

CONFIRM_PROCESSES = 3  # a process keeps its own small bias for life: one is not enough
MIN_BATCH_S = 0.020
SETTLE_S = 0.010  # threads of the previous arm going idle
WARM_UP_S = 1.3
IMPORT_S = 2.0  # of torch's compiler, beside what eager's worker imports
ANSWER_RESERVE_S = 1.0  # writing the plan


def parse_duration(text: str) -> float:
    """Seconds from "90", "90s", "5m" or "1h30m"."""
    match = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?", text.strip())
    if not match or not any(match.groups()):
        raise InputError(f"'{text}' is no duration; write 90s, 5m or 1h30m.")
    hours, minutes, seconds = (float(part) if part else 0.0 for part in match.groups())
    total = hours * 3600 + minutes * 60 + seconds
    if total <= 0:
        raise InputError("the budget must be more than zero; write 90s, 5m or 1h30m.")
    return total


class Costs(NamedTuple):
    """What the run has learned of its own pace."""

    eager_call_s: float
    open_s: float  # start of one worker: imports and the model


class Budget:
    """How much time is left, and what the rest of the run will need of it."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._begin = clock()

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._begin

    @property
    def remaining_s(self) -> float:
        return self.seconds - self.elapsed_s

    def may_try(self, expected_s: float, reserve_s: float) -> bool:
        """May a trial that takes about this long start, with the confirmation still to come?"""
        return self.remaining_s > expected_s + reserve_s

    def trial_cap_s(self, reserve_s: float) -> float:
        """The longest one step of a trial may take: what is left before the reserve, but never under 20 s."""
        return max(20.0, self.remaining_s - reserve_s)

    def affordable_looks(
        self, looks: Sequence[int], costs: Costs, trials: Sequence[Trial], most: int
    ) -> tuple[int, ...]:
        """The looks whose rounds fit into what is left, over all confirming processes; at least the first."""
        left = self.remaining_s / CONFIRM_PROCESSES - confirm_fixed_s(costs, trials)
        rounds = left / round_s(costs.eager_call_s, len(trials) + 2)
        return tuple(n for n in looks if n <= min(rounds, most)) or tuple(looks[:1])


def confirm_fixed_s(costs: Costs, trials: Sequence[Trial]) -> float:
    """Starting and warming one set of fresh processes: eager twice and these candidates."""
    starts = (len(trials) + 2) * 0.6 * costs.open_s  # they import side by side on two or more cores
    return starts + sum(first_call_again_s(t) for t in trials) + (len(trials) + 2) * WARM_UP_S


def confirmation_s(costs: Costs, trials: Sequence[Trial], pairs: int = 20) -> float:
    """What the confirmation of these candidates needs at the least."""
    rounds = pairs * round_s(costs.eager_call_s, len(trials) + 2)
    return CONFIRM_PROCESSES * (confirm_fixed_s(costs, trials) + rounds) + ANSWER_RESERVE_S


def round_s(call_s: float, arms: int) -> float:
    """One round over these many arms; a batch lasts at least 20 ms and usually a call more."""
    return arms * (max(MIN_BATCH_S * 1.3, call_s) + SETTLE_S)


def first_call_again_s(trial: Trial) -> float:
    """What the first call will cost in a fresh process that finds the files of the first one."""
    engine = registry.traits(trial.candidate.settings.engine)
    imports = IMPORT_S if engine.through_dynamo else 0.0
    return imports + trial.measurement.cold_s * engine.warm_share if trial.measurement else 0.0
