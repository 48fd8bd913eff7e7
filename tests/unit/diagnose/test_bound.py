"""What bounds the work: shares, operators, submodules, and the roof above them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import torch
from torch import nn

from compilot._torch.opwatch import Dispatch, Op, dispatch_cost, watch
from compilot._tree import Call
from compilot.diagnose.report_records import REPORT_SCHEMA, DoctorReport
from compilot.diagnose.timing import machine_peaks as peaks_module
from compilot.diagnose.timing import submodules
from compilot.diagnose.timing.bound import _quickest, judge, look, work_of
from compilot.diagnose.timing.findings import time_findings
from compilot.diagnose.timing.machine_peaks import Peaks, best_of, machine_peaks, measure_peaks
from compilot.diagnose.timing.roofline import Work, roof_s, roofline
from compilot.diagnose.timing.submodules import submodule_times
from compilot.records import Precision
from compilot.workload import Workload

PEAKS = Peaks(flops_per_s=100e9, bandwidth_bytes_per_s=20e9, dtype="float32", threads=2)


DISPATCH = Dispatch(watched_s=2e-6, between_s=10e-6, plain_s=1e-6)


def _op(name: str, wall_s: float, flops: float = 0.0, moved: int = 0, before_s: float = 10e-6) -> Op:
    return Op(name, before_s, wall_s, flops, ((1, moved),), 0)


def test_a_model_of_tiny_operators_is_bound_by_overhead() -> None:
    ops = [_op("aten.add", 3e-6, flops=10, moved=120)] * 10
    bound = judge(ops, eager_s=40e-6, dispatch=DISPATCH, peaks=PEAKS)
    assert bound.limited_by == "overhead"
    assert bound.overhead_share == 1.0
    assert bound.advice.startswith("tiny work: leave it eager")


def test_large_copies_are_bound_by_memory_and_products_by_compute() -> None:
    add = _op("aten.add", 10e-3, flops=25e6, moved=200_000_000)
    mm = _op("aten.mm", 2e-3, flops=180e6, moved=1_000_000, before_s=1.01e-3)
    bound = judge([add, mm], eager_s=13e-3, dispatch=DISPATCH, peaks=PEAKS)
    assert bound.limited_by == "memory"
    assert {row.name: row.limited_by for row in bound.operators} == {"aten.add": "memory", "aten.mm": "compute"}
    assert bound.memory_share + bound.compute_share + bound.overhead_share == pytest.approx(1.0)
    assert bound.overhead_share == pytest.approx(1 / 13, rel=0.02)
    assert "lower precision" in bound.advice


@pytest.mark.measures
def test_time_between_operators_is_overhead_but_watching_is_not() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    x = torch.zeros(2, 4)
    dispatch_cost()  # the first operators of a process cost more than all later ones
    watch(lambda: model(x))
    cost = dispatch_cost()
    assert cost.plain_s < cost.watched_s + cost.between_s
    ops = _quickest(lambda call: model(*call.args), Call((x,), {})).ops  # another program may hold up any one call
    bound = judge(ops, 20e-6, cost, PEAKS)
    assert bound.limited_by == "overhead"
    slow = [ops[0], ops[1]._replace(before_s=1.0), *ops[2:]]
    assert judge(slow, 1.0, cost, PEAKS).overhead_share > 0.99


def test_operators_are_counted_with_their_flops_and_bytes() -> None:
    a, b = torch.randn(8, 16), torch.randn(16, 4)
    table = torch.randn(1000, 16)

    def call() -> torch.Tensor:
        return torch.nn.functional.embedding(torch.tensor([1, 2]), table) @ b.view(16, 4) + (a @ b)[:2]

    ops, answer = watch(call)
    by_name = {op.name: op for op in ops}
    assert [op.flops for op in ops if op.name == "aten.mm"] == [2 * 2 * 16 * 4, 2 * 8 * 16 * 4]
    assert by_name["aten.embedding"].bytes < 1000  # two rows of the table, not the table
    assert by_name["aten.view"].bytes == 0
    outside = {a.untyped_storage().data_ptr(), b.untyped_storage().data_ptr()}
    work = work_of(ops, outside, answer)
    assert work.least_bytes == 4 * (8 * 16 + 16 * 4 + 2 * 4)
    assert work.bytes > work.least_bytes


def test_attention_and_recurrent_layers_count_their_products() -> None:
    q = torch.randn(2, 4, 16, 8)
    lstm = nn.LSTM(8, 16, bidirectional=True)
    with torch.no_grad():
        attention, _ = watch(lambda: nn.functional.scaled_dot_product_attention(q, q, q))
        recurrent, _ = watch(lambda: lstm(torch.randn(5, 3, 8)))
    assert sum(op.flops for op in attention) == 2 * (2 * 2 * 4 * 16 * 16 * 8)  # q k and the product with v
    layers = [op.flops for op in recurrent if op.name == "aten.mkldnn_rnn_layer"]
    assert layers == [2 * 5 * 3 * 4 * 16 * (8 + 16)] * 2  # four gates, both directions


def test_a_cache_does_not_grow_from_call_to_call() -> None:
    class Cache:
        seen = 0

    class Net(nn.Module):
        def forward(self, x: torch.Tensor, cache: Cache) -> torch.Tensor:
            cache.seen += 1
            assert cache.seen == 1
            return x + 1

    workload = Workload(Net(), (torch.randn(4), Cache()))
    assert look(workload, workload.call, PEAKS).eager_s > 0


class Clock:
    """Stands for the module `time`; only `Takes` makes it go on."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


class Takes(nn.Module):
    """Takes some seconds itself, then runs its parts."""

    def __init__(self, clock: Clock, seconds: float, *parts: nn.Module) -> None:
        super().__init__()
        self.clock, self.seconds, self.parts = clock, seconds, nn.ModuleList(parts)

    def forward(self) -> None:
        self.clock.now += self.seconds
        for part in self.parts:
            part()


def test_time_in_a_child_is_not_its_parents_own(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(submodules, "time", clock)
    model = Takes(clock, 1, Takes(clock, 2), Takes(clock, 4, Takes(clock, 8)))
    assert [(one.path, one.wall_s, one.own_s) for one in submodule_times(model, model)] == [
        ("parts.1.parts.0", 8.0, 8.0),
        ("parts.1", 12.0, 4.0),
        ("parts.0", 2.0, 2.0),
        ("", 15.0, 1.0),
    ]
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_look_at_a_real_model_adds_up() -> None:
    workload = Workload(nn.Sequential(nn.Linear(512, 512), nn.ReLU()), (torch.randn(64, 512),))
    seen = look(workload, workload.call, PEAKS)
    assert seen.work.flops == pytest.approx(2 * 64 * 512 * 512, rel=0.01)
    assert seen.bound.overhead_share + seen.bound.memory_share + seen.bound.compute_share == pytest.approx(1.0)
    assert seen.bound.operators[0].name == "aten.addmm"
    assert {one.path for one in seen.bound.submodules} == {"", "0", "1"}


def test_the_roof_is_the_higher_of_compute_and_memory_time() -> None:
    assert roof_s(Work(100e9, 1e9, 1e6), 100e9, 20e9) == 1.0
    assert roof_s(Work(1e6, 9e9, 2e9), 100e9, 20e9) == 0.1
    roof = roofline(Work(50e9, 9e9, 2e9), 100e9, 20e9, 1.0, None, "float32")
    (eager,) = roof.points
    assert (eager.label, eager.roof_share, eager.flops_per_s) == ("eager", 0.5, 50e9)


def test_a_plan_stands_beside_eager_with_its_proven_ratio(small_run: object) -> None:
    plan = small_run.plan  # type: ignore[attr-defined]
    entry = plan.entries[0]
    proven = msgspec.structs.replace(entry.evidence.versus_compile, ratio=2.0)
    evidence = msgspec.structs.replace(entry.evidence, versus_eager=proven, p50_s=0.01)
    plan = msgspec.structs.replace(plan, entries=(msgspec.structs.replace(entry, evidence=evidence),))
    roof = roofline(Work(50e9, 9e9, 2e9), 100e9, 20e9, 1.0, plan, "float32")
    assert [(point.label, point.call_s, point.roof_share) for point in roof.points] == [
        ("eager", 1.0, 0.5),
        ("inductor freezing", 0.5, 1.0),
    ]


def test_a_plan_in_a_lower_precision_is_not_held_against_this_roof(small_run: object) -> None:
    plan = small_run.plan  # type: ignore[attr-defined]
    entry = plan.entries[0]
    lower = msgspec.structs.replace(entry.candidate.settings, precision=Precision.BF16)
    candidate = msgspec.structs.replace(entry.candidate, settings=lower)
    evidence = msgspec.structs.replace(entry.evidence, p50_s=0.25)
    entry = msgspec.structs.replace(entry, candidate=candidate, evidence=evidence)
    plan = msgspec.structs.replace(plan, entries=(entry,))
    roof = roofline(Work(50e9, 9e9, 2e9), 100e9, 20e9, 1.0, plan, "float32")
    assert [(point.call_s, point.roof_share) for point in roof.points] == [(1.0, 0.5), (0.25, None)]
    report = DoctorReport(schema=REPORT_SCHEMA, compilot="0", created="", label="Net", roofline=roof)
    assert time_findings(report) == []  # half of the roof: eager is not near it, and nobody knows of the plan


def test_peaks_are_measured_once_per_machine_and_thread_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[torch.dtype] = []

    def fake(dtype: torch.dtype) -> Peaks:
        measured.append(dtype)
        return msgspec.structs.replace(PEAKS, dtype=str(dtype))

    monkeypatch.setattr(peaks_module, "measure_peaks", fake)
    first = machine_peaks(folder=tmp_path)
    assert machine_peaks(folder=tmp_path) == first
    assert len(measured) == 1
    machine_peaks(torch.bfloat16, folder=tmp_path)
    (tmp_path / "damaged").mkdir()
    for file in tmp_path.glob("*.json"):
        file.write_bytes(b"{")
    assert machine_peaks(folder=tmp_path) == first  # a damaged file is measured anew
    assert len(measured) == 3


def test_peaks_of_a_busy_moment_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks_module, "measure_peaks", lambda dtype: msgspec.structs.replace(PEAKS, busy=True))
    assert machine_peaks(folder=tmp_path).busy
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("core_share", "busy"), [(0.9, False), (0.6, True)])
def test_a_copy_without_its_core_for_itself_is_a_busy_moment(
    core_share: float, busy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peaks_module, "COPY_BYTES", 2**12)
    monkeypatch.setattr(peaks_module, "measure_flops", lambda dtype: (1e9, 1.0))
    clock = Clock()
    monkeypatch.setattr(peaks_module, "best_of", lambda work, repeats: setattr(clock, "now", 2.0) or 1.0)
    monkeypatch.setattr(clock, "thread_time", lambda: core_share * clock.now, raising=False)
    monkeypatch.setattr(peaks_module, "time", clock)
    assert measure_peaks().busy is busy


@pytest.mark.measures
def test_the_roof_agrees_with_a_plain_measurement() -> None:
    """A big product and a copy of 1 GiB beside ours; noise only lowers, so both sides keep their best."""
    size = 2048
    a, b = torch.rand(size, size), torch.rand(size, size)
    source = torch.ones(2**28)
    target = torch.zeros_like(source)
    ours = plain = (0.0, 0.0)
    for _ in range(30):  # a quiet machine needs one
        peaks = measure_peaks()
        ours = (max(ours[0], peaks.flops_per_s), max(ours[1], peaks.bandwidth_bytes_per_s))
        product_s, copy_s = best_of(lambda: a @ b, 2), best_of(lambda: target.copy_(source), 2)
        plain = (max(plain[0], 2 * size**3 / product_s), max(plain[1], 2**31 / copy_s))
        if all(abs(x / y - 1) < 0.2 for x, y in zip(ours, plain, strict=True)):
            return
    assert ours == pytest.approx(plain, rel=0.2)
