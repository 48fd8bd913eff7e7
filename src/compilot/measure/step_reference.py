"""What every way to train is compared with. In: a Training. Out: a `Reference`, and files in a folder.

Cases, each from a known state: the very first step; steps that go on from there (eager's states after WARM steps and
before each later one are files, so that every process begins at the same place, in place); the optimizer alone on
made-up gradients; a step on other batches. Each is run in float64 and several times in eager: as it is, with weights
that differ by one rounding, with another number of threads. Eager's own distance from float64 is the measure of what a
candidate may be off.
A model that draws random numbers is seeded before every step; float64 draws the same ones (that is checked). Without a
float64 twin eager itself is the reference, and limits are wider. Not covered: the loss over many steps (step_curve.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from compilot.errors import CompilotError, InputError
from compilot.measure.reference import describe_error, too_large_for_double
from compilot.measure.step_seen import StepSeen, see_step, see_update
from compilot.records import Precision, Reference
from compilot.workload.loop import Loop, LoopState, read, write
from compilot.workload.steps import double_loop, in_double
from compilot.workload.training import Training

FIRST, LATER, UPDATE, OTHER = "first step", "later steps", "optimizer alone", "other batches"
WARM = 2  # steps of eager before the later ones: by then every optimizer has its state
LATER_STEPS = 3
UPDATES = 3
OTHER_SEED = 1000  # away from the seeds of the batches that are timed
BEGIN, STATE = "begin.pt", "state.pt"


class Expected(NamedTuple):
    """One case: its steps in float64 (or eager's own), and in each run of eager."""

    exact: list[StepSeen]
    eager: list[list[StepSeen]]


def make_reference(training: Training, folder: Path) -> Reference:
    """Train for a few steps in eager and in float64, keep what happened, and leave everything as it was."""
    folder.mkdir(parents=True, exist_ok=True)
    loop = Loop(training)
    begin = loop.save()
    try:
        return _made(training, folder, loop, begin)
    finally:
        loop.restore(begin)


def _made(training: Training, folder: Path, loop: Loop, begin: LoopState) -> Reference:
    random = _randomness(training, loop, begin)
    loop.restore(begin)
    write(begin, folder / BEGIN)
    state = _states(training, folder, loop)
    notes, double = _double(training)
    for name in CASES:
        with _eager_runs(loop) as runs:
            eager = [run(partial(_run, name, training, loop, begin, state, folder)) for run in runs]
        exact = eager[0]
        if double is not None:
            exact = _run(name, training, double, begin, state, folder)
            if name == FIRST and not _same_training(exact, eager[0], training):
                notes.append("no float64 reference: it computes something else (other random numbers, or constants)")
                double, exact = None, eager[0]
        plain = {"exact": [one._asdict() for one in exact], "eager": [[one._asdict() for one in run] for run in eager]}
        torch.save(plain, folder / _file(name))
    return Reference(
        kind="eager" if double is None else "float64",
        cases=CASES,
        stochastic=random,
        seeded=random,
        notes=tuple(notes),
    )


CASES = (FIRST, LATER, UPDATE, OTHER)


def _states(training: Training, folder: Path, loop: Loop) -> LoopState:
    """Train eager on, and keep its state before each of the later steps; the first of these states."""
    for number in range(WARM):
        see_step(loop, window(training, number), seed_of(training, number))
    first = loop.save()
    write(first, folder / _state_file(0))
    for later in range(1, LATER_STEPS):
        number = WARM + later - 1
        see_step(loop, window(training, number), seed_of(training, number))
        write(loop.save(), folder / _state_file(later))
    return first


def load_expected(folder: Path, name: str) -> Expected:
    """One case."""
    kept = torch.load(folder / _file(name), weights_only=True, mmap=True)
    exact = [StepSeen(**one) for one in kept["exact"]]
    return Expected(exact, [[StepSeen(**one) for one in run] for run in kept["eager"]])


def load_begin(folder: Path) -> LoopState:
    """Where the first step begins."""
    return read(folder / BEGIN)


def load_state(folder: Path, later: int = 0) -> LoopState:
    """Where the later steps begin; later: so many of them on, as eager made them."""
    return read(folder / _state_file(later))


def window(training: Training, number: int, *, other: bool = False) -> list[Any]:
    """The micro-batches of a step."""
    batches = training.batches_of(training.seed + OTHER_SEED) if other else training.batches
    count = training.rules.accumulate
    return [batches[(number * count + place) % len(batches)] for place in range(count)]


def seed_of(training: Training, number: int) -> int:
    """What torch is seeded with before a step."""
    return training.seed + 7919 * (number + 1)  # any, as long as all agree


def see_case(
    name: str, training: Training, loop: Loop, sizes: dict[str, float], *, since: int = 0, double: bool = False
) -> Iterator[StepSeen]:
    """The steps of a case, each made when it is asked for, from where the loop is now; since: the first of them."""

    def batches(number: int, other: bool = False) -> list[Any]:
        found = window(training, number, other=other)
        return [in_double(batch) for batch in found] if double else found

    if name == FIRST:
        yield see_step(loop, batches(0), seed_of(training, 0))
    elif name == LATER:
        for number in range(WARM + since, WARM + LATER_STEPS):
            yield see_step(loop, batches(number), seed_of(training, number))
    elif name == OTHER:
        yield see_step(loop, batches(0, True), seed_of(training, 0))
    else:
        for number in range(since, UPDATES):
            yield see_update(loop, number, sizes)


def gradient_sizes(folder: Path) -> dict[str, float]:
    """The usual size of a value of each gradient, from eager's first step."""
    first = load_expected(folder, FIRST).eager[0][0]
    return sizes_of(first)


def sizes_of(seen: StepSeen) -> dict[str, float]:
    """Root mean square of each gradient; 1.0 where it is all zero, so that an optimizer has something to do."""
    found = {name: one for name, one in seen.gradients.items() if one is not None}
    return {name: float(one.double().square().mean().sqrt()) or 1.0 for name, one in found.items() if one.numel()}


# ------------------------------------------------------------------------------------------------------------- inside


def _run(name: str, training: Training, loop: Loop, begin: LoopState, state: LoopState, folder: Path) -> list[StepSeen]:
    loop.restore(_portable(begin if name == FIRST else state))
    double = next(iter(loop.model.parameters())).dtype is torch.float64 and loop.model is not training.model
    sizes = gradient_sizes(folder) if name == UPDATE else {}
    return [*see_case(name, training, loop, sizes, double=double)]


def _portable(state: LoopState) -> LoopState:
    return state._replace(random=None)


def _randomness(training: Training, loop: Loop, begin: LoopState) -> bool:
    """Whether a step draws random numbers; InputError where seeding torch does not make eager repeat itself."""
    unseeded = [_losses_and_norms(training, loop, begin, None) for _ in range(2)]
    if unseeded[0] == unseeded[1]:
        return False
    once, again = (_losses_and_norms(training, loop, begin, training.seed) for _ in range(2))
    close = all(abs(a - b) <= 1e-4 * max(abs(a), abs(b), 1e-12) for a, b in zip(once, again, strict=True))
    if not close:
        raise InputError(
            "two eager steps from the same state on the same batch differ, although torch is seeded: no way to train "
            "can be judged by it; seed what the loss draws, or make the batch outside of it."
        )
    return any(abs(a - b) > 1e-4 * max(abs(a), abs(b), 1e-12) for a, b in zip(*unseeded, strict=True))


def _losses_and_norms(training: Training, loop: Loop, begin: LoopState, seed: int | None) -> list[float]:
    loop.restore(_portable(begin))
    seen = see_step(loop, window(training, 0), seed)
    return [*seen.losses, *seen.norms.values()]


def _double(training: Training) -> tuple[list[str], Loop | None]:
    if size := too_large_for_double(training.model):
        return [f"no float64 reference: the model ({size / 1e9:.1f} GB) is too large for the free memory"], None
    plain = training.rules.autocast is Precision.AS_IS
    try:
        loop = double_loop(training if plain else training.without_autocast())
        loop.window([in_double(batch) for batch in window(training, 0)])
    except CompilotError as error:
        return [f"no float64 reference: {error}"], None
    except Exception as error:
        return [f"no float64 reference: the training cannot run in float64 ({describe_error(error)})"], None
    return [], loop


def _same_training(exact: Sequence[StepSeen], eager: Sequence[StepSeen], training: Training) -> bool:
    """Whether float64 computes the same thing: equal masks, equal code; rounding alone is far smaller than this."""
    near = 0.02 if training.rules.autocast is Precision.AS_IS else 0.2
    pairs = list(zip(exact[0].losses, eager[0].losses, strict=True))
    pairs += [(exact[0].norms[name], norm) for name, norm in eager[0].norms.items() if name in exact[0].norms]
    largest = max((abs(a) for a, _ in pairs), default=0.0)
    return all(abs(a - b) <= near * max(abs(a), abs(b)) + 1e-3 * largest for a, b in pairs)


@contextmanager
def _eager_runs(loop: Loop) -> Iterator[list[Callable[[Callable[[], list[StepSeen]]], list[StepSeen]]]]:
    """Eager as it is, with weights one rounding away, and with another number of threads."""
    threads = torch.get_num_threads()

    def as_it_is(run: Callable[[], list[StepSeen]]) -> list[StepSeen]:
        return run()

    def one_rounding(run: Callable[[], list[StepSeen]]) -> list[StepSeen]:
        with nudged(loop, seed=1):
            return run()

    def other_threads(run: Callable[[], list[StepSeen]]) -> list[StepSeen]:
        torch.set_num_threads(1 if threads > 1 else 2)
        return run()

    try:
        yield [as_it_is, one_rounding, other_threads]
    finally:
        torch.set_num_threads(threads)


@contextmanager
def nudged(loop: Loop, seed: int) -> Iterator[None]:
    """From the next restore on, floating parameters are off by one rounding, up or down; until the end of this."""
    plain = loop.restore

    def restore(state: LoopState) -> None:
        plain(state)
        nudge(loop, seed)

    loop.restore = restore  # type: ignore[method-assign]
    try:
        yield
    finally:
        del loop.restore


def nudge(loop: Loop, seed: int) -> None:
    """Every floating parameter off by one rounding, up or down."""
    made = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in loop.model.parameters():
            if parameter.is_floating_point():
                signs = torch.randint(0, 2, parameter.shape, generator=made) * 2 - 1
                parameter.mul_(1.0 + signs.to(parameter.dtype) * torch.finfo(parameter.dtype).eps)


def _state_file(later: int) -> str:
    return f"state-{later}.pt" if later else STATE


def _file(name: str) -> str:
    return f"{name.replace(' ', '-')}.pt"
