"""Where eager's own gradients jump. In: a training and its state; later a candidate's step. Out: sketches in a file;
whether eager itself takes that step from weights that are one rounding away.

At a kink (a ReLU that is nearly zero, a max pooling of two nearly equal values) rounding decides which of two gradients
comes out, and eager's three runs of the reference may all have taken the same side. So eager is run from some more
starts that are one rounding away, and of each gradient a sketch is kept: sums over random groups of its values with
random signs, 2 kB instead of megabytes. The distance of two sketches is about that of the gradients, to some per cent:
a gradient that has the sketch of one that eager took is that one. Not covered: which steps are looked at (step_check).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from compilot.measure.step_seen import StepSeen

STARTS = range(5, 9)  # seeds of the nudges; 1 to 4 are those of eager's run and of a second look
GROUPS = 256
NEAR = 8.0  # times eager's own distance from float64
FLOOR = 1e-5  # of a gradient's norm: weights one rounding away move it about so far
LONGEST_S = 4.0  # for all starts of a case; slower steps have none

Sketches = dict[str, Tensor]


def sketch(name: str, gradient: Tensor) -> Tensor:
    """Of a flat gradient; the groups and signs depend on its name alone."""
    made = torch.Generator().manual_seed(zlib.crc32(f"sketch {name}".encode()))
    drawn = torch.randint(2 * GROUPS, (gradient.numel(),), generator=made)
    signed = gradient.double() * ((drawn & 1) * 2 - 1)
    return torch.zeros(GROUPS, dtype=torch.float64).index_add_(0, drawn >> 1, signed)


def sketches_of(step: StepSeen) -> Sketches:
    """Of every gradient that there is."""
    return {name: sketch(name, one) for name, one in step.gradients.items() if one is not None}


def write_jumps(folder: Path, name: str, run: Callable[[int], list[StepSeen]], step_s: float, steps: int) -> None:
    """Keep what eager does in a case from each start; run: of a seed."""
    affordable = int(LONGEST_S / (max(step_s, 1e-6) * steps))
    kept = [[sketches_of(step) for step in run(seed)] for seed in STARTS[:affordable]]
    torch.save(kept, folder / _file(name))


def read_jumps(folder: Path, name: str) -> list[list[Sketches]]:
    """By start and step; none where there is no file."""
    path = folder / _file(name)
    if not path.exists():
        return []
    found: list[list[Sketches]] = torch.load(path, weights_only=True)
    return found


def taken_by_eager(
    found: StepSeen, number: int, exact: StepSeen, eager: Sequence[StepSeen], jumps: Sequence[Sequence[Sketches]]
) -> bool:
    """Whether eager takes this step of a case from one of its starts: every gradient, none left out."""
    own = sketches_of(found)
    limits = {name: _limit(exact.gradients[name], [run.gradients[name] for run in eager]) for name in own}
    return any(_same(own, run[number], limits) for run in jumps if number < len(run))


def _same(own: Mapping[str, Tensor], other: Mapping[str, Tensor], limits: Mapping[str, float]) -> bool:
    """NaN is no distance."""
    if own.keys() != other.keys():
        return False
    return all(
        float((own[name] - other[name]).norm()) <= limits[name] + FLOOR * float(other[name].norm()) for name in own
    )


def _limit(exact: Tensor | None, runs: Sequence[Tensor | None]) -> float:
    """How far two runs of eager on the same side may be apart."""
    if exact is None:
        return 0.0
    return NEAR * max((float((run.double() - exact.double()).norm()) for run in runs if run is not None), default=0.0)


def _file(name: str) -> str:
    return f"jumps-{name.replace(' ', '-')}.pt"
