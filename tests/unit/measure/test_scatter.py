"""How much an arm's own calls vary, and what could be shown with such calls."""

from __future__ import annotations

import random

import pytest

from compilot.measure.scatter import scatter
from compilot.verdict.words import NOISY


def calls(call_s: float, sigma: float, number: int, seed: int = 0) -> list[float]:
    noise = random.Random(seed)
    return [call_s * noise.lognormvariate(0.0, sigma) for _ in range(number)]


@pytest.mark.parametrize("seed", range(5))
def test_calls_of_a_quiet_machine_are_not_noisy(seed: int) -> None:
    found = scatter(calls(0.020, 0.03, 75, seed))
    assert found is not None
    assert found.noise < NOISY
    assert found.smallest < 1.1


@pytest.mark.parametrize("seed", range(5))
def test_calls_of_a_machine_that_others_use_are(seed: int) -> None:
    found = scatter(calls(0.020, 0.6, 75, seed))
    assert found is not None
    assert found.noise > NOISY
    assert found.smallest > 1.2


def test_short_calls_are_put_together_to_batches_first() -> None:
    rough = calls(0.0005, 0.2, 3000)
    found = scatter(rough)
    assert found is not None
    assert found.noise < NOISY  # forty calls to a batch even that out, as they do in a race


@pytest.mark.parametrize("few", [[], [1.0, 2.0], calls(0.020, 0.5, 19), calls(0.00001, 0.5, 660)])
def test_too_few_or_too_short_calls_say_nothing(few: list[float]) -> None:
    assert scatter(few) is None
