"""The interval's width, against what the theory says: neither too narrow nor too wide."""

from __future__ import annotations

import numpy as np
import pytest

from compilot.measure import bootstrap


@pytest.mark.parametrize("count", [2, 3, 5, 12])
def test_processes_that_differ_give_the_standard_error_of_their_mean(count: int) -> None:
    """Each process repeats itself exactly, so all that scatters is which processes there were."""
    own = np.random.default_rng(count).normal(0.0, 0.1, count)
    drawn = bootstrap._resample([np.full(40, value) for value in own], 4, 20_000, np.random.default_rng(0))
    assert drawn.mean() == pytest.approx(own.mean(), abs=0.003)
    assert drawn.std() == pytest.approx(own.std(ddof=1) / np.sqrt(count), rel=0.03)


def test_one_process_scatters_as_the_median_of_its_pairs() -> None:
    pairs = np.random.default_rng(0).normal(0.0, 0.1, 400)
    drawn = bootstrap._resample([pairs], 1, 4000, np.random.default_rng(0))
    assert drawn.std() == pytest.approx(1.2533 * 0.1 / np.sqrt(400), rel=0.25)  # of a median of normal numbers
