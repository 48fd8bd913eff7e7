"""What a trial is expected to bring, and what it costs. In: what this run has seen. Out: gain and seconds, both rough.

Gains are logarithms of the speed-up over the best so far. They only order the search: what is chosen is measured. The
figures of `_GAIN` and `_SECONDS` are guesses that put engines into the order which the project's runs on twelve models
suggest (bench/LOG.md); what the run itself has seen takes their place as soon as there is something. Pure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from compilot.engines.traits import BuildCost, EngineTraits
from compilot.records import Candidate, State, Trial
from compilot.verdict.finalists import screening_ratio

_GAIN = {  # of an engine's first point
    BuildCost.RECORDING: 0.40,
    BuildCost.SECONDS: 0.40,
    BuildCost.NONE: 0.10,
    BuildCost.COMPILER: 0.35,
    BuildCost.EXPORT_AND_COMPILER: 0.35,
    BuildCost.MINUTES: 0.40,
    BuildCost.UNKNOWN: 0.20,
    BuildCost.BACKEND: 0.05,
}
_SECONDS = {
    BuildCost.RECORDING: 4.0,
    BuildCost.SECONDS: 8.0,
    BuildCost.NONE: 4.0,
    BuildCost.COMPILER: 25.0,
    BuildCost.EXPORT_AND_COMPILER: 35.0,
    BuildCost.MINUTES: 120.0,
    BuildCost.UNKNOWN: 20.0,
    BuildCost.BACKEND: 30.0,
}
SECOND_POINT = 0.10  # of an engine that has been tried
LATER_POINT = 0.05
VARIATION = 0.03
HELPED = 0.01  # of log speed-up: less is noise at a screening's few pairs
AGAIN = 0.7  # of a gain is left when it comes on top of others
DID_NOT_HELP = 0.1  # of what an untried change promises
BEHIND = 0.3  # of log speed-up behind the best: an engine's further points bring a third as much
EXPORT_STOPS = 0.2  # something in the model stops an export: few engines that need one graph get past it
CANNOT_EXPORT = 0.02  # one did not
FAILED = 0.3  # per failure of an engine that has not worked yet
ALLOWED_PRECISION = 0.25  # the user asked for it, so there is something to gain


class Worth(NamedTuple):
    """What a trial may bring for its time."""

    gain: float
    seconds: float

    @property
    def score(self) -> float:
        """Gain per second: what is asked for next has the most of it."""
        return self.gain / max(self.seconds, 0.1)


def speed(trial: Trial) -> float | None:
    """Log speed-up over eager at the screening; None: it has none, or is wrong."""
    ratio = screening_ratio(trial) if trial.state is State.OK else None
    return math.log(ratio) if ratio else None


def gain_over(trial: Trial, base: Trial) -> float:
    """What a change brought; nothing where it gave the same program, or did not work."""
    own, before = speed(trial), 0.0 if base.candidate.is_eager else speed(base)
    return own - before if own is not None and before is not None else 0.0


def again(seen: float | None) -> float:
    """What a change promises that brought this much elsewhere; None: nobody has tried it."""
    if seen is None:
        return VARIATION
    return AGAIN * seen if seen >= HELPED else VARIATION * DID_NOT_HELP


def first_gain(traits: EngineTraits) -> float:
    """Of an engine that nobody has tried yet."""
    return _GAIN[traits.build_cost]


def trial_s(traits: EngineTraits, own: Sequence[Trial]) -> float:
    """Of one more trial of an engine: what its last ones took without what need not be made again; a guess before."""
    took = [trial.wall_s - made_once_s(trial) for trial in own if trial.wall_s > 0.0 and trial.files_of is None]
    return statistics.median(took[-3:]) if took else _SECONDS[traits.build_cost]


def start_s(candidate: Candidate, traits: EngineTraits, told: Iterable[Trial]) -> float | None:
    """Of a trial whose program is there: all but the build, and a start from its files; None: it has to be built."""
    for trial in told:
        same = trial.candidate.program_id == candidate.program_id
        if same and trial.state is State.OK and trial.artifacts and trial.files_of is None:
            return trial.wall_s - trial.steps_s.get("building", 0.0) * (1.0 - traits.warm_share)
    return None


def made_once_s(trial: Trial) -> float:
    """What it made for all that follow it."""
    return trial.measurement.for_others_s if trial.measurement is not None else 0.0


def cold_s(traits: EngineTraits, own: Iterable[Trial]) -> float:
    """What a cold start of an engine costs: the least seen, a guess before."""
    seen = [trial.measurement.cold_s for trial in own if trial.measurement is not None]
    return min(seen, default=_SECONDS[traits.build_cost] / 2)


def still_able(traits: EngineTraits, own: Sequence[Trial], export_stops: bool) -> float:
    """How much of a gain is left to believe in after what the engine's trials were like."""
    if any(trial.state in (State.OK, State.PRUNED) for trial in own):
        return 1.0
    if traits.whole_graph and any(trial.state is State.INFEASIBLE for trial in own):
        return CANNOT_EXPORT
    start = EXPORT_STOPS if export_stops and traits.whole_graph else 1.0
    return start * FAILED ** len(own)


def behind(own: Iterable[Trial], best: float) -> float:
    """How much less an engine's further points bring, the further its best is behind the best of all."""
    speeds = [found for trial in own if (found := speed(trial)) is not None]
    return math.exp(-(best - max(speeds)) / BEHIND) if speeds else 1.0


def pays_back(cold_seconds: float, call_s: float | None, best: float, gain: float, horizon_calls: int | None) -> bool:
    """Whether a start may be earned back within the calls that the user has in mind."""
    if horizon_calls is None or call_s is None:
        return True
    saving = call_s * (1.0 - math.exp(-(max(best, 0.0) + max(gain, VARIATION))))
    return cold_seconds <= horizon_calls * saving
