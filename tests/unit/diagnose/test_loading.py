"""The input pipeline: how much of a step waits for data."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from compilot.diagnose.report_records import REPORT_SCHEMA, DoctorReport, InputPipeline
from compilot.diagnose.timing import loading
from compilot.diagnose.timing.findings import time_findings
from compilot.diagnose.timing.loading import measure_loading, sentence
from compilot.errors import InputError
from compilot.workload import Workload


class Clock:
    """Time that passes only where a loader says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        self.now += 1e-3  # a step takes some time
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(loading, "time", clock)
    return clock


class Slow(Dataset):  # type: ignore[type-arg]
    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> torch.Tensor:
        self.clock.now += 0.005
        return torch.zeros(4)


def _workload(loader: object) -> Workload:
    return Workload(nn.Linear(4, 4), (torch.zeros(2, 4),), loader=loader)


def test_a_slow_loader_is_named_with_its_share(clock: Clock) -> None:
    workload = _workload(DataLoader(Slow(clock), batch_size=2))
    found = measure_loading(workload, workload.call)
    assert found is not None
    assert found.steps == 5  # the first of six batches is not counted
    assert 0.5 < found.load_s / found.step_s < 1
    assert found.because.endswith("of the step; compiling will not help")


def test_a_function_may_make_the_batches() -> None:
    def batches() -> Iterator[int]:
        yield from range(4)

    workload = _workload(batches)
    found = measure_loading(workload, workload.call)
    assert found is not None
    assert found.steps == 3


def test_one_batch_is_nothing_to_time_and_no_loader_is_no_finding() -> None:
    workload = _workload([torch.zeros(1)])
    found = measure_loading(workload, workload.call)
    assert found is not None
    assert found.because == "the loader gave one batch and ended; nothing to time"
    found = measure_loading(_workload([]), workload.call)
    assert found is not None
    assert found.because == "the loader gave no batch at all and ended; nothing to time"
    plain = Workload(nn.Linear(4, 4), (torch.zeros(2, 4),))
    assert measure_loading(plain, plain.call) is None


@pytest.mark.parametrize(("first_s", "batch_s", "steps"), [(60.0, 0.01, loading.STEPS), (60.0, 30.0, 1)])
def test_a_slow_first_batch_hides_nothing(first_s: float, batch_s: float, steps: int, clock: Clock) -> None:
    def batches() -> Iterator[int]:
        for number in range(100):
            clock.now += batch_s if number else first_s
            yield number

    workload = _workload(batches)
    found = measure_loading(workload, workload.call)
    assert found is not None
    assert found.steps == steps
    assert found.load_s == pytest.approx(batch_s, abs=0.01)
    assert "compiling will not help" in found.because
    assert ("only 1 step was looked at" in found.because) == (steps == 1)


def test_a_loader_must_be_iterable_or_a_function() -> None:
    with pytest.raises(InputError, match="DataLoader"):
        _workload(3)


@pytest.mark.parametrize(
    ("wait", "said"),
    [(7.0, "70 % of the step; compiling will not help"), (2.0, "20 % of the step"), (0.1, "the loader keeps up")],
)
def test_what_the_share_means(wait: float, said: str) -> None:
    assert said in sentence(wait, 10.0)


def test_data_loading_becomes_a_finding_with_its_cost() -> None:
    pipeline = InputPipeline(load_s=0.07, step_s=0.1, because=sentence(0.07, 0.1), steps=10)
    report = DoctorReport(schema=REPORT_SCHEMA, compilot="0", created="", label="Net", input_pipeline=pipeline)
    (finding,) = time_findings(report)
    assert (finding.kind, finding.cost_s) == ("data-loading", 0.07)
    assert "num_workers" in finding.advice
