"""A candidate that was paired with eager while something else used the machine is paired once more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from compilot.records import Candidate, Measurement, ProcessSamples, Settings
from compilot.trials import attempt
from compilot.trials.attempt import DISTURBED, Attempt, is_disturbed

QUIET = ((0.0055, 0.0030), (0.0061, 0.0031), (0.0057, 0.0029))
BUSY = ((0.015, 0.009), (0.279, 0.011), (0.118, 0.009))  # eager's threads wait for each other
CANDIDATE = Candidate(settings=Settings(engine="onnxruntime"), label="fast", rationale="")


def test_batches_that_scatter_are_told_from_those_of_a_quiet_machine() -> None:
    assert not is_disturbed(QUIET)
    assert is_disturbed(BUSY)
    assert is_disturbed([(one, other) for other, one in BUSY])  # whoever suffers
    assert not is_disturbed([(1.0, 1.0), (1.9, 1.0), (1.9, 1.0)])


class Raced:
    """Races that come out as they were told, one after the other."""

    def __init__(self, *results: Any) -> None:
        self.left: Iterator[Any] = iter(results)
        self.races = 0

    def __call__(self, arms: Any, **rules: Any) -> ProcessSamples:
        self.races += 1
        return ProcessSamples(rounds=next(self.left))


@pytest.mark.parametrize(
    ("results", "races", "kept", "doubts"),
    [
        ([QUIET], 0, QUIET, ()),
        ([BUSY, QUIET], 1, QUIET, ()),
        ([BUSY, BUSY], 1, BUSY, (DISTURBED,)),
    ],
)
def test_it_is_paired_once_more_and_doubted_where_that_does_not_help(
    results: Any, races: int, kept: Any, doubts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *others = results
    raced = Raced(*others)
    monkeypatch.setattr(attempt, "race", raced)
    one = paired(left_s=10.0)
    assert one._undisturbed([], first) == kept
    assert raced.races == races
    assert one.trial.measurement is not None
    assert one.trial.measurement.doubts == doubts


def test_there_is_no_second_time_where_the_trials_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    raced = Raced()
    monkeypatch.setattr(attempt, "race", raced)
    assert paired(left_s=-1.0)._undisturbed([], BUSY) == BUSY
    assert raced.races == 0


def paired(left_s: float) -> Attempt:
    """A trial that has come as far as its pairs with eager."""

    class Paired(Attempt):
        def __init__(self) -> None:
            measured = Measurement(cold_s=1.0, cold_cache=True)
            self.trial = attempt.Trial(candidate=CANDIDATE, state=attempt.State.OK, reason="", measurement=measured)

        def _left_s(self) -> float:
            return left_s

        def _screening_rules(self) -> Any:
            return {}

    return Paired()
