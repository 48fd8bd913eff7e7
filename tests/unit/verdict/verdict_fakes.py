"""Made-up trials and races for the verdict's tests: no model, no process, no clock."""

from __future__ import annotations

import numpy as np

from compilot.records import (
    Candidate,
    Guard,
    Measurement,
    ProcessSamples,
    Race,
    Settings,
    State,
    Trial,
)

EAGER = Candidate(settings=Settings(), label="eager", rationale="the baseline")


def candidate(name: str) -> Candidate:
    return Candidate(settings=Settings(engine="inductor", mode=name), label=name, rationale="a test")


def trial(who: Candidate, *, state: State = State.OK, cold_s: float = 5.0, **measured: object) -> Trial:
    measurement = Measurement(cold_s=cold_s, cold_cache=True, **measured) if state is State.OK else None  # type: ignore[arg-type]
    return Trial(
        candidate=who,
        state=state,
        reason=str(state),
        measurement=measurement,
        guard=Guard(positional=1, keywords=(), tensors=()),
    )


def eager_trial(cold_s: float = 0.02, **measured: object) -> Trial:
    return trial(EAGER, cold_s=cold_s, **measured)


def noisy_log_times(
    rng: np.random.Generator, arms: int, *, pairs: int, scatter: float, bias: float, drift: float
) -> np.ndarray:
    """One set of processes: heavy-tailed batches, slow drift over all of them, a bias that each arm keeps for life."""
    order = np.argsort(rng.random((pairs, arms)), axis=1)
    walk = np.cumsum(rng.normal(0.0, drift, pairs * arms)).reshape(pairs, arms)
    slow = np.take_along_axis(walk, order, axis=1)
    return slow + rng.normal(0.0, bias, arms) + scatter * np.abs(rng.standard_t(3, (pairs, arms)))


def race(
    speed_ups: dict[str, float] | None = None,
    *,
    pairs: int = 40,
    processes: int = 3,
    scatter: float = 0.002,
    bias: float = 0.0005,
    drift: float = 0.001,
    seed: int = 0,
    eager_s: float = 0.010,
    load: str = "",
    settle_timeouts: int = 0,
) -> Race:
    """A confirming race with an A/A arm; each candidate is so many times faster than eager."""
    ratios = speed_ups or {}
    rng = np.random.default_rng(seed)
    shift = np.log([eager_s, eager_s, *(eager_s / ratio for ratio in ratios.values())])
    sets = []
    for _ in range(processes):
        logs = noisy_log_times(rng, len(shift), pairs=pairs, scatter=scatter, bias=bias, drift=drift)
        rows = tuple(map(tuple, np.exp(logs + shift).tolist()))
        sets.append(ProcessSamples(rounds=rows, settle_timeouts=settle_timeouts))
    arms = (EAGER.id, EAGER.id, *ratios)
    return Race(arms=arms, with_aa=True, processes=tuple(sets), purpose="confirm", load=load)
