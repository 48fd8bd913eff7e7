"""Is a training step right? In: what a candidate's step did, the same in float64, and in several runs of eager.

Out: the first thing that is wrong, with the tensor named, and how near everything was. Gradients come first: per tensor
against float64, allowed are a few times eager's own error and a floor. How far a parameter moved counts where its
gradient is well above rounding: Adam's first update is the sign of the gradient, and rounding flips tiny ones; those
may be off by twice what any value moves. Buffers and the optimizer's state like gradients; counters exactly. Where
float64 itself is no number, losses, norms and small moves are passed over. What is wrong may be a kink (step_check.py)
where every gradient that is off is a little off, and moves and the optimizer's state by no more than follows from it.
Pure. Not covered: making the steps (step_reference.py), many of them (step_curve.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from compilot.measure.closeness import Closeness, compare
from compilot.measure.step_seen import StepSeen
from compilot.records import OutputCheck

CLEAR = 16.0  # times eager's own error: gradients above it have their sign from the model, not from rounding
FLIP = 2.5  # of the largest move in float64: from one sign to the other, and rounding
USUAL = 30.0  # noise of sums that cancel to zero, in hundredths of the usual gradient's floor
KINK = 0.05  # of a gradient's size: one value on the other side of a ReLU changes less (0.4 % is the most we have seen)
QUIET = 0.1  # of the usual gradient: what is smaller is measured by it
MOVED = 0.5  # of a move, where the gradient is CLEAR of its own error: signs stay there; a move left out is off by all
AVERAGED = 2 * KINK  # of the optimizer's state: a square is off by twice as much; one step's average left out is more
NEAR = 2.0  # limits, from a start that is not eager's: that start is off by a rounding, too; kinks take a hundred
LOSS_EAGER, LOSS_FLOOR = 4.0, 1e-5  # of eager's worst deviation; of the loss itself
NORM_EAGER, NORM_FLOOR = 4.0, 1e-4
GRADIENT, MOVE, OPTIMIZER = "gradient of", "move of", "optimizer "


class Judged(NamedTuple):
    """One step."""

    failure: str = ""  # the first thing that is wrong
    worst: OutputCheck | None = None
    ratio: float = 0.0  # of the limit that was used
    relative: float | None = None  # worst relative error of a gradient against the reference
    may_be_kink: bool = False  # all that fails is a gradient a little off, or follows: rounding took the other side
    near: bool = False  # all that fails is within NEAR limits; a norm never is: one place changes little of it
    note: str = ""  # what was passed over, and why


def judge_step(
    found: StepSeen, exact: StepSeen, eager: Sequence[StepSeen], where: str, *, tolerance: float | None = None
) -> Judged:
    """Hold one step against float64 and eager's runs of the same step; where: "step 1", for people."""
    if text := _losses(found, exact, eager, tolerance) or _pattern(found, eager[0]):
        return Judged(f"{text} ({where})")
    gradients = [*_gradients(found, exact, eager, tolerance, where)]
    parts = [
        *gradients,
        *_moves(found, exact, eager, tolerance, where),
        *_state(found, exact, eager, tolerance, where),
    ]
    worst = max(parts, key=lambda one: (bool(one.failure), one.ratio), default=Judged())
    norms = [*_norms(found, exact, eager, tolerance, where)]
    failing = [one for one in (*parts, *norms) if one.failure]
    relative = max((one.relative for one in parts if one.relative is not None), default=None)
    kink = any(one.failure for one in (*gradients, *norms)) and all(one.may_be_kink for one in failing)
    near = kink and all(1.0 < one.ratio <= NEAR for one in failing)
    return Judged(failing[0].failure if failing else "", worst.worst, worst.ratio, relative, kink, near)


# ------------------------------------------------------------------------------------------------------- whole numbers


def _losses(found: StepSeen, exact: StepSeen, eager: Sequence[StepSeen], tolerance: float | None) -> str:
    for place, (own, right) in enumerate(zip(found.losses, exact.losses, strict=True)):
        if not math.isfinite(own) and math.isfinite(right):
            return f"the loss is {own}, eager's is {right:.6g}"
        if not math.isfinite(right):
            continue  # nothing to be held against
        usual = _farthest((run.losses[place] for run in eager), right)
        limit = LOSS_EAGER * usual + max(LOSS_FLOOR, tolerance or 0.0) * abs(right)
        if not abs(own - right) <= limit:
            return f"the loss is {own:.8g}, {right:.8g} would be right (allowed {limit:.1e} off)"
    return ""


def _pattern(found: StepSeen, eager: StepSeen) -> str:
    for name, gradient in eager.gradients.items():
        own = found.gradients.get(name)
        if (own is None) != (gradient is None):
            return f"{name} has {'no gradient' if own is None else 'a gradient'}, in eager it has " + (
                "none" if gradient is None else "one"
            )
        if own is not None and gradient is not None and own.dtype != gradient.dtype:
            return f"the gradient of {name} is {own.dtype}, eager's is {gradient.dtype}"
    missing = next((name for name in eager.state if name not in found.state), None)
    return f"{missing} is missing" if missing is not None else ""


def _norms(
    found: StepSeen, exact: StepSeen, eager: Sequence[StepSeen], tolerance: float | None, where: str
) -> Iterator[Judged]:
    """The whole gradient, of tensors that are looked at in places only; those that are wrong."""
    known = {name: right for name, right in exact.norms.items() if math.isfinite(right)}
    largest = max(known.values(), default=0.0)
    for name, right in known.items():
        usual = _farthest((run.norms.get(name, right) for run in eager), right)
        limit = NORM_EAGER * usual + max(NORM_FLOOR, tolerance or 0.0) * right + 1e-6 * largest
        off = abs(found.norms[name] - right)
        if not off <= limit:  # NaN is no norm
            text = f"the gradient of {name} has norm {found.norms[name]:.6g}, {right:.6g} would be right ({where})"
            yield Judged(text, may_be_kink=off <= KINK * max(right, QUIET * largest))


# -------------------------------------------------------------------------------------------------------------- tensors


def _gradients(
    found: StepSeen, exact: StepSeen, eager: Sequence[StepSeen], tolerance: float | None, where: str
) -> Iterator[Judged]:
    usual = _usual(g for g in exact.gradients.values() if g is not None)
    for name, right in exact.gradients.items():
        own = found.gradients[name]
        if own is None or right is None:
            continue
        runs = [one for run in eager if (one := run.gradients[name]) is not None]
        yield _judged(own, runs, right, f"{GRADIENT} {name}", usual, tolerance, where)


def _moves(
    found: StepSeen, exact: StepSeen, eager: Sequence[StepSeen], tolerance: float | None, where: str
) -> Iterator[Judged]:
    usual = _usual(exact.moved.values())
    for name, right in exact.moved.items():
        clear = _clear(name, exact, eager, tolerance or 0.0)
        own, runs = found.moved[name], [run.moved[name] for run in eager]
        known = right.isfinite()
        largest = max([_largest(right[known]), *(_largest(run[known]) for run in runs)])
        off = _largest((own - right)[~clear & known])
        if not off <= FLIP * largest:  # NaN is no move
            yield Judged(f"{name} moved by up to {_largest(own):.1e}, at most {largest:.1e} would be right ({where})")
        if not bool(clear.any()):
            continue
        picked = [run[clear].float() for run in runs]
        one = _judged(own[clear].float(), picked, right[clear], f"{MOVE} {name}", usual, tolerance, where)
        yield one._replace(may_be_kink=bool(one.failure) and _move_follows(name, found, exact, usual))


def _move_follows(name: str, found: StepSeen, exact: StepSeen, usual: float) -> bool:
    """Whether a move is off by no more than its gradient explains."""
    own, right, moved = found.gradients.get(name), exact.gradients.get(name), exact.moved[name]
    if own is None or right is None:
        return False
    clear = right.double().abs() > CLEAR * _distance(own, right)
    return _distance(found.moved[name][clear], moved[clear]) <= MOVED * max(_usual([moved[clear]]), QUIET * usual)


def _state(
    found: StepSeen, exact: StepSeen, eager: Sequence[StepSeen], tolerance: float | None, where: str
) -> Iterator[Judged]:
    keys = {_key(name) for name in exact.state}
    usual = {key: _usual(one for name, one in exact.state.items() if _key(name) == key) for key in keys}
    for name, right in exact.state.items():
        runs, own = [run.state[name] for run in eager], found.state[name]
        if own.shape != right.shape:
            yield Judged(f"{name} has another size than eager's ({where})")
            continue
        one = _judged(own, runs, right, name, usual[_key(name)], tolerance, where)
        yield one._replace(may_be_kink=bool(one.failure) and _state_follows(name, own, right, usual[_key(name)]))


def _state_follows(name: str, own: Tensor, right: Tensor, usual: float) -> bool:
    """Whether the optimizer's state is off by no more than its gradient explains; buffers have no gradient."""
    return name.startswith(OPTIMIZER) and _distance(own, right) <= AVERAGED * max(_usual([right]), QUIET * usual)


def _judged(
    own: Tensor,
    runs: Sequence[Tensor],
    right: Tensor,
    what: str,
    usual: float,
    tolerance: float | None,
    where: str,
) -> Judged:
    """One tensor; of eager's runs the one counts that is furthest off."""
    worst = max(runs, key=lambda run: _distance(run, right))
    dtype = worst.dtype if worst.is_floating_point() else torch.float32
    close = compare(
        own,
        worst,
        right,
        case=where,
        output=what,
        typical=USUAL * usual,
        coarsest=dtype,
        tolerance=tolerance,
    )
    of_gradient, failure = what.startswith(GRADIENT), _failure(close, what, where)
    kink = bool(failure) and of_gradient and not close.non_finite
    kink = kink and _distance(own, right) <= KINK * max(_usual([right]), QUIET * usual)
    return Judged(failure, close.check, close.ratio, close.relative if of_gradient else None, kink)


def _failure(close: Closeness, what: str, where: str) -> str:
    if close.non_finite:
        return f"{what}: {close.non_finite} ({where})"
    return "" if close.check.passed else f"{what} is wrong: {close.check.why} ({where})"


def _clear(name: str, exact: StepSeen, eager: Sequence[StepSeen], tolerance: float) -> Tensor:
    """Where the gradient is well above eager's own error, or the one allowed; everywhere where there is no gradient."""
    right = exact.gradients.get(name)
    runs = [one for run in eager if (one := run.gradients.get(name)) is not None]
    if right is None or not runs:
        return torch.ones_like(exact.moved[name], dtype=torch.bool)
    error = max(tolerance * _usual([right]), *(_distance(run, right) for run in runs))
    return right.double().abs() > CLEAR * error


def _distance(run: Tensor, right: Tensor) -> float:
    return float((run.double() - right.double()).square().mean().sqrt()) if right.numel() else 0.0


def _key(name: str) -> str:
    """What all tensors of a kind have in common: "optimizer inner.weight.exp_avg" is one of exp_avg."""
    return name.rpartition(".")[2]


def _farthest(values: Iterable[float], right: float) -> float:
    """The largest distance from what is right, of those that are numbers."""
    return max((off for value in values if math.isfinite(off := abs(value - right))), default=0.0)


def _largest(tensor: Tensor) -> float:
    return float(tensor.abs().max()) if tensor.numel() else 0.0


def _usual(tensors: Iterable[Tensor]) -> float:
    """Root mean square over all values of all of them."""
    found = [one for one in tensors if one.numel() and one.is_floating_point()]
    count = sum(one.numel() for one in found)
    return math.sqrt(sum(float(one.double().square().sum()) for one in found) / count) if count else 0.0
