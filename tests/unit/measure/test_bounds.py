"""An integer that becomes a size or a count: eager is stopped, the case is dropped, the process goes on."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

import pytest
import torch
from judging import Function

from compilot.measure import bounds
from compilot.measure.bounds import bounded
from compilot.measure.correctness import make_reference
from compilot.workload import Workload
from compilot.workload.variations import cases


def test_memory_far_beyond_what_is_free_cannot_be_had_and_the_limit_is_put_back() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(RuntimeError, match="allocate memory"), bounded(0.1):
        torch.empty(2**37, dtype=torch.int8)
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    with bounded(0.1):
        assert torch.ones(1000).sum() == 1000


def test_a_python_loop_is_interrupted_and_the_handler_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "SECONDS", 0.2)
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(TimeoutError, match="no answer within"), bounded(0.0):
        for _ in range(2**62):  # it ends, so it was interrupted
            pass
    assert signal.getsignal(signal.SIGALRM) == before


def test_somebody_elses_alarm_is_put_back_with_what_is_left_of_it() -> None:
    def late(*_: object) -> None:
        raise AssertionError("nobody waits an hour for this")

    handler, left = signal.signal(signal.SIGALRM, late), signal.setitimer(signal.ITIMER_REAL, 3600.0)
    try:
        with bounded(0.1):
            pass
        assert signal.getsignal(signal.SIGALRM) is late
        assert 3000.0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 3600.0
    finally:
        signal.setitimer(signal.ITIMER_REAL, *left)
        signal.signal(signal.SIGALRM, handler)


@pytest.mark.parametrize(
    "fn",
    [
        lambda n: torch.arange(int(n.max())).sum(),
        lambda n: torch.zeros(int(n.abs().max()), 1000).sum(),
        lambda n: torch.repeat_interleave(torch.ones(len(n)), n).sum(),
        lambda n: torch.ones(3).expand(int(n[0]), 3).contiguous().sum(),
        lambda n: sum(torch.ones(1) for _ in range(int(n.max()))) * 1.0,
    ],
)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_sizes_and_counts_from_integers_are_dropped_or_answered_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fn: object, dtype: torch.dtype
) -> None:
    monkeypatch.setattr(bounds, "SECONDS", 0.5)
    monkeypatch.setattr(bounds, "MEMORY_SHARE", 0.02)
    load = Workload(Function(fn).eval(), torch.tensor([2, 5, 3], dtype=dtype))  # type: ignore[arg-type]
    reference = make_reference(load, cases(load), tmp_path)
    assert {"seed 1", "seed 2", "seed 3"} <= set(reference.cases)
    assert "integers at the limits" not in reference.cases
    assert any("case 'integers at the limits' dropped: eager raises" in note for note in reference.notes)
