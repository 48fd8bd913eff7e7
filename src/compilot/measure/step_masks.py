"""Random numbers of a way to train that draws its own. In: a candidate's loop, eager's losses under many seeds.

Out: why its random numbers are wrong, "" where nothing says so. Compiled code draws other numbers than eager, so that a
single step cannot be compared: its twin that draws eager's is judged number by number, and of the real one the losses
of one step under SEEDS seeds are held against eager's: they must differ from each other (new masks at every step), have
eager's mean (no bias) and about eager's spread (masks of about the same rate). Pure but for `losses_under_seeds`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path

import msgspec
import torch

from compilot.measure.step_reference import load_state, window
from compilot.workload.loop import Loop
from compilot.workload.training import Training

SEEDS = 12
FILE = "masks.json"
MEAN_ERRORS = 4.5  # standard errors: chance alone does that once in 100,000 candidates
SPREAD = 9.0  # of two variances of 12 values each: chance alone once in 1,000
MEAN_FLOOR = 1e-4  # of the loss


def losses_under_seeds(loop: Loop, training: Training, folder: Path) -> list[float]:
    """The loss of one step from the same state under each seed, and of two more without seeding in between."""
    found = []
    for number in range(SEEDS):
        loop.restore(load_state(folder))
        with torch.random.fork_rng():
            torch.manual_seed(training.seed + 104_729 * (number + 1))
            found.append(_mean(loop, training))
    for _ in range(2):
        loop.restore(load_state(folder))
        found.append(_mean(loop, training))
    return found


def write(losses: Sequence[float], folder: Path) -> None:
    """Keep eager's."""
    (folder / FILE).write_bytes(msgspec.json.encode(list(losses)))


def read(folder: Path) -> list[float]:
    """Eager's."""
    return msgspec.json.decode((folder / FILE).read_bytes(), type=list[float])


def masks_problem(own: Sequence[float], eager: Sequence[float]) -> str:
    """What is wrong with the random numbers, "" for nothing."""
    if not all(map(math.isfinite, own)):
        return "the loss is not finite under some seeds, eager's is"
    if own[-1] == own[-2]:
        return "it draws the same random numbers at every step"
    own, eager = own[:SEEDS], eager[:SEEDS]
    if len(set(own)) < SEEDS // 2:
        return f"{SEEDS} seeds give only {len(set(own))} different losses: it hardly draws random numbers"
    a, b = statistics.variance(own), statistics.variance(eager)
    if a > SPREAD * b or b > SPREAD * a:
        how = f"{math.sqrt(a):.2g} under {SEEDS} seeds, eager's by {math.sqrt(b):.2g}"
        return f"its losses scatter by {how}: masks of another rate"
    off = statistics.mean(own) - statistics.mean(eager)
    limit = MEAN_ERRORS * math.sqrt((a + b) / SEEDS) + MEAN_FLOOR * abs(statistics.mean(eager))
    if abs(off) > limit:
        return f"its mean loss under {SEEDS} seeds is off by {off:.2g} (allowed {limit:.2g})"
    return ""


def _mean(loop: Loop, training: Training) -> float:
    return statistics.mean(float(loss) for loss in loop.window(window(training, 0)))
