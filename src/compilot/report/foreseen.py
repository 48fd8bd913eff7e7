"""What earlier runs let expect, and whether they were right. In: RunData. Out: a record and one sentence of it.

Nothing was decided by it: it only ordered the trials (candidates/prior.py).
"""

from __future__ import annotations

from compilot.engines.eager.build import EAGER
from compilot.engines.of_candidate import engines_of
from compilot.records import Decision, Expectation, Record
from compilot.report.data import RunData
from compilot.verdict.words import count


class Foreseen(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What earlier runs suggested, and what the run came to."""

    sentence: str
    expected: Expectation
    used: str | None  # the plan's engine, "eager" where it keeps that; None: there is no verdict yet
    right: bool | None  # whether that is the engine which was suggested


def foreseen(data: RunData) -> Foreseen | None:
    """Of a run; None: earlier runs had nothing to say, or were not asked."""
    expected = data.asked.expected
    if expected is None:
        return None
    used = _used(data)
    right = None if used is None else used == expected.suggested
    return Foreseen(sentence=_sentence(expected, used), expected=expected, used=used, right=right)


def suggestion(expected: Expectation) -> str:
    """ "earlier runs suggested openvino (from 5 runs, nearest: ResNet, VGG)"."""
    return (
        f"earlier runs suggested {expected.suggested} "
        f"(from {count(expected.runs, 'run')}, nearest: {', '.join(expected.nearest)})"
    )


def _used(data: RunData) -> str | None:
    if data.verdict is None:
        return None
    chosen = data.trials.get(data.verdict.chosen_id)
    kept = data.verdict.decision is Decision.KEEP_EAGER or chosen is None
    return EAGER.settings.engine if kept or chosen is None else engines_of(chosen.candidate)[0]


def _sentence(expected: Expectation, used: str | None) -> str:
    told = suggestion(expected)
    told = f"{told[0].upper()}{told[1:]}"
    if used is None:
        return f"{told}."
    plan = "keeps eager" if used == EAGER.settings.engine else f"uses {used}"
    return f"{told}; the plan {plan}: {'right' if used == expected.suggested else 'wrong'}."
