"""What runs where: the module tree of a run as boxes side by side, as wide as their share of an eager call. Pure.

In: what a run has read (diagnosis, trials, verdict). Out: a `Tree` of boxes, each with its engine and the number of its
region in the plan, and one row per region. Covered: plans with regions, whole models, runs that keep eager; submodules
whose share is known, which are the repeated blocks and those that take a good part of a call. Not covered: drawing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from compilot.candidates.boundary import label_of
from compilot.candidates.parts import is_within, paths_of, shares_by_path
from compilot.engines.eager.build import EAGER
from compilot.records import Candidate, Diagnosis, Region
from compilot.report.data import RunData

REST = "0"  # what no region has


class Box(NamedTuple):
    """One submodule; the model itself has no path."""

    path: str
    name: str
    class_name: str
    engine: str
    number: str  # of its region, as in the key; REST: none
    share: float  # of an eager call
    left: float  # both in shares of the whole
    right: float
    depth: int


class Row(NamedTuple):
    """A region, or what is left."""

    number: str
    label: str
    share: float
    submodules: int  # 0: the whole model, or what is left of it


class Tree(NamedTuple):
    """Everything that is drawn."""

    boxes: list[Box]  # the model first, outer ones before inner ones
    rows: list[Row]
    staying: tuple[str, ...]  # submodules that stay in eager because they are to blame


def tree_of(data: RunData) -> Tree | None:
    """The tree of what was chosen; None: there is no verdict yet, or no submodule whose share is known."""
    verdict, diagnosis = data.verdict, data.diagnosis
    trial = data.trials.get(verdict.chosen_id) if verdict is not None else None
    if verdict is None or diagnosis is None or trial is None or not shares_by_path(diagnosis):
        return None
    eager = [repair for repair in verdict.repairs if repair.kind == "modules" and not repair.runs_with]
    staying = tuple(path for repair in eager for path in repair.culprits)
    return tree(trial.candidate, diagnosis, data.header.workload.label, staying)


def tree(candidate: Candidate, diagnosis: Diagnosis, label: str, staying: Sequence[str] = ()) -> Tree:
    """The same from its parts."""
    shares = {path: share for path, share in shares_by_path(diagnosis).items() if share > 0.0}
    whole = candidate.settings.engine if not candidate.regions else EAGER.settings.engine
    everything = REST if candidate.regions or candidate.is_eager else "1"
    root = Box("", label, label, whole, everything, 1.0, 0.0, 1.0, 0)
    regions = enumerate(candidate.regions, 1)
    held = {path: (number, region) for number, region in regions for path in paths_of(region.selector, diagnosis)}
    boxes = [root, *_inside(root, shares, held, _class_names(diagnosis))]
    return Tree(boxes, _rows(candidate, diagnosis, shares), tuple(staying))


def _inside(
    outer: Box, shares: Mapping[str, float], held: Mapping[str, tuple[int, Region]], classes: Mapping[str, str]
) -> list[Box]:
    """The boxes below one, from left to right; together they never exceed it."""
    below = [path for path in shares if path != outer.path and is_within(path, outer.path)]
    direct = sorted((p for p in below if not any(q != p and is_within(p, q) for q in below)), key=_natural)
    total = sum(shares[path] for path in direct)
    room = outer.right - outer.left
    scale = min(1.0, room / total) if total else 1.0
    found, left = [], outer.left
    for path in direct:
        number, region = held.get(path, (None, None))
        right = left + scale * shares[path]
        box = Box(
            path=path,
            name=path.removeprefix(f"{outer.path}.") if outer.path else path,
            class_name=classes.get(path, ""),
            engine=region.settings.engine if region is not None else outer.engine,
            number=str(number) if number is not None else outer.number,
            share=shares[path],
            left=left,
            right=right,
            depth=outer.depth + 1,
        )
        found += [box, *_inside(box, {p: shares[p] for p in below}, held, classes)]
        left = right
    return found


def _natural(path: str) -> list[tuple[int, int, str]]:
    """Layer 10 comes after layer 9."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"\.", path)]


def _class_names(diagnosis: Diagnosis) -> dict[str, str]:
    found = {part.path: part.class_name for part in diagnosis.parts}
    return found | {path: block.class_name for block in diagnosis.repeated for path in block.paths}


def _rows(candidate: Candidate, diagnosis: Diagnosis, shares: Mapping[str, float]) -> list[Row]:
    """One for each region, then eager's own; the whole model is one row."""
    if not candidate.regions:
        return [Row(REST if candidate.is_eager else "1", candidate.label or "eager", 1.0, 0)]
    rows = []
    for number, region in enumerate(candidate.regions, 1):
        paths = paths_of(region.selector, diagnosis)
        share = min(1.0, sum(shares.get(path, 0.0) for path in paths))
        rows.append(Row(str(number), label_of([region], diagnosis), share, len(paths)))
    left = max(0.0, 1.0 - sum(row.share for row in rows))
    return [*rows, Row(REST, "eager: everything else", left, 0)]
