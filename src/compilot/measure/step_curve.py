"""The loss over many steps: does a way to train get where eager gets?

In: a candidate's loop, eager's curves. Out: a `LossCurve`, and why it is refused, "" where it is not. Where nothing is
random: |loss - float64's| at each step within BAND times the furthest that any run of eager has been off so far (as it
is, from weights one rounding away, with another number of threads). With random numbers or a lower precision: several
seeds of both; the means of the last steps must be shown equivalent (two one-sided tests) within what eager's own seeds
differ by, or a small part of what the loss has fallen by. A seed is one of the random numbers; of a training that draws
none it stands for other batches, from weights one rounding away. The state is put back. Not covered: drawing it
(report/).
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import torch

from compilot.measure.curve_steps import NUDGES, SEEDS, affordable_steps
from compilot.measure.step_reference import load_state, nudge, window
from compilot.records import LossCurve, Record
from compilot.workload.loop import Loop
from compilot.workload.steps import double_loop, in_double
from compilot.workload.training import Training

BAND = 4.0  # of the furthest run of eager; six runs are few, and the distance grows from step to step
FLOOR = 2e-5  # of the loss at its start
LAST = 10  # steps whose mean is compared where random numbers make single ones incomparable
SPREADS = 2.0  # of eager's own scatter between seeds that count as equivalent,
OF_THE_FALL = 0.05  # or this much of what the loss has fallen by, where that is more
T_95 = {5: 2.015, 4: 2.132, 3: 2.353}  # one-sided Student's t by degrees of freedom
DATA_SEED = 1009  # from one seed's batches to the next one's; prime, so that lists are rotated by it, too
FILE, SEEDS_FILE = "curve.json", "curve-seeds.json"


class EagerCurves(Record, frozen=True, kw_only=True):
    """What eager's losses were."""

    steps: int
    exact: tuple[float, ...] = ()  # float64; (): eager's own first run
    runs: tuple[tuple[float, ...], ...]  # of eager: as it is, nudged, other threads; or one for each seed


def make_curves(
    training: Training, folder: Path, *, random: bool, double: bool, limit_s: float, lower: bool = False
) -> EagerCurves:
    """Train eager for many steps, several times, and float64 once; the model is as before afterwards.

    random: the training draws random numbers; lower: they are for ways to train in a lower precision.
    """
    loop = Loop(training)
    begin = loop.save()
    try:
        steps = _affordable(loop, training, folder, limit_s)
        if random or lower:
            made = EagerCurves(steps=steps, runs=tuple(_under_seeds(loop, training, folder, steps, random=random)))
        else:
            runs = (curve(loop, training, folder, steps), *_nudged(loop, training, folder, steps))
            exact = _exact(training, folder, steps) if double else ()
            made = EagerCurves(steps=steps, exact=exact or runs[0], runs=runs)
    finally:
        loop.restore(begin)
    (folder / _file(random or lower)).write_bytes(msgspec.json.encode(made))
    return made


def read_curves(folder: Path, *, seeds: bool) -> EagerCurves:
    """As `make_curves` has written them; seeds: those of several seeds."""
    return msgspec.json.decode((folder / _file(seeds)).read_bytes(), type=EagerCurves)


def _file(seeds: bool) -> str:
    return SEEDS_FILE if seeds else FILE


def check_curve(
    loop: Loop, training: Training, folder: Path, *, random: bool, lower: bool = False
) -> tuple[LossCurve, str]:
    """The candidate's own curve and why it is refused; lower: it computes in a lower precision."""
    eager, before = read_curves(folder, seeds=random or lower), loop.save()
    try:
        if random or lower:
            return judge_seeds(tuple(_under_seeds(loop, training, folder, eager.steps, random=random)), eager)
        return judge_band(curve(loop, training, folder, eager.steps), eager)
    finally:
        loop.restore(before)


def curve(
    loop: Loop,
    training: Training,
    folder: Path,
    steps: int,
    *,
    seed: int | None = None,
    nudged: int | None = None,
    other_batches: bool = False,
) -> tuple[float, ...]:
    """The losses of so many steps from the state that every process begins at; other_batches: those of the seed."""
    loop.restore(load_state(folder))
    if nudged is not None:
        nudge(loop, nudged)
    batches = training.batches_of(training.seed + DATA_SEED * (seed + 1)) if other_batches and seed is not None else ()
    return _losses(loop, training, steps, seed, batches=batches)


def _under_seeds(
    loop: Loop, training: Training, folder: Path, steps: int, *, random: bool
) -> Iterator[tuple[float, ...]]:
    """One curve for each seed; random: of its random numbers, otherwise of other batches and other roundings."""
    for seed in range(SEEDS):
        if random:
            yield curve(loop, training, folder, steps, seed=seed)
        else:
            yield curve(loop, training, folder, steps, seed=seed, nudged=seed + 1, other_batches=True)


def judge_band(own: Sequence[float], eager: EagerCurves) -> tuple[LossCurve, str]:
    """Step by step against float64, within a few times of what eager's runs have been off so far."""
    exact, low, high = eager.exact, [], []
    furthest, failure = 0.0, ""
    floor = FLOOR * max(abs(exact[0]), 1e-12)
    for step, right in enumerate(exact):
        furthest = max(furthest, *(abs(run[step] - right) for run in eager.runs))
        allowed = BAND * furthest + floor
        low.append(right - allowed)
        high.append(right + allowed)
        off = abs(own[step] - right)
        if not failure and not off <= allowed:  # NaN is no loss either
            failure = (
                f"the loss leaves eager's band at step {step + 1} of {len(exact)}: {own[step]:.6g}, "
                f"{right:.6g} would be right (allowed {allowed:.1e} off)"
            )
    found = LossCurve(
        losses=tuple(own), eager=eager.runs[0], exact=tuple(exact), low=tuple(low), high=tuple(high), within=not failure
    )
    return found, failure


def judge_seeds(runs: Sequence[Sequence[float]], eager: EagerCurves) -> tuple[LossCurve, str]:
    """Are the means of the last steps equivalent?"""
    last = min(LAST, eager.steps)
    own, theirs = ([statistics.mean(run[-last:]) for run in group] for group in (runs, eager.runs))
    apart = [a - b for a, b in zip(own, theirs, strict=True)]
    off = statistics.mean(apart)
    error = statistics.stdev(apart) / math.sqrt(len(apart)) if len(apart) > 1 else 0.0
    begin = statistics.mean(run[0] for run in eager.runs)
    fall = abs(begin - statistics.mean(theirs))
    margin = max(SPREADS * statistics.stdev(theirs), OF_THE_FALL * fall, 1e-4 * abs(begin))
    reach = abs(off) + T_95.get(len(apart) - 1, 2.0) * error
    failure = ""
    if not reach <= margin:
        failure = (
            f"the loss after {eager.steps} steps is not shown to be eager's: off by {off:.2g}, with "
            f"what chance may add {reach:.2g}, over {len(apart)} seeds (allowed {margin:.2g})"
        )
    mean = _mean_curve(runs)
    middle, low, high = _mean_curve(eager.runs), _extreme(eager.runs, min), _extreme(eager.runs, max)
    found = LossCurve(losses=mean, eager=middle, low=low, high=high, seeds=len(runs), within=not failure)
    return found, failure


def _mean_curve(runs: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(statistics.mean(values) for values in zip(*runs, strict=True))


def _extreme(runs: Sequence[Sequence[float]], which: Any) -> tuple[float, ...]:
    return tuple(which(values) for values in zip(*runs, strict=True))


# ------------------------------------------------------------------------------------------------------------- training


def _losses(
    loop: Loop,
    training: Training,
    steps: int,
    seed: int | None,
    *,
    batches: Sequence[Any] = (),
    double: bool = False,
) -> tuple[float, ...]:
    """batches: in the place of the training's own."""
    found = []
    with torch.random.fork_rng():
        if seed is not None:
            torch.manual_seed(training.seed + 15_485_863 * (seed + 1))
        for number in range(steps):
            given = _window_of(batches, training, number) if batches else window(training, number)
            given = [in_double(batch) for batch in given] if double else given
            found.append(statistics.mean(float(loss) for loss in loop.window(given)))
    return tuple(found)


def _window_of(batches: Sequence[Any], training: Training, number: int) -> list[Any]:
    count = training.rules.accumulate
    return [batches[(number * count + place) % len(batches)] for place in range(count)]


def _nudged(loop: Loop, training: Training, folder: Path, steps: int) -> Iterator[tuple[float, ...]]:
    for number in range(NUDGES):
        yield curve(loop, training, folder, steps, nudged=number + 1)
    with _other_threads():
        yield curve(loop, training, folder, steps)


def _exact(training: Training, folder: Path, steps: int) -> tuple[float, ...]:
    loop = double_loop(training.without_autocast())
    loop.restore(load_state(folder))
    return _losses(loop, training, steps, None, double=True)


def _affordable(loop: Loop, training: Training, folder: Path, limit_s: float) -> int:
    """So many steps that all runs fit into the time: 50, or fewer of a slow model."""
    loop.restore(load_state(folder))
    begin = time.perf_counter()
    _losses(loop, training, 2, None)
    step_s = (time.perf_counter() - begin) / 2
    return affordable_steps(step_s, limit_s)


@contextmanager
def _other_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if threads > 1 else 2)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
