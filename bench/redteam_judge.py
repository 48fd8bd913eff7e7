"""Is an answer wrong? A judge of its own for bench/redteam.py: none of the product's code decides here.

In: a model, a call, eager's answer and the answer of the compiled model. Out: what is wrong, "" for nothing. Floats are
held to the model run in double precision. How far an honest program may be off is found by disturbing every float
result of that run by a few float32 roundings: where the disturbed runs scatter (behind a floor, a sort, a cancellation)
an answer may be as far off, elsewhere not. Integers and booleans must equal eager's, unless a disturbed run changes
them. Where eager and all double runs agree on NaN or infinity, so must the answer.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from redteam_models import Program

ROUNDINGS = 4e-7  # a few times float32's 6e-8: exp, erf and their like are allowed that
RUNS, MORE_RUNS = 4, 48  # disturbed runs; the second number before anything is called wrong
BEYOND = 0.5  # of their scatter that an answer may lie outside of what the runs gave: never a whole step of a floor
OWN = 1e-4  # of the value itself
WHOLE = 1e-4  # of the output's root mean square: a third of what the product's gate allows a single value


def flat(answer: Any) -> list[Tensor]:
    """The tensors of an answer in order."""
    if isinstance(answer, Tensor):
        return [answer]
    return list(answer.values() if isinstance(answer, dict) else answer)


def fault(model: Program, inputs: tuple[Tensor, ...], eager: Any, answer: Any) -> str:
    """What is wrong with the answer."""
    if type(answer) is not type(eager) or len(flat(answer)) != len(flat(eager)):
        return f"the answer is a {type(answer).__name__}, eager's a {type(eager).__name__}"
    for number, (want, got) in enumerate(zip(flat(eager), flat(answer), strict=True)):
        if want.shape != got.shape or want.dtype != got.dtype:
            return f"output {number} is {got.dtype} {tuple(got.shape)}, eager's {want.dtype} {tuple(want.shape)}"
    if not _off(model, inputs, eager, answer, RUNS):
        return ""
    return _off(model, inputs, eager, answer, MORE_RUNS)


def _off(model: Program, inputs: tuple[Tensor, ...], eager: Any, answer: Any, runs: int) -> str:
    exact, *disturbed = _double_runs(model, inputs, runs)
    for number, (want, got) in enumerate(zip(flat(eager), flat(answer), strict=True)):
        others = [run[number] for run in disturbed]
        judge = _float_fault if want.is_floating_point() else _exact_fault
        if text := judge(want, got, exact[number], others):
            return f"output {number}: {text}"
    return ""


def _double_runs(model: Program, inputs: tuple[Tensor, ...], runs: int) -> list[list[Tensor]]:
    double = copy.deepcopy(model).double()
    given = tuple(t.double() if t.is_floating_point() else t for t in inputs)
    found = [flat(double(*given))]
    double.noise = ROUNDINGS
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return [*found, *(flat(double(*given)) for _ in range(runs))]


def _exact_fault(want: Tensor, got: Tensor, exact: Tensor, others: list[Tensor]) -> str:
    steady = torch.stack([other == want for other in (exact, *others)]).all(0)
    return _told((want != got) & steady, want, got)


def _float_fault(want: Tensor, got: Tensor, exact: Tensor, others: list[Tensor]) -> str:
    w, g, r = want.double(), got.double(), exact.double()
    runs = torch.stack([r, *(other.double() for other in others)])
    finite = w.isfinite() & runs.isfinite().all(0)
    low, high = (torch.where(finite, end, 0.0) for end in (runs.amin(0).minimum(w), runs.amax(0).maximum(w)))
    size = torch.where(finite, r, 0.0).square().mean().sqrt()
    slack = BEYOND * (high - low) + OWN * r.abs() + WHOLE * size + torch.finfo(want.dtype).tiny
    bad = finite & ~((g >= low - slack) & (g <= high + slack))
    for kind in (torch.isnan, torch.isposinf, torch.isneginf):
        bad |= kind(w) & kind(runs).all(0) & ~kind(g)
    return _told(bad, want, got)


def _told(bad: Tensor, want: Tensor, got: Tensor) -> str:
    if not bad.any():
        return ""
    return f"{int(bad.sum())} of {bad.numel()} values wrong, such as {got[bad][0].item()!r} for {want[bad][0].item()!r}"
