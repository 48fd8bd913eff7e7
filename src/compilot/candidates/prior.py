"""The prior: what earlier runs on this machine let a search expect of its trials.

In: finished runs, and the machine, model and features of the run that begins. Out: expected gains in the place of the
usual figures (worth.py), and an `Expectation` for the journal. A run counts by how near its model's features are to
this one's; the same model counts most. Each model counts once, however often it was tuned. What is expected is drawn
towards the usual figure, the more so the less there is to go by. Only runs of the very same machine, torch and engine
versions and number of callers count.
It orders and decides nothing: no gain is ever taken to be zero, so everything is still asked for in the end, and what
is chosen is measured. Covered: no runs at all, no features (then the usual figures hold). Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from compilot.candidates import worth
from compilot.candidates.past import PastRun, Shown, model_key, point, shown, turned
from compilot.engines import registry
from compilot.engines.eager.build import EAGER
from compilot.records import Candidate, Diagnosis, EngineExpectation, Expectation, Features, Fingerprint

SCALES = {  # differences that count as one; the kind of work tells most, the size of the inputs least
    "conv_share": 0.2,
    "matmul_share": 0.2,
    "memory_share": 0.2,
    "overhead_share": 0.2,
    "call_s": 1.0,  # this and those below: factors of ten
    "operators": 0.7,
    "parameter_bytes": 1.0,
    "input_bytes": 1.5,
    "batch": 1.0,
}
SHARPNESS = 2.0  # a model that differs by 1 in everything counts for exp(-2) = 0.14 of one that differs in nothing
FARTHEST = 0.02  # of the weight of an equal model: what is farther is not alike
SAME_MODEL = 3.0  # times the weight of another model with equal features
USUAL = 1.0  # weight of the usual figure, in models: one equal model and it count the same
LEAST = 0.1  # of the usual figure that is always left to expect: nothing is out for what other models were like
MOST = math.log(4.0)  # that one model can speak for: a screening on a busy machine may show ten times as much
FASTER = 0.02  # of log speed-up: what is less is no reason to suggest an engine
NAMED = 3  # nearest models


class Recalled(NamedTuple):
    """Finished runs, newest first."""

    runs: Sequence[PastRun] = ()
    unreadable: int = 0  # others that are known and could not be used


class Prior:
    """Expected gains. Without earlier runs, and before it has begun, they are the usual ones."""

    def __init__(self, recall: Callable[[], Recalled] = Recalled) -> None:
        """recall: called once, when a run begins."""
        self._recall = recall
        self._models: list[_Model] = []

    def begin(self, fingerprint: Fingerprint, diagnosis: Diagnosis, callers: int = 1) -> Expectation | None:
        """This is the model and the machine; returns what is expected, None: nothing."""
        self._models = []
        own = diagnosis.features
        if own is None or diagnosis.unjudgeable:
            return None
        recalled = self._recall()
        here = [run for run in recalled.runs if run.machine == fingerprint.machine and run.callers == callers]
        alike = [(run, weight) for run in here if (weight := nearness(own, run.features)) >= FARTHEST and run.trials]
        near = [_Near(run, weight, shown(run)) for run, weight in alike]
        self._models = _models(near, model_key(fingerprint.model))
        return self._expected(near, recalled)

    # ------------------------------------------------------------------------------------------------ for a search

    def first_gain(self, engine: str, usual: float) -> float:
        """Of the first point of an engine that nobody has tried in this run."""
        return self._drawn(usual, lambda run: promise(run, engine))

    def point_gain(self, candidate: Candidate, usual: float) -> float:
        """Of another point of an engine, over its first."""
        wanted = point(candidate.settings, candidate.process)
        return self._drawn(usual, lambda run: run.points.get(wanted))

    def turn_gain(self, base: Candidate, changed: Candidate, usual: float) -> float:
        """Of a candidate with one knob turned, over the candidate."""
        change = turned(point(base.settings, base.process), point(changed.settings, changed.process))
        return usual if change is None else self._drawn(usual, lambda run: run.turned.get(change))

    def _drawn(self, usual: float, look: Callable[[Shown], float | None]) -> float:
        """The mean of what the models showed and the usual figure, each by its weight."""
        seen = [found for model in self._models if (found := model.mean(look)) is not None]
        weights = sum(one.weight for one in seen)
        mean = (USUAL * usual + sum(one.weight * min(one.value, MOST) for one in seen)) / (USUAL + weights)
        return max(mean, LEAST * usual)

    # ------------------------------------------------------------------------------------------------ for the journal

    def _expected(self, near: Sequence[_Near], recalled: Recalled) -> Expectation | None:
        if not near:
            return None
        engines = dict.fromkeys(engine for one in near for engine in one.shown.first)
        ranked = sorted(engines, key=lambda engine: -self.first_gain(engine, worth.first_gain(registry.traits(engine))))
        expected = tuple(self._of_engine(engine, near) for engine in ranked)
        faster = [one.engine for one in expected if one.speedup is not None and math.log(one.speedup) >= FASTER]
        labels = dict.fromkeys(run.label for model in self._models for run in model.nearest_first())
        return Expectation(
            suggested=faster[0] if faster else EAGER.settings.engine,
            engines=expected,
            runs=len(near),
            nearest=tuple(labels)[:NAMED],
            left_out=len(recalled.runs) - len(near),
            unreadable=recalled.unreadable,
        )

    def _of_engine(self, engine: str, near: Sequence[_Near]) -> EngineExpectation:
        seen = [found for model in self._models if (found := model.mean(lambda run: run.first.get(engine))) is not None]
        weight = sum(one.weight for one in seen)
        speed = sum(one.weight * one.value for one in seen) / weight if seen else None
        tried = sum(engine in one.shown.first for one in near)
        return EngineExpectation(engine=engine, speedup=None if speed is None else math.exp(speed), runs=tried)


def promise(run: Shown, engine: str) -> float | None:
    """What an engine's first point was worth in a run: its gain, less the further the run's best was ahead of it.

    0.0: it did not work; None: nobody tried it.
    """
    if engine not in run.first:
        return None
    gain = max(0.0, run.first[engine] or 0.0)
    return gain * math.exp(-(run.best - gain) / worth.BEHIND)


# ---------------------------------------------------------------------------------------------------------- nearness


def nearness(one: Features, other: Features) -> float:
    """1.0 for equal features, less the more they differ."""
    apart = [(a - b) / SCALES[name] for name, a, b in zip(SCALES, _figures(one), _figures(other), strict=True)]
    return math.exp(-SHARPNESS * sum(d * d for d in apart) / len(apart))


def _figures(features: Features) -> list[float]:
    """In the order of the scales; sizes as powers of ten."""
    shares = [features.conv_share, features.matmul_share, features.memory_share, features.overhead_share]
    sizes = [features.operators, features.parameter_bytes, features.input_bytes, features.batch or 1]
    return [*shares, math.log10(max(features.call_s, 1e-6)), *(math.log10(max(size, 1)) for size in sizes)]


class _Near(NamedTuple):
    """An earlier run that counts."""

    run: PastRun
    weight: float
    shown: Shown


class _Seen(NamedTuple):
    weight: float
    value: float


class _Model:
    """The runs of one model, which count as one."""

    def __init__(self, runs: Sequence[_Near], *, same: bool) -> None:
        self._runs = runs
        self._times = SAME_MODEL if same else 1.0

    @property
    def weight(self) -> float:
        """Of its nearest run."""
        return self._times * max(one.weight for one in self._runs)

    def nearest_first(self) -> list[PastRun]:
        return [one.run for one in sorted(self._runs, key=lambda one: -one.weight)]

    def mean(self, look: Callable[[Shown], float | None]) -> _Seen | None:
        """What its runs showed, each by its weight; None: none of them showed it."""
        found = [(one.weight, value) for one in self._runs if (value := look(one.shown)) is not None]
        if not found:
            return None
        weights = sum(weight for weight, _ in found)
        mean = sum(weight * value for weight, value in found) / weights
        return _Seen(self._times * max(weight for weight, _ in found), mean)


def _models(near: Iterable[_Near], own: str) -> list[_Model]:
    """The runs by model, the one that counts most first."""
    groups: dict[str, list[_Near]] = {}
    for one in near:
        groups.setdefault(one.run.model, []).append(one)
    models = [_Model(runs, same=key == own) for key, runs in groups.items()]
    return sorted(models, key=lambda model: -model.weight)
