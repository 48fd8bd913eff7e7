"""Does a claim hold when it is measured again? In: the claimed comparison and today's. Out: a `Repeat` and why.

Holds: a claimed gain is shown again, and today's interval does not lie below the claimed one. Does not hold: today's
whole interval lies below the claimed one. Inconclusive: today's samples are compatible with the claim and with no gain
at all, or there are too few. The two were not timed in turns: days differ, and so much is allowed for (DAY_TO_DAY).
Pure. Not covered: measuring (tuning/reproducing.py), changes of the model, which end a claim before anything is timed.
"""

from __future__ import annotations

import enum
from pathlib import Path

from compilot.records import Comparison, Outcome, Record

DAY_TO_DAY = 0.05  # the same plan on the same machine, weeks apart: other neighbours, other memory layout


class Repeat(enum.StrEnum):
    """What came of measuring a claim again."""

    HOLDS = "holds"
    DOES_NOT_HOLD = "does-not-hold"
    INCONCLUSIVE = "inconclusive"


class Reproduced(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What came of measuring a plan's claim again."""

    result: Repeat
    because: str
    model: str
    candidate: str  # label
    claimed: Comparison | None  # against eager, as the plan has it; None: it claims no speed-up
    measured: Comparison | None  # the same now; None: nothing was timed
    changes: tuple[str, ...]  # what is not as it was when the plan was made, a sentence each
    rebuilt: str  # why the candidate was built again; "": the run's own files were timed
    run_dir: Path  # with the journal of this measurement


def judged(claimed: Comparison | None, now: Comparison | None) -> tuple[Repeat, str]:
    """Whether the claim holds, and why."""
    if now is None or now.outcome is Outcome.UNDECIDED:
        return Repeat.INCONCLUSIVE, "too little was measured to say; give it more time"
    if claimed is None:
        return Repeat.INCONCLUSIVE, f"the plan claims no speed-up to compare with; now {_shown(now)}"
    both = f"claimed {_shown(claimed)}, now {_shown(now)}"
    if now.high < claimed.low * (1.0 - DAY_TO_DAY):
        return Repeat.DOES_NOT_HOLD, f"{both}: the whole interval is below what was claimed"
    if claimed.outcome is not Outcome.FASTER:
        enough = now.low >= claimed.low * (1.0 - DAY_TO_DAY)
        return (Repeat.HOLDS, both) if enough else (Repeat.INCONCLUSIVE, f"{both}: {_WIDE}")
    if now.outcome is Outcome.FASTER:
        return Repeat.HOLDS, both
    return Repeat.INCONCLUSIVE, f"{both}: {_WIDE}"


_WIDE = "the interval is too wide to tell the claim from no gain; give it more time, or a quieter machine"


def _shown(one: Comparison) -> str:
    from compilot.verdict.words import interval, times  # here: the record above is needed by commands that are quick

    return f"{times(one.ratio)} ({interval(one)})"
