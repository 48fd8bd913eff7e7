"""What a budget did not reach, and the budget that would: one figure, and the same words everywhere.

In: trials, the candidates that the search would still ask for, how long the run had. Out: a `NotReached`, a clause for
a reason, a line with the names. Covered: candidates that ran out of time, candidates that never got any. Not covered:
who ran out of time (tuning/timeouts.py), what the search would ask for (candidates/search.py).
"""

from __future__ import annotations

import math
import shlex
import statistics
from collections.abc import Sequence

from compilot.records import Candidate, NotReached, Trial
from compilot.verdict.words import count

TRY_AGAIN_FROM = 2.0  # times what it had: with a little more it would most likely end the same way
LEAST_TRIAL_S = 60.0  # that is advised for each that ran out: most builds take 10 to 40 s, and checks and timing follow
FIRST_GUESS_TRIAL_S = 15.0  # of a run that has no finished trial to go by
NAMED = 6  # more names than that are a wall; all of them are in the journal and in --json


def make_not_reached(
    ran_out: Sequence[Trial], left: Sequence[Candidate], tried: Sequence[Trial], spent_s: float
) -> NotReached | None:
    """The record, None where the budget sufficed; tried: finished trials, to learn from how long one takes.

    spent_s: the time that the run had or took, whichever is more. What is advised comes on top of it.
    """
    if not ran_out and not left:
        return None
    more_s = sum(max(LEAST_TRIAL_S, TRY_AGAIN_FROM * trial.wall_s) for trial in ran_out)
    more_s += sum(_expected_s(candidate, tried) for candidate in left)
    return NotReached(
        not_tried=tuple(left),
        ran_out=tuple(trial.candidate for trial in ran_out),
        more_s=more_s,
        budget_s=60.0 * math.ceil((spent_s + more_s) / 60.0),
    )


def _engines(candidate: Candidate) -> set[str]:
    return {candidate.settings.engine, *(region.settings.engine for region in candidate.regions)}


def _expected_s(candidate: Candidate, tried: Sequence[Trial]) -> float:
    """What trials of its engine took; of an engine that nobody tried, what the longest one took."""
    walls = [trial.wall_s for trial in tried if not trial.candidate.is_eager]
    same = [trial.wall_s for trial in tried if _engines(trial.candidate) == _engines(candidate)]
    own = statistics.mean(same) if same and not candidate.is_eager else 0.0
    return own or max(walls, default=0.0) or FIRST_GUESS_TRIAL_S


def clause(missed: NotReached) -> str:
    """For a reason, which travels without its run directory: how many, and what to do."""
    short, left = len(missed.ran_out), len(missed.not_tried)
    parts = [f"{count(short, 'candidate')} ran out of time"] if short else []
    if left:
        were = "was" if left == 1 else "were"
        parts.append(f"{left} {were} not tried" if short else f"{count(left, 'candidate')} {were} not tried in time")
    return f"{' and '.join(parts)}: give a budget of {minutes(missed.budget_s)}; a resumed run keeps what is finished"


def line(missed: NotReached, run_dir: object) -> str:
    """With names: "not tried, no time left: aoti (1); about 1m more would reach it: compilot tune --resume ..."."""
    return f"{who(missed)}: {command(missed, run_dir)}"


def who(missed: NotReached) -> str:
    """The candidates by name, and how much more time they need."""
    groups = (("not tried, no time left", missed.not_tried), ("ran out of time", missed.ran_out))
    parts = [f"{what}: {_names(candidates)}" for what, candidates in groups if candidates]
    whom = "it" if len(missed.not_tried) + len(missed.ran_out) == 1 else "them"
    return "; ".join([*parts, f"about {minutes(missed.more_s)} more would reach {whom}"])


def command(missed: NotReached, run_dir: object) -> str:
    """What to type, ready to be copied into a shell."""
    return shlex.join(["compilot", "tune", "--resume", str(run_dir), "--budget", minutes(missed.budget_s)])


def _names(candidates: Sequence[Candidate]) -> str:
    names = [candidate.label for candidate in candidates]
    more = ", ..." if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more} ({len(names)})"


def minutes(seconds: float) -> str:
    """Whole minutes, rounded up, as a budget is given: "9m", "1h05m"."""
    hours, rest = divmod(math.ceil(seconds / 60.0), 60)
    return f"{hours}h{rest:02d}m" if hours else f"{rest}m"
