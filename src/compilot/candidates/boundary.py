"""Boundaries worth trying: which parts of a model get an engine of their own, while the rest stays in eager.

In: a diagnosis, and the settings to use in a region. Out: candidates with regions, each with its label and the reason
for it: every repeated block compiled once and shared, the blocks inside of a block that dominates, the submodules where
eager's time goes, everything but what stops the compiler; then a candidate with one region more, another engine in one
region, one knob turned in its regions or in the largest alone. Covered: nothing is offered where nothing is repeated
and there is no bottleneck. Not covered: what a candidate promises (promises.py), whether a model can be run so (the run
plane). Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from compilot.candidates.parts import (
    WHOLE,
    Piece,
    covered,
    cut,
    instances_of,
    overlap,
    part_of,
    paths_of,
    shares_by_path,
    title_of,
    with_breaks,
)
from compilot.engines import registry
from compilot.engines.space import Knob, Turn, turns
from compilot.records import Candidate, Diagnosis, OptionValue, ProcessSettings, Region, Settings, Shapes

BOTTLENECK = 0.8  # of an eager call: what a bottleneck covers
DOMINATES = 0.5  # of an eager call in one kind of block: what is in it is worth a boundary of its own
NAMED = 3  # regions in a label; more are counted
REGIONAL = "regions: "  # family of candidates with regions


class Seed(NamedTuple):
    """A boundary to begin with."""

    pieces: tuple[Piece, ...]
    why: str

    @property
    def share(self) -> float:
        """Of an eager call."""
        return sum(piece.share for piece in self.pieces)


def seeds(diagnosis: Diagnosis, *, exports_only: bool, in_parts: bool = False) -> list[Seed]:
    """Boundaries to begin with, the most natural first.

    exports_only: only what stops an export matters. in_parts: the whole model cannot be had, so that everything that
    can is worth it, also what is nearly the whole.
    """
    blocked = with_breaks(diagnosis, exports_only=exports_only)
    pieces = cut(diagnosis, blocked)
    stopped = blocked("")
    found = list(_widest(pieces, stopped) if in_parts or stopped else ())
    found += [_blocks(piece) for piece in pieces if piece.repeated]
    found += _bottleneck(pieces, in_parts=in_parts or stopped)
    found += _inner(diagnosis, pieces, exports_only=exports_only)
    unique = {frozenset(piece.selector for piece in seed.pieces): seed for seed in reversed(found)}
    return [seed for seed in found if unique.get(frozenset(piece.selector for piece in seed.pieces)) is seed]


def _widest(pieces: Sequence[Piece], stopped: bool) -> Iterator[Seed]:
    why = "without what stops the compiler" if stopped else "the whole model cannot be had in one piece"
    if pieces:
        yield Seed(tuple(pieces), f"everything that is worth it, {why}; the rest stays in eager")


def _blocks(piece: Piece) -> Seed:
    return Seed((piece,), f"{piece.title} take {_percent(piece.share)} of a call: one is compiled, all share it")


def _bottleneck(pieces: Sequence[Piece], *, in_parts: bool) -> list[Seed]:
    """The fewest pieces that cover most of the time; not where that is all of them, or the whole in one piece."""
    chosen: list[Piece] = []
    for piece in pieces:
        if sum(one.share for one in chosen) < BOTTLENECK:
            chosen.append(piece)
    share = sum(piece.share for piece in chosen)
    whole = len(chosen) == len(pieces) or (share >= WHOLE and len(chosen) == 1)
    if not chosen or (whole and not in_parts) or share < BOTTLENECK / 2:
        return []
    return [Seed(tuple(chosen), f"only where eager's time goes: {_percent(share)} of a call")]


def _inner(diagnosis: Diagnosis, pieces: Sequence[Piece], *, exports_only: bool) -> list[Seed]:
    """Repeated blocks inside of the block that dominates."""
    large = [piece for piece in pieces if piece.repeated and piece.share >= DOMINATES]
    stopped = with_breaks(diagnosis, exports_only=exports_only)
    found = []
    for outer in large:
        opened = instances_of(outer)
        parts = cut(diagnosis, lambda path, opened=opened: opened(path) or stopped(path))  # type: ignore[misc]
        inner = [part for part in parts if part.repeated and overlap(part.paths, outer.paths)]
        why = f"of a call, inside of {outer.title}"
        found += [Seed((part,), f"{part.title} take {_percent(part.share)} {why}") for part in inner]
    return found


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


# ---------------------------------------------------------------------------------------------------------- candidates


def regional(pieces: Sequence[Piece], settings: Settings, why: str, diagnosis: Diagnosis) -> Candidate:
    """These pieces with these settings, everything else in eager."""
    return with_regions([Region(selector=piece.selector, settings=settings) for piece in pieces], why, diagnosis)


def with_regions(regions: Sequence[Region], why: str, diagnosis: Diagnosis, like: Candidate | None = None) -> Candidate:
    """A candidate with these regions; the same regions in any order are the same one. like: in a process like its."""
    ordered = tuple(sorted(regions, key=lambda region: region.selector))
    shapes = Shapes.DYNAMIC if diagnosis.dynamic else Shapes.STATIC
    process = "" if like is None else like.label.removeprefix(label_of(like.regions, diagnosis))
    return Candidate(
        settings=Settings(shapes=shapes),
        label=label_of(ordered, diagnosis) + process,
        rationale=why,
        regions=ordered,
        process=like.process if like is not None else ProcessSettings(),
    )


def label_of(regions: Sequence[Region], diagnosis: Diagnosis) -> str:
    """ "inductor on 12 x GPT2Block", "openvino on 4 x Stage, inductor freezing on decoder"; the largest first."""
    shares = shares_by_path(diagnosis)
    by_settings: dict[str, list[tuple[float, str]]] = {}
    for region in regions:
        paths = paths_of(region.selector, diagnosis)
        row = (-sum(shares.get(path, 0.0) for path in paths), title_of(paths, diagnosis.repeated))
        by_settings.setdefault(_settings_words(region.settings), []).append(row)
    ranked = sorted(by_settings.items(), key=lambda item: (sum(share for share, _ in item[1]), item[0]))
    return ", ".join(f"{words} on {_titles([title for _, title in sorted(rows)])}" for words, rows in ranked)


def _settings_words(settings: Settings) -> str:
    """What is set, short: the label of a whole-model candidate says the same."""
    on = [_option_words(name, value) for name, value in settings.options.items()]
    layout = [settings.memory_format.value] if settings.memory_format != Settings().memory_format else []
    precision = [settings.precision.value] if settings.precision != Settings().precision else []
    return " ".join([settings.engine, *filter(None, [settings.mode]), *on, *layout, *precision])


def _option_words(name: str, value: OptionValue) -> str:
    if isinstance(value, bool):
        return name if value else f"no {name}"
    return value if isinstance(value, str) else f"{name}={value}"


def _titles(titles: Sequence[str]) -> str:
    more = f" + {len(titles) - NAMED} more" if len(titles) > NAMED else ""
    return " + ".join(titles[:NAMED]) + more


# ---------------------------------------------------------------------------------------------------------- variations


class Wider(NamedTuple):
    """A candidate with one region more."""

    candidate: Candidate
    piece: Piece


def wider(candidate: Candidate, settings: Settings, diagnosis: Diagnosis) -> list[Wider]:
    """The candidate with one more piece in these settings, for each piece that is left, the largest first."""
    exports_only = registry.traits(settings.engine).whole_graph
    taken = covered(candidate, diagnosis)
    found = []
    for whole in cut(diagnosis, with_breaks(diagnosis, exports_only=exports_only)):
        left = [path for path in whole.paths if not overlap([path], taken)]
        if piece := part_of(whole, left, diagnosis):
            why = f"the best boundary so far and {piece.title}: another {_percent(piece.share)} of a call"
            regions = [*candidate.regions, Region(selector=piece.selector, settings=settings)]
            found.append(Wider(with_regions(regions, why, diagnosis, candidate), piece))
    return found


def with_other_engine(candidate: Candidate, settings: Settings, diagnosis: Diagnosis) -> Iterator[Candidate]:
    """A hybrid: one region of several in other settings."""
    if len(candidate.regions) < 2:
        return
    for number, region in enumerate(candidate.regions):
        if region.settings.engine != settings.engine:
            changed = msgspec.structs.replace(region, settings=settings)
            title = title_of(paths_of(region.selector, diagnosis), diagnosis.repeated)
            regions = [*candidate.regions[:number], changed, *candidate.regions[number + 1 :]]
            why = f"the best boundary so far with {settings.engine} for {title}"
            yield with_regions(regions, why, diagnosis, candidate)


def region_turns(candidate: Candidate, knobs: Sequence[Knob], diagnosis: Diagnosis) -> list[Turn]:
    """The candidate with one knob turned in all regions that are set as its main one; then in that one alone.

    What gains in the bottleneck may cost more than it gains elsewhere: a longer build, a slower kernel, wrong answers.
    """
    main = main_region(candidate, diagnosis)
    alike = [region for region in candidate.regions if region.settings == main.settings]
    found = turns(Candidate(settings=main.settings, label="", rationale=""), knobs)
    return [
        turn._replace(candidate=_turned(candidate, some, turn.candidate, diagnosis))
        for some in ([alike, [main]] if len(alike) > 1 else [alike])
        for turn in found
    ]


def _turned(candidate: Candidate, some: Sequence[Region], turned: Candidate, diagnosis: Diagnosis) -> Candidate:
    """The candidate with these of its regions set anew."""
    alone = len(some) == 1 < len(candidate.regions)
    why = turned.rationale + "; only where most of the time goes" * alone
    regions = [
        msgspec.structs.replace(region, settings=turned.settings) if region in some else region
        for region in candidate.regions
    ]
    return with_regions(regions, why, diagnosis, candidate)


# ------------------------------------------------------------------------------------------------------------ families


def main_engine(candidate: Candidate, diagnosis: Diagnosis) -> str:
    """The engine that a candidate is about: the one whose regions have most of an eager call, or the whole model's."""
    return main_region(candidate, diagnosis).settings.engine if candidate.regions else candidate.settings.engine


def main_region(candidate: Candidate, diagnosis: Diagnosis) -> Region:
    """The region that a candidate is about: the largest of the engine that has most of an eager call."""
    if len(candidate.regions) == 1:
        return candidate.regions[0]
    shares, by_engine = shares_by_path(diagnosis), dict[str, float]()
    sizes = [sum(shares.get(path, 0.0) for path in paths_of(r.selector, diagnosis)) for r in candidate.regions]
    for region, size in zip(candidate.regions, sizes, strict=True):
        by_engine[region.settings.engine] = by_engine.get(region.settings.engine, 0.0) + size
    engine = max(by_engine, key=by_engine.__getitem__)
    rows = zip(sizes, candidate.regions, strict=True)
    return max((row for row in rows if row[1].settings.engine == engine), key=lambda row: row[0])[1]


def family(candidate: Candidate) -> str:
    """Candidates whose trials say something about each other: an engine, or the engines of the regions."""
    if not candidate.regions:
        return candidate.settings.engine
    return REGIONAL + " + ".join(sorted({region.settings.engine for region in candidate.regions}))
