"""Parts of a model that could be regions: the module tree, cut where it is worth it.

In: a diagnosis (repeated blocks, where eager's time goes, graph breaks). Out: `Piece` records that do not overlap, the
largest first: submodules that are alike and run, or one submodule. A cut takes whole submodules, goes into those that
mostly hold repeated blocks, and around graph breaks. Covered: models whose times are not known (parameters stand in),
submodules that the example never calls, calls so short that a region's guard would cost more than it gains. Not
covered: which engine runs a piece, and whether it pays (promises.py). Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from compilot.modules.selectors import BLOCK, of_block
from compilot.records import BreakPlace, Candidate, Diagnosis, RepeatedBlock

LEAST_SHARE = 0.03  # of an eager call: what takes less cannot gain what a plan's margin would show
MOSTLY = 0.5  # of a submodule's time in repeated blocks: these are the pieces, not the submodule around them
UNKNOWN_SHARE = 0.9  # of all blocks together where nobody has timed them: most of a model is in what it repeats
WHOLE = 0.9  # of an eager call: a submodule that takes more is the whole model, as far as compiling it goes
LEAST_CALL_S = 100e-6  # of one call of a piece; a region's own guard costs some microseconds
_PLAIN = re.compile(r"[^\s,:*?\[\]]+")  # a path that means itself in a selector

Blocked = Callable[[str], bool]  # whether a submodule cannot be a piece, but what is in it may


class Piece(NamedTuple):
    """What one region can be."""

    paths: tuple[str, ...]
    title: str  # "12 x GPT2Block", "11 of 12 x GPT2Block", "decoder"
    share: float  # of an eager call, all of it together
    selector: str
    repeated: bool  # submodules that are alike, so that one program may serve them all

    @property
    def one(self) -> float:
        """The share of one instance."""
        return self.share / len(self.paths)


def cut(diagnosis: Diagnosis, blocked: Blocked = lambda path: False) -> list[Piece]:
    """The pieces of a model, the largest first; none where there is nothing to choose from."""
    tree = _Tree(diagnosis, blocked)
    taken = [path for path in tree.take("") if _PLAIN.fullmatch(path)]
    pieces = [piece for paths in grouped(taken, diagnosis.repeated) if (piece := _piece(paths, diagnosis, tree))]
    return sorted(pieces, key=lambda piece: (-piece.share, piece.selector))


def with_breaks(diagnosis: Diagnosis, *, exports_only: bool, certain: bool = False) -> Blocked:
    """Says of a submodule whether torch.compile stops in it, or whether it cannot be a region for another reason.

    exports_only: for engines that export, which only some breaks stop, and which need to know the sizes.
    certain: of code that several like blocks share, nobody knows which of them stops there, so none of these counts.
    """
    places = [place for place in diagnosis.breaks if place.stops_export or not exports_only]
    modules = {module for place in places for module in (known_in(place, diagnosis) if certain else place.modules)}
    unfit = {part.path for part in diagnosis.unfit if exports_only or not part.exports_only}
    return lambda path: path in unfit or any(is_within(module, path) for module in modules)


def known_in(place: BreakPlace, diagnosis: Diagnosis) -> list[str]:
    """The submodules that stop at a place, without those of which only one may do so: like blocks share their code."""
    shared = [set(place.modules) & set(block.paths) for block in diagnosis.repeated]
    return [module for module in place.modules if not any(len(own) > 1 and module in own for own in shared)]


def instances_of(piece: Piece) -> Blocked:
    """Says of a submodule whether it is one of the piece's, so that a cut goes into it."""
    return lambda path: path in piece.paths


def paths_of(selector: str, diagnosis: Diagnosis) -> tuple[str, ...]:
    """The submodules that a selector names, as far as the diagnosis knows them."""
    if selector.startswith(BLOCK):
        digest = selector.removeprefix(BLOCK)
        alike = [block for block in diagnosis.repeated if block.structure_sha256.startswith(digest)]
        return tuple(path for block in alike for path in block.paths)
    known = [*(path for block in diagnosis.repeated for path in block.paths), *(part.path for part in diagnosis.parts)]
    found = [path for part in selector.split(",") for path in (_matching(part, known) or [part])]
    return tuple(dict.fromkeys(found))


def covered(candidate: Candidate, diagnosis: Diagnosis) -> tuple[str, ...]:
    """The submodules in a candidate's regions."""
    return tuple(path for region in candidate.regions for path in paths_of(region.selector, diagnosis))


def is_within(path: str, module: str) -> bool:
    """True for a module's own path and for everything in it; "" is the whole model."""
    return not module or path == module or path.startswith(f"{module}.")


def overlap(one: Iterable[str], other: Collection[str]) -> bool:
    """Whether a submodule of one lies in a submodule of the other, or is one."""
    return any(is_within(a, b) or is_within(b, a) for a in one for b in other)


def shares_by_path(diagnosis: Diagnosis) -> dict[str, float]:
    """The share of each submodule that is known; a guess for repeated blocks that nobody has timed."""
    found = {part.path: part.share for part in diagnosis.parts}
    for block in diagnosis.repeated:
        found |= dict(zip(block.paths, block.shares or _guessed(block, diagnosis), strict=True))
    return found


def selector_of(paths: Sequence[str], repeated: Sequence[RepeatedBlock]) -> str:
    """The structure where the paths are all of its blocks, else their names."""
    selectors = [of_block(block.structure_sha256) for block in repeated]
    for block, selector in zip(repeated, selectors, strict=True):
        if set(block.paths) == set(paths) and selectors.count(selector) == 1:
            return selector
    return ",".join(paths)


class _Tree:
    """The submodules that are worth naming, each below the nearest one around it."""

    def __init__(self, diagnosis: Diagnosis, blocked: Blocked) -> None:
        self.shares = {path: share for path, share in shares_by_path(diagnosis).items() if share > 0.0}
        self._blocked = blocked
        blocks = {path for block in diagnosis.repeated for path in block.paths if path in self.shares}
        self._blocks = {path for path in blocks if not blocked(path)}
        self._outermost = [path for path in self._blocks if self._blocks.isdisjoint(_above(path))]
        self._inside: dict[str, list[str]] = {}
        for path in self.shares:
            self._inside.setdefault(self._around(path), []).append(path)

    def take(self, path: str) -> list[str]:
        """The outermost submodules at or below this one that can be pieces."""
        if path and not self._blocked(path) and (path in self._blocks or not self._is_around(path)):
            return [path]
        return [found for inner in self._inside.get(path, ()) for found in self.take(inner)]

    def _is_around(self, path: str) -> bool:
        """Whether it is only what stands around the pieces: the whole model under another name, or a list of blocks."""
        inner = sum(self.shares[one] for one in self._inside.get(path, ()))
        return self._mostly_blocks(path) or (self.shares[path] >= WHOLE and inner >= WHOLE * self.shares[path])

    def _around(self, path: str) -> str:
        return next((outer for outer in _above(path) if outer in self.shares), "")

    def _mostly_blocks(self, path: str) -> bool:
        inner = sum(self.shares[block] for block in self._outermost if is_within(block, path))
        return inner >= MOSTLY * self.shares[path]


def _above(path: str) -> list[str]:
    """The submodules around one, innermost first."""
    parts = path.split(".")
    return [".".join(parts[:end]) for end in range(len(parts) - 1, 0, -1)]


def grouped(paths: Sequence[str], repeated: Sequence[RepeatedBlock]) -> list[tuple[str, ...]]:
    """Paths of like blocks together, all others alone."""
    group_of = {path: number for number, block in enumerate(repeated) for path in block.paths}
    groups: dict[object, list[str]] = {}
    for path in paths:
        groups.setdefault(group_of.get(path, path), []).append(path)
    return [tuple(group) for group in groups.values()]


def _piece(paths: tuple[str, ...], diagnosis: Diagnosis, tree: _Tree) -> Piece | None:
    """One piece; None where it is too small to matter."""
    share = sum(tree.shares[path] for path in paths)
    call_s = None if diagnosis.eager_call_s is None else diagnosis.eager_call_s * share / len(paths)
    if share < LEAST_SHARE or (call_s is not None and call_s < LEAST_CALL_S):
        return None
    title = title_of(paths, diagnosis.repeated)
    return Piece(paths, title, min(1.0, share), selector_of(paths, diagnosis.repeated), len(paths) > 1)


def part_of(piece: Piece, paths: Sequence[str], diagnosis: Diagnosis) -> Piece | None:
    """Some submodules of a piece; None where there are none, or they are too small to matter."""
    if len(paths) == len(piece.paths):
        return piece
    shares = shares_by_path(diagnosis)
    share = sum(shares.get(path, 0.0) for path in paths)
    if share < LEAST_SHARE:
        return None
    title, selector = title_of(paths, diagnosis.repeated), selector_of(paths, diagnosis.repeated)
    return Piece(tuple(paths), title, min(1.0, share), selector, len(paths) > 1)


def title_of(paths: Sequence[str], repeated: Sequence[RepeatedBlock]) -> str:
    """What a region is called in a label."""
    block = next((block for block in repeated if set(paths) <= set(block.paths)), None)
    if block is None or len(paths) == 1:
        return ", ".join(paths)
    whole = len(paths) == block.count
    return f"{block.count} x {block.class_name}" if whole else f"{len(paths)} of {block.count} x {block.class_name}"


def _guessed(block: RepeatedBlock, diagnosis: Diagnosis) -> tuple[float, ...]:
    """By parameters, which take four bytes each; the outermost blocks share what is not known."""
    known = 4 * block.parameters * block.count / diagnosis.parameter_bytes if diagnosis.parameter_bytes else 1.0
    return (UNKNOWN_SHARE * min(1.0, known) / block.count,) * block.count


def _matching(pattern: str, known: Sequence[str]) -> list[str]:
    wanted = pattern.strip().split(".")
    rows = [(path, path.split(".")) for path in known]
    return [path for path, parts in rows if len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))]
