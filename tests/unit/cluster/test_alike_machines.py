"""Which machines may share a model's candidates."""

from __future__ import annotations

import random

import msgspec

from compilot.cluster.alike import likeness, machine_words, ratio_interval, same_kind
from compilot.engines.eager.build import EAGER
from compilot.records import Measurement, State, Trial
from compilot.testing.runner import fake_fingerprint


def eager(seconds: float, noise: float = 0.02, calls: int = 60, seed: int = 0) -> Trial:
    draw = random.Random(seed)
    times = tuple(seconds * draw.lognormvariate(0.0, noise) for _ in range(calls))
    return Trial(
        candidate=EAGER, state=State.OK, reason="", measurement=Measurement(cold_s=0.1, cold_cache=True, call_s=times)
    )


def test_equal_machines_with_equal_times_share() -> None:
    found = likeness(fake_fingerprint(), eager(0.01), fake_fingerprint(), eager(0.01, seed=1))
    assert found.used
    assert found.low is not None
    assert found.high is not None
    assert 0.97 < found.low < 1.0 < found.high < 1.03
    assert found.because.startswith("eager takes 0.9")


def test_a_slower_machine_of_the_same_kind_does_not() -> None:
    found = likeness(fake_fingerprint(), eager(0.01), fake_fingerprint(), eager(0.013, seed=1))
    assert not found.used
    assert found.because.endswith("times as long as on the first node, which may be more than 10 % apart")


def test_times_that_scatter_so_much_that_nothing_is_known_do_not() -> None:
    first, other = eager(0.01, noise=0.9, calls=8), eager(0.01, noise=0.9, calls=8, seed=1)
    assert not likeness(fake_fingerprint(), first, fake_fingerprint(), other).used


def test_another_fingerprint_is_named() -> None:
    mine = fake_fingerprint()
    other = msgspec.structs.replace(mine, machine=msgspec.structs.replace(mine.machine, cores=4))
    found = likeness(mine, eager(0.01), other, eager(0.01))
    assert not found.used
    assert found.because == "its fingerprint is another one (cores 4 instead of 2)"
    assert not same_kind(mine.machine, other.machine)
    changed = msgspec.structs.replace(mine, model=msgspec.structs.replace(mine.model, code_sha256="1"))
    assert "the model is not the same there" in likeness(mine, eager(0.01), changed, eager(0.01)).because
    assert machine_words(mine.machine, mine.machine) == "the model is not the same there"


def test_too_few_calls_are_too_few() -> None:
    assert ratio_interval([0.01] * 4, [0.01] * 50) is None
    few = likeness(fake_fingerprint(), eager(0.01, calls=3), fake_fingerprint(), eager(0.01))
    assert not few.used
