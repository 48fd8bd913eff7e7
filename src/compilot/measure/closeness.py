"""Judge one output tensor: is the candidate as close to the reference as eager is?

In: candidate, eager and reference tensors of equal shape. Out: `Closeness` with an `OutputCheck`, the non-finite
differences and whether there was anything to judge. Works through the tensors in slices, so that memory stays small.
The rule for floating outputs: NaN, +Inf and -Inf at the same places as eager; over the places finite in all three,
RMSE to the reference at most 2x eager's own (3x for half precision) plus a floor; no single value far off (RMSE alone
would hide one bad value among millions); the largest entry of each row the same as eager's, unless the reference says
it was a close call. The floor is a share of the output's own RMS; where that is far below the usual, of a hundredth of
the usual RMS, because cancellation noise is no error - unless eager itself is exact to a few roundings there: then the
small result is a result, and so is each small value beside large ones (half of all values off by a percent is refused).
With a tolerance (a lower precision that the user allows) the RMSE may be that share of the
reference's RMS, and single values and close calls are measured by it; never less than the strict limits.
Integer and bool outputs must equal eager's; where the float64 reference disagrees with eager (an argmax on a tie,
say) the reference's value is right too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from compilot.records import OutputCheck

SLICE = 1 << 22  # values looked at together: 32 MB in float64
HALF_EPS = 1e-4  # dtypes coarser than this are "half precision"
# Relative to the RMS of the reference. float32: 84 roundings; half: one, since their eps is already larger than any
# honest tolerance; float64: above what reordering a long sum does.
FLOORS = {torch.float64: 1e-11, torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 8e-3}
# The same without a more exact reference: then eager's own error is unknown and the floor must leave room for it.
EAGER_FLOORS = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 3e-3, torch.bfloat16: 2.4e-2}
TYPICAL_SHARE = 0.01  # of the floor at ordinary inputs: cancellation noise where the output is (nearly) zero
SHARP_EPS = 16.0  # roundings within which eager is exact: noise of cancellation would be larger
SHARP_VALUES = 8  # with fewer values, eager may be exact by luck
VALUE_OFF = 0.01  # of a value's own size: seen in approximations that give up on small results, never in rounding
LOST_FROM = 2.0**13  # times the smallest normal number: below that intermediate results may be denormal
MOST = 0.5  # of the values: fewer may be an approximation's tail that no user would miss
SINGLE_EAGER, SINGLE_FLOORS = 10.0, 30.0  # a single value may be this many eager maxima and floors off
SINGLE_TOLERANCES = 10.0  # the same with a tolerance: the worst of a billion roundings lies 6 standard deviations out
CLOSE_CALL = 4.0  # eager maxima within which two entries of a row count as tied
ROW_MAX = 100_000  # longer rows are not class scores


class Closeness(NamedTuple):
    """The judgement on one output tensor."""

    check: OutputCheck
    ratio: float  # how much of the limit was used; above 1: refused
    non_finite: str  # how the pattern of NaN and Inf differs from eager's, "" when it does not
    all_nan: bool  # eager gives nothing but NaN: cannot be judged
    relative: float | None = None  # RMSE relative to the reference's RMS; None: integers have none


class _Sums:
    """What one pass over the slices adds up."""

    def __init__(self) -> None:
        self.count = 0
        self.candidate = self.eager = self.scale = 0.0  # sums of squares
        self.candidate_max = self.eager_max = self.excess_max = 0.0
        self.nan = self.eager_nan = self.pattern = self.total = 0
        self.sized = self.lost = (
            0  # values above denormals; those that only the candidate gets wrong, by their own size
        )
        self.flips: list[Tensor] = []  # reference margins of rows whose largest entry differs


def compare(
    candidate: Tensor,
    eager: Tensor,
    reference: Tensor | None,
    *,
    case: str,
    output: str,
    typical: float,
    coarsest: torch.dtype,
    tolerance: float | None = None,
) -> Closeness:
    """Judge one output; typical: its usual RMS; coarsest: the least precise dtype the model computes in.

    tolerance: relative RMSE that is allowed instead of the strict limits; integers must be equal all the same.
    """
    if not (eager.is_floating_point() or eager.is_complex()):
        return _compare_exact(candidate, eager, reference, case, output)
    dtype = coarser(real_dtype(eager), coarsest)
    exact = reference is not None and eps(real_dtype(reference)) < eps(dtype)
    sums = _add_up(candidate, eager, eager if reference is None else reference, relative_floor(dtype, exact), dtype)
    return _judge(sums, dtype, exact, case, output, typical, tolerance)


def eps(dtype: torch.dtype) -> float:
    """Relative rounding step of a floating dtype."""
    return torch.finfo(dtype).eps


def coarser(one: torch.dtype, other: torch.dtype) -> torch.dtype:
    """The less precise of two floating dtypes."""
    return one if eps(one) >= eps(other) else other


def real_dtype(tensor: Tensor) -> torch.dtype:
    """The floating dtype behind a floating or complex tensor."""
    return tensor.dtype.to_real() if tensor.is_complex() else tensor.dtype


def relative_floor(dtype: torch.dtype, exact: bool) -> float:
    """Error that is always allowed, relative to the RMS of the reference."""
    return (FLOORS if exact else EAGER_FLOORS).get(dtype, eps(dtype) if exact else 3 * eps(dtype))


def rms(tensor: Tensor) -> float:
    """Root mean square over the finite values; 0 where there are none."""
    sums = _add_up(tensor, tensor, tensor, 0.0, real_dtype(tensor))
    return math.sqrt(sums.scale / sums.count) if sums.count else 0.0


def _rows(tensor: Tensor) -> Tensor:
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return real.reshape(-1, real.shape[-1]) if real.dim() >= 2 and real.numel() else real.reshape(1, -1)


def _slices(tensors: tuple[Tensor, ...]) -> Iterator[tuple[Tensor, ...]]:
    rows = [_rows(tensor) for tensor in tensors]
    step = max(1, SLICE // max(1, rows[0].shape[1]))
    for start in range(0, rows[0].shape[0], step):
        yield tuple(part[start : start + step].double() for part in rows)


def _add_up(candidate: Tensor, eager: Tensor, reference: Tensor, relative: float, dtype: torch.dtype) -> _Sums:
    sums = _Sums()
    scores = eager.numel() > 0 and eager.dim() >= 2 and 2 <= eager.shape[-1] <= ROW_MAX and not eager.is_complex()
    for c, e, r in _slices((candidate, eager, reference)):
        _add_pattern(sums, c, e)
        finite = c.isfinite() & e.isfinite() & r.isfinite()
        c_off, e_off, size = ((c - r)[finite].abs(), (e - r)[finite].abs(), r[finite].abs())
        if len(size):
            sums.count += len(size)
            sums.candidate += float(c_off.square().sum())
            sums.eager += float(e_off.square().sum())
            sums.scale += float(size.square().sum())
            sums.candidate_max = max(sums.candidate_max, float(c_off.max()))
            sums.eager_max = max(sums.eager_max, float(e_off.max()))
            sums.excess_max = max(sums.excess_max, float((c_off - relative * size).max()))
            _add_lost(sums, c_off, e_off, size, dtype)
        if scores:
            _add_flips(sums, c, e, r)
    return sums


def _add_lost(sums: _Sums, c_off: Tensor, e_off: Tensor, size: Tensor, dtype: torch.dtype) -> None:
    """Count the values that eager has to a few roundings of their own size, and the candidate not even roughly."""
    sharp, off = SHARP_EPS * eps(dtype), max(VALUE_OFF, 2 * SHARP_EPS * eps(dtype))
    sized = size > LOST_FROM * torch.finfo(dtype).tiny
    sums.sized += int(sized.sum())
    sums.lost += int((sized & (e_off <= sharp * size) & (c_off > off * size)).sum())


def _add_pattern(sums: _Sums, c: Tensor, e: Tensor) -> None:
    differs = (c.isnan() != e.isnan()) | (c.isposinf() != e.isposinf()) | (c.isneginf() != e.isneginf())
    sums.total += c.numel()
    sums.pattern += int(differs.sum())
    sums.nan += int(c.isnan().sum())
    sums.eager_nan += int(e.isnan().sum())


def _add_flips(sums: _Sums, c: Tensor, e: Tensor, r: Tensor) -> None:
    """Keep, for rows whose largest entry is elsewhere than eager's, by how much the reference prefers its own."""
    rows = ~(c.isnan() | e.isnan() | r.isnan()).any(dim=1)
    c, e, r = c[rows], e[rows], r[rows]
    best, eager_best = c.argmax(dim=1), e.argmax(dim=1)
    flipped = best != eager_best
    if flipped.any():
        chosen = r[flipped].gather(1, best[flipped, None]).squeeze(1)
        margin = r[flipped].amax(dim=1) - chosen
        sums.flips.append(margin.nan_to_num(nan=0.0, posinf=math.inf))  # Inf against Inf is a tie


def _judge(
    sums: _Sums, dtype: torch.dtype, exact: bool, case: str, output: str, typical: float, tolerance: float | None
) -> Closeness:
    n = max(1, sums.count)
    rmse, eager_rmse, scale = (math.sqrt(total / n) for total in (sums.candidate, sums.eager, sums.scale))
    own = scale if exact and _is_sharp(sums, eager_rmse, scale, dtype) else max(scale, TYPICAL_SHARE * typical)
    floor = relative_floor(dtype, exact) * own + torch.finfo(dtype).tiny
    limit = (3.0 if eps(dtype) > HALF_EPS else 2.0) * eager_rmse + floor
    single = SINGLE_EAGER * sums.eager_max + SINGLE_FLOORS * floor
    noise = CLOSE_CALL * sums.eager_max + floor
    size = max(scale, TYPICAL_SHARE * typical)
    if tolerance is not None:
        allowed = tolerance * size
        limit, single = max(limit, allowed), max(single, SINGLE_TOLERANCES * allowed)
        noise = max(noise, CLOSE_CALL * allowed)
    ratio = max(rmse / limit, sums.excess_max / single)
    why = _why_off(sums, rmse, limit, single, noise)
    if not why and exact and tolerance is None:
        why = _why_lost(sums)
    check = OutputCheck(
        case=case,
        output=output,
        rmse=rmse,
        eager_rmse=eager_rmse,
        limit=limit,
        max_abs=sums.candidate_max,
        passed=not why,
        why=why,
    )
    hollow = sums.total > 0 and sums.eager_nan == sums.total
    return Closeness(check, ratio, _pattern_text(sums), hollow, rmse / size if size else 0.0)


def _is_sharp(sums: _Sums, eager_rmse: float, scale: float, dtype: torch.dtype) -> bool:
    """Eager is exact to a few roundings: what is small here is no noise."""
    return sums.count >= SHARP_VALUES and scale > 0 and eager_rmse <= SHARP_EPS * eps(dtype) * scale


def _why_lost(sums: _Sums) -> str:
    if sums.sized < SHARP_VALUES or sums.lost <= MOST * sums.sized:
        return ""
    return (
        f"{sums.lost} of {sums.sized} values are off by more than {VALUE_OFF:.0%} of their own size, eager's are exact"
    )


def _why_off(sums: _Sums, rmse: float, limit: float, single: float, noise: float) -> str:
    if not math.isfinite(limit) or not math.isfinite(rmse):
        return "the errors overflow float64, so they cannot be judged"
    if rmse > limit:
        return f"max abs error {sums.candidate_max:.1e}, RMSE {rmse:.1e} > {limit:.1e}"
    if sums.excess_max > single:
        return f"max abs error {sums.candidate_max:.1e} > {single:.1e} (RMSE {rmse:.1e})"
    bad = sum(int((margins > noise).sum()) for margins in sums.flips)
    if bad:
        worst = max(float(margins.max()) for margins in sums.flips)
        return f"the largest entry of {bad} rows is not eager's (margin {worst:.1e}, noise {noise:.1e})"
    return ""


def _pattern_text(sums: _Sums) -> str:
    if not sums.pattern:
        return ""
    if sums.nan != sums.eager_nan:
        return f"{sums.nan} of {sums.total} values are NaN, eager has {sums.eager_nan}"
    return f"{sums.pattern} of {sums.total} values are NaN or Inf in other places than eager's"


def _compare_exact(candidate: Tensor, eager: Tensor, reference: Tensor | None, case: str, output: str) -> Closeness:
    wrong = candidate != eager
    if reference is not None:
        wrong &= candidate != reference
    count, total = int(wrong.sum()), candidate.numel()
    off = (candidate.double() - eager.double()).abs()
    check = OutputCheck(
        case=case,
        output=output,
        rmse=math.sqrt(float(off.square().mean())) if total else 0.0,
        eager_rmse=0.0,
        limit=0.0,
        max_abs=float(off.max()) if total else 0.0,
        passed=count == 0,
        why=f"{count} of {total} {str(eager.dtype).removeprefix('torch.')} values differ from eager's" if count else "",
    )
    return Closeness(check, math.inf if count else 0.0, "", False)
