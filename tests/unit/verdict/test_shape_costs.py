"""What a call costs at a size that nobody measured."""

from __future__ import annotations

import math

import msgspec
import pytest
from shape_fakes import points
from verdict_fakes import candidate, trial

from compilot.errors import InputError
from compilot.records import ArtifactFile, Measurement
from compilot.verdict.shape_costs import Costs, padded, program_cost


def test_the_cost_of_a_candidates_program() -> None:
    measured = Measurement(cold_s=7.0, cold_cache=True)
    files = (ArtifactFile(name="a", sha256="0", size_bytes=3), ArtifactFile(name="b", sha256="0", size_bytes=4))
    one = msgspec.structs.replace(trial(candidate("quick")), measurement=measured, artifacts=files)
    cost = program_cost(one, {(20,): [0.3, 0.2, 9.0], (10,): [0.1], (30,): []})
    assert cost.points == points({10: 0.1, 20: 0.3})
    assert (cost.build_s, cost.size_bytes) == (7.0, 7)


def test_between_measured_sizes_it_is_a_straight_line() -> None:
    curve = Costs(points({10: 1.0, 20: 3.0, 40: 4.0}))
    assert [curve.at((size,)) for size in (10, 15, 20, 30, 40)] == [1.0, 2.0, 3.0, 3.5, 4.0]


def test_beyond_the_ends_it_goes_on_but_never_falls() -> None:
    rising, falling = Costs(points({10: 1.0, 20: 3.0})), Costs(points({10: 3.0, 20: 1.0}))
    assert (rising.at((5,)), rising.at((30,))) == (1.0, 5.0)
    assert (falling.at((5,)), falling.at((30,))) == (3.0, 1.0)


def test_two_dimensions() -> None:
    grid = Costs(points({(1, 10): 1.0, (1, 20): 2.0, (3, 10): 3.0, (3, 20): 6.0}))
    assert grid.at((2, 15)) == pytest.approx(3.0)
    assert grid.at((3, 20)) == 6.0
    assert padded(grid, (2, 15)).sizes == (2, 15)


def test_a_larger_program_may_be_the_faster_one() -> None:
    curve = Costs(points({7: 9.0, 8: 4.0}))
    assert padded(curve, (7,)) == ((8,), 4.0)
    assert padded(curve, (7,), pad_s=6.0) == ((7,), 9.0)
    assert padded(curve, (7,), largest=(7,)) == ((7,), 9.0)


@pytest.mark.parametrize(
    ("measured", "why"),
    [
        ({}, "at least one"),
        ({1: 0.0}, "above zero"),
        ({1: math.nan}, "above zero"),
        ({1: 1.0, (1, 2): 1.0}, "number of dimensions"),
        ({(1, 1): 1.0, (2, 2): 1.0}, "none at 1x2"),
    ],
)
def test_what_is_no_curve_is_refused(measured: dict[int, float], why: str) -> None:
    with pytest.raises(InputError, match=why):
        Costs(points(measured))
