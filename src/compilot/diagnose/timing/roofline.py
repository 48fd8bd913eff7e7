"""How far a model runs below what this machine could do.

In: the work of one call, the machine's peaks, and the time of eager and of a plan. Out: `Roofline`. The roof: no
program can be faster than its operations at peak speed, nor than moving every weight, input and output once at full
bandwidth. Pure: no torch, no clock. Not covered: caches; a small model may run above the memory roof, and that is said.
Whether the plan is this model's is the caller's to check.
"""

from __future__ import annotations

from typing import NamedTuple

from compilot.diagnose.report_records import Roofline, RooflinePoint
from compilot.records import Candidate, Plan, Precision


class Work(NamedTuple):
    """What one call has to do."""

    flops: float
    bytes: float  # every operator's reads and writes, as eager does them
    least_bytes: float  # every weight and input read once, every output written once


def roofline(
    work: Work, peak_flops: float, bandwidth: float, eager_s: float, plan: Plan | None, dtype: str
) -> Roofline:
    """Eager and, where there is one, the plan's entry against the roof."""
    ideal_s = roof_s(work, peak_flops, bandwidth)
    points = [_point("eager", eager_s, work, ideal_s)]
    if plan is not None and plan.entries and plan.entries[0].evidence.p50_s:
        entry = plan.entries[0]
        own_roof = ideal_s if _as_is(entry.candidate) else None
        points.append(_point(entry.candidate.label, _plan_s(plan, eager_s), work, own_roof))
    return Roofline(
        peak_flops_per_s=peak_flops,
        bandwidth_bytes_per_s=bandwidth,
        achieved_flops_per_s=work.flops / eager_s,
        achieved_bytes_per_s=work.bytes / eager_s,
        dtype=dtype,
        flops=work.flops,
        bytes=work.bytes,
        least_bytes=work.least_bytes,
        points=tuple(points),
    )


def roof_s(work: Work, peak_flops: float, bandwidth: float) -> float:
    """The shortest time that the roof allows."""
    return max(work.flops / peak_flops, work.least_bytes / bandwidth)


def _plan_s(plan: Plan, eager_s: float) -> float:
    """The plan's time today: its proven ratio to eager where there is one, since the machine's speed drifts."""
    evidence = plan.entries[0].evidence
    if evidence.versus_eager is not None and evidence.versus_eager.ratio > 0:
        return eager_s / evidence.versus_eager.ratio
    assert evidence.p50_s is not None
    return evidence.p50_s


def _as_is(candidate: Candidate) -> bool:
    """Does all of it compute in the precision that the roof was measured in?"""
    parts = [candidate.settings, *(region.settings for region in candidate.regions)]
    return all(part.precision is Precision.AS_IS for part in parts)


def _point(label: str, call_s: float, work: Work, ideal_s: float | None) -> RooflinePoint:
    share = None if ideal_s is None else ideal_s / call_s
    return RooflinePoint(label=label, call_s=call_s, flops_per_s=work.flops / call_s, roof_share=share)
