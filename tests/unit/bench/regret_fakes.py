"""A laboratory that runs nothing, over two engines that a test makes up: candidates are as fast as their labels say."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.unit.candidates.conftest import MadeUp

import regret_space
from compilot.candidates import guided
from compilot.engines import registry
from compilot.engines.eager.build import EAGER
from compilot.engines.space import Acts, Knob, Seed, Space
from compilot.records import Candidate, Diagnosis, IndexFacts, ProcessSamples, Settings, State, Trial
from plan_arms import ArmFailed
from regret_journal import Journal, Looked, Raced, Searched
from regret_steps import RaceSet, Rules, ids
from tune_runs import Story, Tried

DIAGNOSIS = Diagnosis(cores=1, threads=1)
KNOBS = tuple(Knob(name, Acts.OPTION, (False, True), "") for name in ("a", "b", "c", "d"))
QUICK = Space(KNOBS, (Seed("", "first"), Seed("a", "second", {"a": True})))
SLOW = Space((), (Seed("", "only"),))
RULES = Rules(processes=2, rerace_pairs=40, pairs=40)
Speed = Callable[[Candidate], float]


def by_knobs(candidate: Candidate) -> float:
    """Times as fast as eager: a and b help, c harms, d does nothing."""
    if candidate.is_eager:
        return 1.0
    gains = {"a": 1.10, "b": 1.20, "c": 0.8, "d": 1.0}
    speed = 2.0 if candidate.settings.engine == "quick" else 1.5
    for name, value in candidate.settings.options.items():
        speed *= gains[name] if value else 1.0
    return speed


def trial(candidate: Candidate, speed: float, wall_s: float = 10.0, state: State = State.OK) -> Trial:
    """Eight pairs with a little noise, always the same for the same candidate."""
    noise = random.Random(zlib.crc32(candidate.id.encode()))
    pairs = tuple((0.01, 0.01 / speed * noise.uniform(0.995, 1.005)) for _ in range(8))
    screening = pairs if state is State.OK and not candidate.is_eager else ()
    return Trial(candidate=candidate, state=state, reason="", screening=screening, wall_s=wall_s)


class FakeLab:
    """Stands in for regret_lab.Lab."""

    budget = "5m"

    def __init__(self, speed: Speed = by_knobs, chosen: Mapping[str, Any] | None = None) -> None:
        self.speed = speed
        self.options = {"a": True, "b": True} if chosen is None else dict(chosen)  # of what the search chooses
        self.gone: set[str] = set()  # ids whose files are gone
        self.fails: set[str] = set()  # ids that fail in a race
        self.tried: list[str] = []
        self.closed = 0

    def close(self) -> None:
        self.closed += 1

    def there(self, model: str, candidate: Candidate) -> bool:
        return candidate.id not in self.gone

    def look(self, model: str) -> Looked:
        return Looked(model=model, diagnosis=DIAGNOSIS, eager=trial(EAGER, 1.0, 5.0))

    def attempt(self, model: str, candidate: Candidate, trials: Mapping[str, Trial], *, known: bool = True) -> Trial:
        self.tried.append(candidate.label)
        self.gone.discard(candidate.id)
        return trial(candidate, self.speed(candidate))

    def search(self, model: str) -> Searched:
        chosen = quick(**self.options)
        tried = (
            Tried(id=EAGER.id, label="eager", state="ok", wall_s=5.0, at_s=30.0, eager=True),
            Tried(id=chosen.id, label=chosen.label, state="ok", wall_s=10.0, at_s=40.0),
        )
        story = Story(tried=tried, chosen=chosen.id, spent_s=15.0, found_s=40.0)
        return Searched(model=model, budget="5m", wall_s=300.0, chosen=chosen, story=story)

    def race(self, model: str, step: RaceSet, indices: IndexFacts) -> Raced:
        for candidate in step.arms:
            if candidate.id in self.fails:
                raise ArmFailed(candidate.id, "died")
        samples = samples_of([self.speed(candidate) for candidate in step.arms], step.pairs, step.process)
        arms = ids(step.arms)
        return Raced(model=model, race=step.race, process=step.process, arms=arms, samples=samples)


def quick(**options: bool) -> Candidate:
    """A candidate of the made-up engine."""
    settings = Settings(engine="quick", options=options)
    return Candidate(settings=settings, label=f"quick {'+'.join(options)}".strip(), rationale="")


def samples_of(speeds: list[float], pairs: int, process: int) -> ProcessSamples:
    noise = random.Random(process)
    rows = (tuple(0.01 / speed * noise.uniform(0.998, 1.002) for speed in speeds) for _ in range(pairs))
    return ProcessSamples(rounds=tuple(rows))


@pytest.fixture
def two_engines(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two engines, no others, and a process that cannot keep memory."""
    monkeypatch.setattr("compilot.engines.space.can_keep_memory", lambda: False)
    for module in (regret_space, guided):
        monkeypatch.setattr(module, "usable_engines", lambda engines: ["quick", "slow"])
    for name, space in (("quick", QUICK), ("slow", SLOW)):
        half: Any = MadeUp(space)
        registry.register(name, half, half)
    yield
    for name in ("quick", "slow"):
        registry.unregister(name)


def journal_at(folder: Path) -> Journal:
    return Journal(folder / "journal.jsonl", code="abc")
