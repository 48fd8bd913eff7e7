"""Races of a check: sets of fresh processes of both sides, timed in turns. In: sides, candidates. Out: `OneSet`s.

Base and head of one arm open, build and are timed side by side, so that both see the same machine; a second process of
the base shows how much equal programs differ. All arms run with the first arm's weights and inputs, where they fit.
`Races` is the seam: tests judge what a fake gives. Covered: arms that fail or die, machines with little memory, builds
too long to be repeated; a set ends early, at a fixed look, when its intervals are narrow. Weights, answers and compile
caches lie in a temporary folder, so that no check finds what an earlier one left; only logs stay. Not covered: how many
sets and how long (checking.py), what the samples mean (judging.py).
"""

from __future__ import annotations

import contextlib
import math
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import psutil

from compilot.engines.eager.build import EAGER
from compilot.gate.arms import ArmFailed, LiveArm, Role
from compilot.gate.forking import arm_nursery, can_fork
from compilot.gate.sides import BASE, Side
from compilot.measure.racing import race
from compilot.measure.stats import LOOK_RESAMPLES, LOOKS, hierarchical_bootstrap, log_ratios
from compilot.records import Candidate, ProcessSamples, Race
from compilot.trials.limits import Limits, affordable_workers
from compilot.trials.load import LoadWatch
from compilot.trials.processes import Start
from compilot.trials.protocol import ArmFacts, StateTaken

FEWEST_ROOM = 2  # arms at once: base and head of one candidate

Tell = Callable[[str], None]
Rounds = Sequence[tuple[float, ...]]


class Failure(NamedTuple):
    """Why an arm has no figures."""

    reason: str
    crashed: bool = False
    by_machine: bool = False  # killed, out of memory or of time: the machine may have done it, and not the code


class Timing(NamedTuple):
    """How long the arms of a set are timed."""

    for_s: float
    most: int  # rounds
    half_width: float  # relative: narrower intervals end the set at the next look


class OneSet(NamedTuple):
    """What one set of fresh processes gave, by the label of the candidate and by the name of the arm."""

    samples: Mapping[str, ProcessSamples]  # columns: base, base again (or base), base of this arm, head of this arm
    with_aa: Collection[str]  # labels whose first two columns are two processes of the base; of others they are one
    facts: Mapping[str, ArmFacts]
    failures: Mapping[str, Failure]
    taken: StateTaken = StateTaken()  # what the head did not have in common with the base
    answers: Mapping[str, Path] = {}  # of the first set: files, by arm
    repeats: bool = True  # the base gave the same answer twice
    load: str = ""
    label: str = ""  # the model's class
    builds_s: float = 0.0  # for all builds of the set
    timed_s: float = 0.0  # for all rounds of the set


class Races(Protocol):
    """Who gives sets of processes."""

    def one_set(
        self, race: int, number: int, timing: Timing, *, reuse: bool, arms: Collection[str] | None = None
    ) -> OneSet:
        """Fresh processes; reuse: what the race's first set built is loaded instead of built again.

        arms: labels of those that are run; None: all.
        """


class LocalRaces:
    """Sets of processes on this machine; their files are there until it is closed."""

    def __init__(
        self,
        sides: Sequence[Side],
        candidates: Sequence[Candidate],
        folder: Path,
        *,
        limits: Limits,
        callers: int = 1,
        tell: Tell = lambda text: None,
        weights: bool = False,
    ) -> None:
        """sides: base and head, or one alone. weights: have the digest of the weights' values in the facts."""
        self._sides, self._candidates, self._folder = sides, list(candidates), folder
        place = folder if " " not in str(folder) else None  # torch splits its C++ compiler's command at spaces
        self._temporary = tempfile.TemporaryDirectory(prefix="work-", dir=place, ignore_cleanup_errors=True)
        self.work = Path(self._temporary.name)
        self._limits, self._callers, self._tell, self._weights = limits, callers, tell, weights
        self._room = self._most_room = 99  # arms that may live at once, until the first has shown its size
        self._nursery = arm_nursery(folder / "logs" / "forks.log") if can_fork(sides) else None
        self._is_open = False

    def start(self, role: Role) -> Start | None:
        """Who starts the process of an arm; None: nobody but the arm itself."""
        if self._nursery is None:
            return None
        return self._nursery.choose(compiles=role.candidate.settings.engine != EAGER.settings.engine)

    def open(self) -> None:
        """Have torch imported once for all arms; safe to call again."""
        if self._nursery is not None and not self._is_open:
            self._is_open = True
            self._nursery.open()
            self._nursery.learn(())

    def close(self) -> None:
        """End what arms are forked from, and remove everything but the logs."""
        if self._nursery is not None:
            self._nursery.close()
        self._temporary.cleanup()

    @property
    def state(self) -> Path:
        """File with the first arm's weights, inputs and cases."""
        return self.work / "state.pt"

    def one_set(
        self, race: int, number: int, timing: Timing, *, reuse: bool, arms: Collection[str] | None = None
    ) -> OneSet:
        """Open, build, warm up and time every arm once; an arm that fails is left out, and said."""
        self.open()
        found = _Set(self, race, number, reuse)
        asked = [one for one in self._candidates if arms is None or one.label in arms]
        together = len(asked) * len(self._sides) + 1 <= self._room
        groups = [asked] if together else [[one] for one in asked]
        for group in groups:
            with found.alive():
                found.open(group)
                found.warm(group)
                found.time(group, timing._replace(for_s=timing.for_s / len(groups)))
                found.answer()
        return found.result()


class _Set:
    """One set while it is under way."""

    def __init__(self, lab: LocalRaces, race: int, number: int, reuse: bool) -> None:
        self._lab, self._race, self._number, self._reuse = lab, race, number, reuse
        self._arms: dict[str, LiveArm] = {}
        self._samples: dict[str, ProcessSamples] = {}
        self._facts: dict[str, ArmFacts] = {}
        self._failures: dict[str, Failure] = {}
        self._answers: dict[str, Path] = {}
        self._taken = StateTaken()
        self._with_aa: set[str] = set()
        self._repeats, self._label, self._load, self._builds_s, self._timed_s = True, "", "", 0.0, 0.0

    def result(self) -> OneSet:
        """What there is."""
        return OneSet(
            samples=self._samples,
            with_aa=self._with_aa,
            facts=self._facts,
            failures=self._failures,
            taken=self._taken,
            answers=self._answers,
            repeats=self._repeats,
            load=self._load,
            label=self._label,
            builds_s=self._builds_s,
            timed_s=self._timed_s,
        )

    @contextlib.contextmanager
    def alive(self) -> Iterator[None]:
        """Arms of this block end with it, whatever happens."""
        try:
            yield
        except BaseException:
            for arm in self._arms.values():
                arm.kill()
            raise
        finally:
            for arm in self._arms.values():
                arm.close()
            self._arms.clear()

    # ------------------------------------------------------------------------------------------------------ opening

    def open(self, candidates: Sequence[Candidate]) -> None:
        """Open and build base and head of each candidate side by side."""
        for position, candidate in enumerate(candidates):
            roles = self._roles(candidate)
            if position == len(candidates) - 1 and self._wants_aa():
                roles.append(Role(self._lab._sides[0], candidates[0], again=True))
            self._open_pair(roles)

    def _roles(self, candidate: Candidate) -> list[Role]:
        return [Role(side, candidate) for side in self._lab._sides]

    def _wants_aa(self) -> bool:
        return len(self._lab._sides) == 2 and self._lab._room >= 3

    def _open_pair(self, roles: Sequence[Role]) -> None:
        self._lab._tell(f"race {self._race + 1}, set {self._number + 1}: opening {' and '.join(r.name for r in roles)}")
        arms = [arm for role in roles if (arm := self._start(role)) is not None]
        self._each(arms, LiveArm.begin_opening)
        self._each(arms, self._opened)
        begin = time.monotonic()
        self._each(arms, LiveArm.begin_building)
        self._each(arms, LiveArm.built)
        self._builds_s += time.monotonic() - begin

    def _start(self, role: Role) -> LiveArm | None:
        if self._is_hopeless(role):
            return None
        number = "shared" if self._reuse or self._number == 0 else str(self._number)
        name = role.name.replace(" ", "-")
        workspace = self._lab.work / f"race{self._race}" / number / name
        log = self._lab._folder / "logs" / f"{name}-{self._race}-{self._number}.log"
        log.unlink(missing_ok=True)  # of an earlier check in the same folder: its last words would be quoted
        arm = LiveArm(role, workspace, log, self._lab._limits, self._lab.start(role))
        self._arms[role.name] = arm
        return arm

    def _is_hopeless(self, role: Role) -> bool:
        """A side whose first arm did not open has no others."""
        first = Role(role.side, self._lab._candidates[0]).name
        return first in self._failures

    def _each(self, arms: Sequence[LiveArm], step: Callable[[LiveArm], object]) -> None:
        """The step of every arm that still works."""
        for arm in arms:
            if arm.name not in self._failures:
                try:
                    step(arm)
                except ArmFailed as failed:
                    self._fail(failed)

    def _fail(self, failed: ArmFailed) -> None:
        self._failures[failed.name] = Failure(failed.reason, failed.crashed, failed.by_machine)
        if failed.by_machine:
            self._lab._room = self._lab._most_room = FEWEST_ROOM  # too many at once may be why
        if (arm := self._arms.pop(failed.name, None)) is not None:
            arm.kill()

    def _opened(self, arm: LiveArm) -> None:
        self._label = arm.opened().ref.label
        if not self._lab.state.exists():
            arm.keep_state(self._lab.state)
        taken = arm.take_state(self._lab.state)
        if arm.role.side.name != BASE and (taken.parameters or taken.inputs):
            self._taken = taken

    def answer(self) -> None:
        """The first set's answers, after all that is measured: a reference in float64 takes memory in one arm alone."""
        if self._race == self._number == 0:
            self._each([arm for arm in self._arms.values() if not arm.role.again], self._answer)

    def _answer(self, arm: LiveArm) -> None:
        path = self._lab.work / f"answers-{arm.name.replace(' ', '-')}.pt"
        kept = arm.keep_answers(self._lab.state, path, double=not self._answers)
        if not self._answers:
            self._repeats = kept.repeats
        self._answers[arm.name] = path

    # ------------------------------------------------------------------------------------------------------- timing

    def warm(self, candidates: Sequence[Candidate]) -> None:
        """Warm up one after another, and note how large they are."""
        self._lab._tell(f"race {self._race + 1}, set {self._number + 1}: warming up")
        for arm in list(self._arms.values()):
            self._each([arm], lambda arm: arm.warm(self._lab._callers))
            self._each([arm], self._look)
        sizes = [self._facts[name].steady_rss_bytes for name in self._arms if name in self._facts]
        if sizes:
            available = psutil.virtual_memory().available + sum(sizes)
            self._lab._room = min(affordable_workers(max(sizes), available), self._lab._most_room)

    def _look(self, arm: LiveArm) -> None:
        self._facts[arm.name] = arm.look(weights=self._lab._weights and not self._facts)

    def time(self, candidates: Sequence[Candidate], timing: Timing) -> None:
        """Rounds over all arms whose other side works, too; again without an arm that fails in them."""
        while True:
            raced = [one for one in candidates if all(Role(s, one).name in self._arms for s in self._lab._sides)]
            if not raced:
                return
            try:
                self._time(raced, candidates[0], timing)
            except ArmFailed as failed:
                self._fail(failed)
                continue
            return

    def _time(self, raced: Sequence[Candidate], first: Candidate, timing: Timing) -> None:
        self._lab._tell(f"race {self._race + 1}, set {self._number + 1}: timing base and head in turns")
        names = [Role(side, one).name for one in raced for side in self._lab._sides]
        again = Role(self._lab._sides[0], first, again=True).name
        with_aa = again in self._arms and first in raced
        names += [again] if with_aa else []
        arms, begin = [self._arms[name] for name in names], time.monotonic()
        watch = LoadWatch([arm.pid for arm in arms])
        pairs = [(names.index(own[0].name), names.index(own[-1].name)) for own in map(self._roles, raced)]
        timed = race(
            arms,
            looks=[look for look in LOOKS if look < timing.most] + [timing.most],
            stop=lambda rows: are_narrow(rows, pairs, timing.half_width),
            seed=100 * self._race + self._number,
            time_is_up=lambda: time.monotonic() > begin + timing.for_s,
        )
        self._load = watch.odd()
        self._timed_s += time.monotonic() - begin
        for one in raced:
            own = [names.index(Role(side, one).name) for side in self._lab._sides]
            calm = [names.index(Role(self._lab._sides[0], first).name), names.index(again)] if with_aa else []
            columns = [*(calm or [own[0], own[0]]), own[0], own[-1]]
            rows = tuple(tuple(row[column] for column in columns) for row in timed.rounds)
            self._with_aa |= {one.label} if with_aa else set()
            self._samples[one.label] = ProcessSamples(rounds=rows, settle_timeouts=timed.settle_timeouts)


def are_narrow(rounds: Rounds, pairs: Sequence[tuple[int, int]], half_width: float) -> bool:
    """Whether the interval of every pair of columns is narrow by these rounds of one process alone, wherever it lies.

    A base alone is a pair with itself: it has no interval to wait for, and is timed for as long as there is time.
    """
    whole = Race(arms=(), with_aa=False, processes=(ProcessSamples(rounds=tuple(rounds)),))
    found = [hierarchical_bootstrap(log_ratios(whole, head, base), resamples=LOOK_RESAMPLES) for base, head in pairs]
    return all(one is not None and 0.0 < one.half_width <= math.log1p(half_width) for one in found)
