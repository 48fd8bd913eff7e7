"""Colours of charts and of the report's pictures. In: engines, candidates. Out: colours. Pure: needs no other package.

They are those of Okabe and Ito, which colour-blind people can tell apart. What is named on a picture has a number or
its name beside it, so nothing depends on colour alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from compilot.engines import registry
from compilot.engines.eager.build import EAGER

NEUTRAL = "#8a8f96"  # eager, and what is no engine
PALETTE = ("#0072b2", "#e69f00", "#009e73", "#56b4e9", "#d55e00", "#cc79a7")  # Okabe and Ito, without yellow and black
_COMPILED = tuple(name for name in registry.BUILT_IN if name != EAGER.settings.engine)
USUAL = {EAGER.settings.engine: NEUTRAL, **dict(zip(_COMPILED, PALETTE, strict=False))}  # as long as they last


class Theme(NamedTuple):
    """The colours that differ between light and dark pages. No two of a theme are equal: pictures exchange them."""

    page: str
    ink: str
    quiet: str
    grid: str


LIGHT = Theme(page="#ffffff", ink="#1f2328", quiet="#59636e", grid="#e3e7eb")
DARK = Theme(page="#0d1117", ink="#e6edf3", quiet="#9aa4af", grid="#2c333c")


class KeyRow(NamedTuple):
    """What a number on a picture stands for."""

    number: str
    name: str
    figures: str


def engine_colours(engines: Iterable[str]) -> dict[str, str]:
    """A colour for each engine, in their order; engines of other packages take those that are left."""
    names = list(dict.fromkeys(engines))
    free = [colour for colour in PALETTE if colour not in {USUAL.get(name) for name in names}] or list(PALETTE)
    others = [name for name in names if name not in USUAL]
    given = {name: free[number % len(free)] for number, name in enumerate(others)}
    return {name: USUAL.get(name) or given[name] for name in names}


def first_engine(engines: str) -> str:
    """Of a candidate whose regions have another engine than the rest: that of its regions."""
    return engines.partition(" + ")[0]


def curve_colours(candidates: Sequence[tuple[str, str]]) -> dict[str, str]:
    """A colour for each candidate (label, engine): its engine's, unless an earlier one has it."""
    usual = engine_colours(engine for _, engine in candidates)
    found: dict[str, str] = {}
    for label, engine in candidates:
        free = [colour for colour in (usual[engine], *PALETTE) if colour not in found.values()]
        found.setdefault(label, free[0] if free else NEUTRAL)
    return found
