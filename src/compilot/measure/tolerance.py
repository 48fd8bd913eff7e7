"""How far a candidate of lower precision may be off. In: a precision, the user's own number. Out: a relative RMSE.

The error is measured per output, against the float64 reference, relative to the RMS of that output. As-is candidates
have no tolerance: the strict limits of closeness.py hold for them, whatever the user allows others.
"""

from __future__ import annotations

from compilot.records import Precision

# A few roundings of each number format, added up over a deep network: 2.5 eps of bf16, 5 eps of fp16, and for 8-bit
# integers six steps of 1/127. A network whose answers are further off is most likely not the same network.
DEFAULTS = {Precision.BF16: 0.02, Precision.FP16: 0.005, Precision.INT8_DYNAMIC: 0.05}


def tolerance_of(precision: Precision, asked: float | None) -> float | None:
    """The relative RMSE that is allowed; None: the strict limits."""
    if precision is Precision.AS_IS:
        return None
    return DEFAULTS[precision] if asked is None else asked
