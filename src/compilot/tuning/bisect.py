"""Which of several things is to blame? One question at a time, as few as can be.

In: things (options, submodules), how to make a candidate with some of them. Out, one after another: candidates to try;
at the end what passes together and what is to blame. Each question adds things to what is known to pass, so that every
passing answer is a better candidate than the one before: stopping at any moment leaves the best so far. One culprit of
n costs about log2(n) + 2 questions, each further one as many. Covered: several culprits, things that only fail
together (the later one is blamed), trials whose reason names the culprit. Not covered: trials that ran out of time;
they end the search for a culprit. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

from compilot.records import Candidate, State, Trial

MOST_CULPRITS = 3  # with more the engine does not fit the model
PASSED = (State.OK, State.PRUNED)  # the latter is the same program as one that passed
FAILED = (State.WRONG, State.INFEASIBLE, State.CRASHED)


class Found(NamedTuple):
    """What a search for culprits came to."""

    good: list[str]  # that pass together
    culprits: list[str]
    done: bool = True  # False: it ended before everything was looked at


Questions = Generator[Candidate, Trial, Found]
Make = Callable[[Sequence[str]], Candidate]
Named = Callable[[Trial], str | None]


def culprits(
    things: Sequence[str],
    make: Make,
    *,
    named: Named = lambda trial: None,
    inside: Callable[[str], Sequence[str]] = lambda thing: (),
) -> Questions:
    """named: the thing that a trial's reason names; inside: what to look at instead of a culprit that is worth it."""
    good: list[str] = []
    blamed: list[str] = []
    left = list(things)
    while left:
        last = len(blamed) >= MOST_CULPRITS or (len(blamed) > 1 and not good)
        answer = yield from _first_culprit(good, left, make, named, last=last)
        if answer is None:
            return Found(good, blamed, done=False)
        good += left[: answer.passing]
        if answer.culprit is None:
            break
        blamed.append(answer.culprit)
        rest = [thing for thing in left[answer.passing :] if thing != answer.culprit]
        left = [*inside(answer.culprit), *rest]
    return Found(good, blamed)


class _Answer(NamedTuple):
    """So many of the things pass, in their order; None of them is a culprit: all do."""

    passing: int
    culprit: str | None


def _first_culprit(
    good: Sequence[str], left: Sequence[str], make: Make, named: Named, *, last: bool
) -> Generator[Candidate, Trial, _Answer | None]:
    """All at once; then the longest run of them that passes, found by halves. last: no halves.

    None: a trial that says nothing, or the last one failed.
    """
    passes, fails, asked = 0, len(left) + 1, len(left)
    while passes < len(left) and fails - passes > 1:
        trial = yield make([*good, *left[:asked]])
        if trial.state in PASSED:
            passes = asked
        elif last or trial.state not in FAILED:
            return None
        elif (name := named(trial)) is not None and name in left[passes:asked]:
            return _Answer(passes, name)
        else:
            fails = asked
        asked = (passes + fails) // 2
    return _Answer(passes, left[passes] if passes < len(left) else None)
