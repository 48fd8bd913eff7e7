"""The words for a training step: what its parts brought, steps in the place of calls. In: records. Out: text. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from compilot.records import Kind, PartGain
from compilot.verdict.words import times

CALL, STEP = "call", "step"
_WORD = re.compile(r"\b([Cc])all(s?)\b(?! model\.)")
_SHOWN = re.compile(r'>[^<]*<|aria-label="[^"]*"')  # of a picture: what people read


def unit_of(kind: Kind) -> str:
    """What a unit of work is called: "call", or "step" of a training."""
    return STEP if kind is Kind.TRAINING else CALL


def in_words_of(kind: Kind, text: str) -> str:
    """A sentence of ours, in which a training has steps where a model has calls."""
    return (
        text
        if kind is not Kind.TRAINING
        else _WORD.sub(lambda one: f"{'S' if one[1] == 'C' else 's'}tep{one[2]}", text)
    )


def picture_in_words_of(kind: Kind, svg: str) -> str:
    """The same for a picture's text; its classes stay."""
    return _SHOWN.sub(lambda one: in_words_of(kind, one[0]), svg)


def parts_words(gains: Sequence[PartGain]) -> str:
    """ "by parts: compiled model 1.31x, fused optimizer 1.12x alone; not channels_last (0.97x)"."""
    kept = ", ".join(f"{one.part} {times(one.speedup)}{' alone' if one.alone else ''}" for one in gains if one.kept)
    left = ", ".join(f"{one.part} ({times(one.speedup)})" for one in gains if not one.kept)
    if not kept:
        return ""
    return f"by parts: {kept}" + (f"; not {left}" if left else "")
