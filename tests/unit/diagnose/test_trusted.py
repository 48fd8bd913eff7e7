"""Times that may be far from the truth are left out: samples that scatter, a process that waits for the cores."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from compilot.diagnose import trusted
from compilot.diagnose.examination import Examination
from compilot.diagnose.graphs import costs
from compilot.diagnose.model import inspection
from compilot.workload import Workload

TWICE, CROWD = trusted.TWICE, trusted.Others.crowd  # as they are outside of tests
HERE, THERE = ("m.py", 3), ("m.py", 9)


@pytest.fixture(autouse=True)
def as_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit as it is outside of tests."""
    monkeypatch.setattr(trusted, "TWICE", TWICE)


class Net(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos()


@pytest.mark.parametrize(
    ("samples", "figure"),
    [
        ([1.0, 1.1, 1.2, 1.3, 1.4], 1.2),
        ([1.0, 1.1, 1.2, 1.3, 40.0], 1.2),  # one bad sample does not move the median
        ([1.0, 1.1, 8.0, 30.0, 40.0], None),
        ([1.0, 1.9], 1.45),
        ([1.0, 2.1], None),
        ([0.0, 0.0], 0.0),
        ([], None),
    ],
)
def test_the_median_is_left_out_where_the_middle_half_scatters(samples: list[float], figure: float | None) -> None:
    assert trusted.typical(samples) == figure


def test_the_quickest_counts_only_where_others_are_like_it() -> None:
    assert trusted.quickest([5.0, 1.0, 1.1, 9.0, 9.0]) == 1.0
    assert trusted.quickest([5.0, 1.0, 5.0, 9.0, 9.0]) is None
    assert trusted.quickest([]) is None


def _account(folder: Path, thread: str, ran: int, waited: int) -> None:
    (folder / thread).mkdir(exist_ok=True)
    (folder / thread / "schedstat").write_text(f"{ran} {waited} 7\n")


def test_a_process_that_waits_longer_than_it_runs_is_starved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trusted, "_THREADS", tmp_path)
    _account(tmp_path, "1", 100, 900)  # what was before does not count
    cores = trusted.Cores()
    _account(tmp_path, "1", 200, 950)
    _account(tmp_path, "2", 10, 30)
    assert not cores.starved()
    _account(tmp_path, "2", 10, 200)
    assert cores.starved()
    monkeypatch.setattr(trusted, "usable_cores", lambda: torch.get_num_threads() - 1)
    assert not cores.starved()  # its own threads wait for one another, as they always do


@pytest.mark.parametrize(("busy_s", "ours_s", "crowd"), [(19.0, 15.0, False), (19.0, 3.0, True), (4.0, 3.0, False)])
def test_others_that_take_more_than_half_of_the_cores_are_a_crowd(
    busy_s: float, ours_s: float, crowd: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten seconds on two cores."""
    read = iter([(100.0, 7.0, 5.0), (110.0, 7.0 + busy_s, 5.0 + ours_s)])
    monkeypatch.setattr(trusted, "_wall_busy_and_ours", lambda: next(read))
    monkeypatch.setattr(trusted, "usable_cores", lambda: 2)
    assert CROWD(trusted.Others()) is crowd


def test_our_own_work_and_that_of_our_children_is_not_the_work_of_others() -> None:
    before = trusted._wall_busy_and_ours()
    subprocess.run([sys.executable, "-c", "sum(range(10_000_000))"], check=True)
    after = trusted._wall_busy_and_ours()
    assert after[2] > before[2]
    assert after[1] - before[1] >= (after[2] - before[2]) * 0.5  # it is part of all work, counted in ticks


def test_without_an_account_of_the_threads_nothing_is_starved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trusted, "_THREADS", tmp_path / "none")
    assert not trusted.Cores().starved()


def test_a_break_whose_time_scatters_has_no_cost() -> None:
    samples = [{HERE: 1.0, THERE: seconds} for seconds in (1.0, 1.0, 5.0, 9.0, 9.0)]
    assert costs.typical(samples) == {HERE: 1.0}
    assert costs.places(samples) == [HERE, THERE]


def _examined() -> Examination:
    torch.compiler.reset()
    examination = Examination(Workload(Net(), examples=[(torch.ones(2, 4),), (torch.ones(3, 4),)]))
    examination.eager()
    examination.capture()
    examination.weigh()
    examination.drive()
    return examination


def test_a_doctor_that_gets_no_cores_gives_no_figures_and_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trusted.Cores, "starved", lambda self: True)
    report = _examined().report()
    assert report.eager_call_s is None
    (found,) = report.breaks
    assert (found.outside_s, found.fusion_s, found.per_call) == (None, None, 1)
    assert [one.compile_s for one in report.recompiles] == [None]
    assert {one.cost_s for one in report.findings} == {None}
    assert report.notes.count(trusted.LEFT_OUT) == 1


def test_a_doctor_that_has_the_machine_gives_all_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trusted.Cores, "starved", lambda self: False)
    monkeypatch.setattr(trusted, "TWICE", float("inf"))
    report = _examined().report()
    assert report.eager_call_s is not None
    assert [one.cost_s is not None for one in report.findings if one.where] == [True, True]
    assert trusted.LEFT_OUT not in report.notes


def test_eagers_time_in_a_run_is_left_out_where_it_cannot_be_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = Workload(nn.Linear(4, 4).eval(), (torch.ones(2, 4),))
    monkeypatch.setattr(trusted.Cores, "starved", lambda self: True)
    assert inspection._eager_call_s(workload) is None
    assert inspection.model_findings(workload, None) == ()
    (tiny,) = inspection.model_findings(workload, 20e-6)
    assert tiny.kind == "tiny-work"


class _SlowAtFirst(nn.Module):
    """Two calls of a millisecond, then calls of microseconds."""

    slow = 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if _SlowAtFirst.slow:
            _SlowAtFirst.slow -= 1
            time.sleep(1e-3)
        return x + 1


def test_a_tiny_call_is_timed_often_enough_that_its_first_calls_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trusted.Cores, "starved", lambda self: False)
    monkeypatch.setattr(_SlowAtFirst, "slow", 2)
    call_s = inspection._eager_call_s(Workload(_SlowAtFirst().eval(), (torch.ones(4),)))
    assert call_s is not None
    assert call_s < 1e-3
