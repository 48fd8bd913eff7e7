"""The size of an output, and how much error its dtype always allows."""

from __future__ import annotations

import math

import pytest
import torch

from compilot.measure.closeness import FLOORS, relative_floor, rms


@pytest.mark.parametrize(
    ("values", "size"),
    [([3.0, -4.0], math.sqrt(12.5)), ([2.0], 2.0), ([math.nan, 6.0, math.inf, -8.0], math.sqrt(50.0))],
)
def test_the_root_of_the_mean_square_of_what_is_finite(values: list[float], size: float) -> None:
    assert rms(torch.tensor(values)) == pytest.approx(size)


@pytest.mark.parametrize("values", [[], [math.nan], [math.inf, -math.inf]])
def test_what_has_no_finite_value_has_no_size(values: list[float]) -> None:
    assert rms(torch.tensor(values)) == 0.0


def test_a_dtype_without_a_floor_of_its_own_is_allowed_its_rounding() -> None:
    own = torch.finfo(torch.float8_e4m3fn).eps
    assert torch.float8_e4m3fn not in FLOORS
    assert relative_floor(torch.float8_e4m3fn, exact=True) == own
    assert relative_floor(torch.float8_e4m3fn, exact=False) == 3 * own
