"""Sets of processes that were never run: what `check_sides` judges in unit tests."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from compilot.gate.races import Failure, OneSet, Timing
from compilot.records import ProcessSamples
from compilot.trials.protocol import ArmFacts, StateTaken

FACTS = ArmFacts(
    first_s=3.0,
    cold_s=1.0,
    cpu_s=4.0,
    torch="2.13.0",
    python="3.11",
    samples_per_call=8,
    peak_rss_bytes=300_000_000,
    steady_rss_bytes=250_000_000,
    parameters_sha256="p",
    weights_sha256="w",
)
COMPILED = {"graph_breaks": 0, "recompiles": 0, "left_to_eager": 0, "kernels": 10, "artifact_bytes": 100_000}


class FakeRaces:
    """Two sides whose head is so many times slower; every race has the same truth and its own noise.

    noise: of each batch. process_noise: a bias that a process keeps. drift: what comes and goes over many batches.
    deaths: by race and number of the set, what fails in it alone.
    """

    def __init__(
        self,
        slower: float = 1.0,
        *,
        noise: float = 0.03,
        process_noise: float = 0.003,
        drift: float = 0.0,
        slower_in: tuple[int, ...] = (0, 1, 2),
        arms: tuple[str, ...] = ("eager",),
        head: dict[str, Any] | None = None,
        head_compiled: dict[str, Any] | None = None,
        failures: dict[str, Failure] | None = None,
        deaths: Mapping[tuple[int, int], dict[str, Failure]] | None = None,
        taken: StateTaken | None = None,
        repeats: bool = True,
        answers: dict[str, Path] | None = None,
        pairs: int = 60,
        builds_s: float = 1.0,
        seed: int = 0,
        load: str = "",
        sides: tuple[str, ...] = ("base", "head"),
    ) -> None:
        self.asked: list[tuple[int, int, float, bool]] = []
        self.asked_arms: list[tuple[str, ...]] = []
        self.asked_widths: list[float] = []
        self._drift, self._deaths = drift, deaths or {}
        self._slower, self._slower_in, self._noise, self._process_noise = slower, slower_in, noise, process_noise
        self._arms, self._head, self._head_compiled = arms, head or {}, head_compiled or {}
        self._failures, self._taken, self._repeats = failures or {}, taken or StateTaken(), repeats
        self._answers, self._pairs, self._builds_s, self._load = answers or {}, pairs, builds_s, load
        self._random, self._sides = random.Random(seed), sides

    def one_set(
        self, race: int, number: int, timing: Timing, *, reuse: bool, arms: Collection[str] | None = None
    ) -> OneSet:
        """One more set."""
        self.asked.append((race, number, timing.for_s, reuse))
        self.asked_widths.append(timing.half_width)
        slower = self._slower if race in self._slower_in else 1.0
        failures = self._failures | self._deaths.get((race, number), {})
        asked = [arm for arm in self._arms if arms is None or arm in arms]
        self.asked_arms.append(tuple(asked))
        working = [arm for arm in asked if not any(f"{s} {arm}" in failures for s in self._sides)]
        return OneSet(
            samples={arm: self._samples(slower) for arm in working},
            with_aa=working if len(self._sides) == 2 else (),
            facts={
                f"{side} {arm}": self._facts(side, arm, reuse=reuse)
                for arm in asked
                for side in self._sides
                if f"{side} {arm}" not in failures
            },
            failures=failures,
            taken=self._taken,
            answers=self._answers if race == number == 0 else {},
            repeats=self._repeats,
            builds_s=self._builds_s,
            timed_s=timing.for_s,
            label="Net",
            load=self._load,
        )

    def close(self) -> None:
        """There is nothing to end."""

    def _samples(self, slower: float) -> ProcessSamples:
        bias = [self._random.lognormvariate(0.0, self._process_noise) for _ in range(3)]
        drifts = [0.0, 0.0, 0.0]

        def one(column: int, times: float) -> float:
            if self._drift:
                drifts[column] = 0.9 * drifts[column] + self._random.gauss(0.0, self._drift)
            return 0.01 * bias[column] * times * self._random.lognormvariate(drifts[column], self._noise)

        rows = []
        for _ in range(self._pairs):
            base = one(0, 1.0)
            rows.append((base, one(1, 1.0), base, one(2, slower)))
        return ProcessSamples(rounds=tuple(rows))

    def _facts(self, side: str, arm: str, *, reuse: bool) -> ArmFacts:
        import msgspec

        own: dict[str, Any] = {} if arm == "eager" else dict(COMPILED, compiler_runs=2, cold_cache=not reuse)
        if side == "head":
            own |= self._head | (self._head_compiled if arm != "eager" else {})
        wobble = self._random.lognormvariate(0.0, 0.01)
        facts = msgspec.structs.replace(FACTS, **own)
        return msgspec.structs.replace(facts, first_s=facts.first_s * wobble, cpu_s=facts.cpu_s * wobble)
