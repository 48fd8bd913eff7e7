"""What the next trial of a repair promises: everything but the culprit, over the questions that are left until then.

In: a diagnosis, all trials so far, the best speed-up. Out: the trial that promises most, with its worth. Before
anything has passed an engine is expected to bring what engines of its kind do; then what its parts have brought. So a
repair that goes well is finished before half of it is varied. Not covered: which trial it is (repair.py). Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from compilot.candidates import boundary, promises, worth
from compilot.candidates.parts import covered
from compilot.candidates.promises import OPEN_S, Promise
from compilot.candidates.worth import Worth
from compilot.engines import registry
from compilot.engines.traits import EngineTraits
from compilot.modules.selectors import culprit
from compilot.records import Diagnosis, Trial
from compilot.tuning.bisect import FAILED, PASSED
from compilot.tuning.repair import OPTIONS, Progress, repairs

UNKNOWN = 0.5  # of a gain: nobody knows yet whether there is a part that the engine can have
TELLS = 0.2  # of an eager call: a gain of as much of it says what the rest will bring; that it gained nothing says
# as much as its share of the whole, since a few pairs scatter by more than a quarter of a model gains
CULPRIT_INSIDE = 0.9  # of a gain: what failed holds a culprit, and everything else together most likely passes


def next_step(diagnosis: Diagnosis, trials: Sequence[Trial], best: float) -> Promise | None:
    """The repair trial that promises most; None: there is nothing to repair, or nothing left to try."""
    steps = [p for p in repairs(diagnosis, trials) if p.next is not None]
    promised = [_promise(progress, diagnosis, trials, best) for progress in steps]
    return max(promised, key=lambda one: one.worth.score, default=None)


def _promise(progress: Progress, diagnosis: Diagnosis, trials: Sequence[Trial], best: float) -> Promise:
    """A repaired engine brings about its share of what engines of its kind do; options bring little."""
    assert progress.next is not None
    traits = registry.traits(progress.settings.engine)
    if progress.next.regions:
        full, odds = _expected(progress, traits, diagnosis), _odds(progress, diagnosis)
        seconds = OPEN_S + promises.build_s(progress.next, diagnosis, trials)
    else:
        full = worth.VARIATION if progress.kind == OPTIONS and len(progress.asked) > 1 else worth.SECOND_POINT
        own = [t for t in trials if boundary.family(t.candidate) == progress.settings.engine]
        odds, seconds = UNKNOWN, worth.trial_s(traits, own)
    gain = odds * full * math.exp(-max(0.0, best - full) / worth.BEHIND)
    return Promise(progress.next, Worth(gain, seconds))


def _expected(progress: Progress, traits: EngineTraits, diagnosis: Diagnosis) -> float:
    """What everything but the culprit brings: as engines of its kind do, or as this repair has seen of its parts."""
    shares = [promises.share_of(t.candidate, diagnosis) for t in progress.asked if t.candidate.regions]
    assert progress.next is not None
    share = max([*shares, promises.share_of(progress.next, diagnosis)])
    usual = worth.first_gain(traits) * share
    seen = [(promises.share_of(t.candidate, diagnosis), worth.speed(t)) for t in progress.asked if t.candidate.regions]
    known, speed = max(((own, speed) for own, speed in seen if speed is not None), default=(0.0, 0.0))
    if known <= 0.0:
        return usual
    saved = min(0.9, max(0.0, (1.0 - math.exp(-speed)) / known * share))
    shown = -math.log1p(-saved)
    trust = min(1.0, known / (TELLS if shown >= usual else share))
    return trust * shown + (1.0 - trust) * usual


def _odds(progress: Progress, diagnosis: Diagnosis) -> float:
    """Of a question: that the culprit is found in the end, over the questions that this takes."""
    rows = [(set(covered(t.candidate, diagnosis)), t) for t in progress.asked if t.candidate.regions]
    failed = [inside for inside, trial in rows if trial.state in FAILED]
    if not failed:
        return UNKNOWN
    passed = {path for inside, trial in rows if trial.state in PASSED for path in inside}
    named = any(culprit(trial.reason) for _, trial in rows if trial.state in FAILED)
    suspects = 1 if named else max(1, min(len(inside - passed) for inside in failed))
    return CULPRIT_INSIDE / (1 + math.ceil(math.log2(suspects)))
