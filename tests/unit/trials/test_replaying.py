"""How a replay is cut into windows, and how often an arm answers one in its turn."""

from __future__ import annotations

import pytest

from compilot.records import ProcessSamples
from compilot.trials import replaying
from compilot.trials.protocol import RequestsTimed, TimeRequests
from compilot.trials.replaying import LONGEST_WINDOW, MOST_PASSES, WINDOW_S, passes_of, window_of
from compilot.trials.runner import ReplayRules


class Answering:
    """A worker whose requests all take the same time."""

    def __init__(self, request_s: float) -> None:
        self.request_s, self.asked = request_s, list[TimeRequests]()

    def ask(self, request: TimeRequests, *_: object, **__: object) -> RequestsTimed:
        self.asked.append(request)
        return RequestsTimed(seconds=(self.request_s,) * min(request.count, 96 - request.first))

    def settle(self) -> bool:
        return True


def timed(*seconds: float) -> tuple[ProcessSamples, list[Answering]]:
    """96 requests over arms of these speeds, eager first."""
    workers = [Answering(one) for one in seconds]
    return replaying.timed(workers, 96, ReplayRules(96), lambda done, total: None), workers  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "must", lambda child, reply: reply)


@pytest.mark.parametrize("request_s", [0.0005, 0.001, 0.005, 0.05])
def test_every_turn_of_every_arm_is_long_enough_for_a_clock(request_s: float) -> None:
    samples, workers = timed(request_s, request_s / 3)
    assert len(samples.rounds) == 96
    for worker in workers:
        turns = worker.asked[1:]  # the first one calibrates
        assert len(turns) == 96 / samples.window
        assert all(turn.count * turn.passes * worker.request_s >= WINDOW_S * 0.999 for turn in turns)


def test_the_width_of_the_windows_is_kept_with_the_samples() -> None:
    assert timed(0.001)[0].window == LONGEST_WINDOW
    assert timed(0.010)[0].window == 2


def test_passes_are_bounded_and_a_short_trace_has_short_windows() -> None:
    assert passes_of(1e-9, 1) == MOST_PASSES
    assert passes_of(1.0, 1) == 1
    assert window_of(1e-6, 24) == 4
    assert window_of(1e-6, 3) == 1
