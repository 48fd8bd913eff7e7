"""Sets of processes that were never run: what `check_sides` judges in unit tests."""

from __future__ import annotations

import random
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
    """Two sides whose head is so many times slower; every race has the same truth and its own noise."""

    def __init__(
        self,
        slower: float = 1.0,
        *,
        noise: float = 0.03,
        process_noise: float = 0.003,
        slower_in: tuple[int, ...] = (0, 1, 2),
        arms: tuple[str, ...] = ("eager",),
        head: dict[str, Any] | None = None,
        head_compiled: dict[str, Any] | None = None,
        failures: dict[str, Failure] | None = None,
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
        self._slower, self._slower_in, self._noise, self._process_noise = slower, slower_in, noise, process_noise
        self._arms, self._head, self._head_compiled = arms, head or {}, head_compiled or {}
        self._failures, self._taken, self._repeats = failures or {}, taken or StateTaken(), repeats
        self._answers, self._pairs, self._builds_s, self._load = answers or {}, pairs, builds_s, load
        self._random, self._sides = random.Random(seed), sides

    def one_set(self, race: int, number: int, timing: Timing, *, reuse: bool) -> OneSet:
        """One more set."""
        self.asked.append((race, number, timing.for_s, reuse))
        slower = self._slower if race in self._slower_in else 1.0
        working = [arm for arm in self._arms if not any(f"{s} {arm}" in self._failures for s in self._sides)]
        return OneSet(
            samples={arm: self._samples(slower) for arm in working},
            with_aa=working if len(self._sides) == 2 else (),
            facts={f"{side} {arm}": self._facts(side, arm) for arm in working for side in self._sides},
            failures=self._failures,
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

        def one(own: float, times: float) -> float:
            return 0.01 * own * times * self._random.lognormvariate(0.0, self._noise)

        rows = []
        for _ in range(self._pairs):
            base = one(bias[0], 1.0)
            rows.append((base, one(bias[1], 1.0), base, one(bias[2], slower)))
        return ProcessSamples(rounds=tuple(rows))

    def _facts(self, side: str, arm: str) -> ArmFacts:
        import msgspec

        own: dict[str, Any] = {} if arm == "eager" else dict(COMPILED, compiler_runs=2)
        if side == "head":
            own |= self._head | (self._head_compiled if arm != "eager" else {})
        wobble = self._random.lognormvariate(0.0, 0.01)
        facts = msgspec.structs.replace(FACTS, **own)
        return msgspec.structs.replace(facts, first_s=facts.first_s * wobble, cpu_s=facts.cpu_s * wobble)
