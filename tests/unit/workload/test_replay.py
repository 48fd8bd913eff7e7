"""The requests of a trace as the unit of work: the same calls in the same order, whoever answers them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor, nn

import compilot
from compilot.errors import InputError
from compilot.records import CallSizes, DimRange, Kind
from compilot.traces.sampling import sample
from compilot.workload import Workload
from compilot.workload.replay import Replay, declared_by, replayed
from compilot.workload.shipping import ship, unship

CALLS = [CallSizes(line=n, sizes={"x:0": size, "x:1": 3}) for n, size in enumerate([4, 9, 4, 1], 1)]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, ...]] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(tuple(x.shape))
        return x + 1


@pytest.fixture
def workload() -> Workload:
    return Workload(Net().eval(), (torch.ones(2, 3),))


def test_a_pass_makes_every_request_in_order(workload: Workload) -> None:
    found = replayed(workload, CALLS)
    unit = found.unit(workload.model)
    assert isinstance(unit, Replay)
    assert (unit.calls, found.ref.kind) == (4, Kind.TRACE)
    unit.call()
    assert workload.model.seen == [(4, 3), (9, 3), (4, 3), (1, 3)]


def test_the_seconds_of_each_request_come_in_the_same_order(workload: Workload) -> None:
    ticks = itertools.count()
    unit = replayed(workload, CALLS).unit(workload.model)
    assert isinstance(unit, Replay)
    assert unit.time_some(0, 4, clock=lambda: float(next(ticks))) == (1.0, 1.0, 1.0, 1.0)
    assert workload.model.seen == [(1, 3), (4, 3), (9, 3), (4, 3), (1, 3)]  # the one before them is not timed


def test_a_part_of_the_requests_and_every_size_once(workload: Workload) -> None:
    unit = replayed(workload, CALLS).unit(workload.model)
    assert isinstance(unit, Replay)
    assert len(unit.time_some(1, 2)) == 2
    assert workload.model.seen == [(4, 3), (9, 3), (4, 3)]
    workload.model.seen.clear()
    unit.once()
    assert workload.model.seen == [(4, 3), (9, 3), (1, 3)]


def test_a_trace_may_declare_what_varies_and_leave_the_work_as_it_is(workload: Workload) -> None:
    found = declared_by(workload, CALLS)
    assert found.kind is Kind.INFERENCE
    assert [call.args[0].shape for call in found.examples] == [(2, 3)]
    assert [(dim.dim, dim.min, dim.max) for dim in found.dynamic] == [(0, 1, 9)]
    assert found.notes == ["x:0 varies in the trace and is not declared; its range there, 1..9, is used"]


def test_two_arms_get_equal_inputs_and_equal_sizes_share_them(workload: Workload) -> None:
    one, two = (replayed(workload, CALLS) for _ in range(2))
    for left, right in zip(one.examples, two.examples, strict=True):
        assert torch.equal(left.args[0], right.args[0])
    assert one.replay_order == (1, 2, 1, 3)
    assert (workload.samples_per_call(), one.samples_per_call()) == (2, None)  # requests have batches of their own
    assert one.call is workload.call  # guards and builds begin with the user's own example


def test_ranges_come_from_the_whole_trace_with_a_note(workload: Workload) -> None:
    found = replayed(workload, CALLS, {"x:0": DimRange(min=1, max=500), "x:1": DimRange(min=3, max=3)})
    assert [(dim.input, dim.dim, dim.min, dim.max) for dim in found.dynamic] == [("x", 0, 1, 500)]
    assert found.notes == ["x:0 varies in the trace and is not declared; its range there, 1..500, is used"]
    assert workload.dynamic == ()  # the workload itself is not changed
    assert workload.kind is Kind.INFERENCE


def test_what_the_calls_change_is_put_back(workload: Workload) -> None:
    found = replayed(workload, CALLS)
    with found.unit(lambda x: x.add_(1)).restored() as unit:
        before = [call.args[0].clone() for call in found.examples]
        unit.call()
        assert not torch.equal(before[1], found.examples[1].args[0])
    assert all(torch.equal(kept, call.args[0]) for kept, call in zip(before, found.examples, strict=True))


def test_a_sample_of_a_trace_is_replayed(workload: Workload) -> None:
    trace = compilot.read_trace([{"x:0": 1 + number % 5} for number in range(1000)])
    calls = sample(trace, 20, seed=1)
    replayed(workload, calls).unit(workload.model).call()
    assert sorted(workload.model.seen) == sorted([(size, 3) for size in range(1, 6)] * 4)


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ({"y:0": 4}, "line 7 of the shape trace: no dimension 'y:0' is declared"),
        ({"x:5": 4}, "line 7 of the shape trace: no dimension 'x:5' is declared"),
    ],
)
def test_names_that_no_input_has_are_refused(sizes: dict[str, int], told: str, workload: Workload) -> None:
    with pytest.raises(InputError) as problem:
        replayed(workload, [CallSizes(line=7, sizes=sizes)])
    assert told in str(problem.value)
    with pytest.raises(InputError, match="no calls to replay"):
        replayed(workload, [])


class Optional(nn.Module):
    def forward(self, batch: dict[str, Tensor], mask: Tensor | None = None) -> Tensor:
        return sum(batch.values(), torch.zeros(()))


def test_an_input_of_a_recorded_trace_that_the_example_lacks_is_left_out_with_a_note(tmp_path: Path) -> None:
    model, file = Optional().eval(), tmp_path / "sizes.jsonl"
    with compilot.record(model, file) as served:
        served({"a key": torch.ones(2, 3)})
        served({"a key": torch.ones(9, 3)}, mask=torch.ones(9))
    calls = compilot.read_trace(file).first
    found = replayed(Workload(model, ({"a key": torch.ones(4, 3)},)), calls)
    assert [tuple(call.args[0]["a key"].shape) for call in found.examples] == [(4, 3), (2, 3), (9, 3)]
    assert found.notes == [
        "the example lacks mask, which calls of the trace have; these sizes are left out",
        "batch.a key:0 varies in the trace and is not declared; its range there, 2..9, is used",
    ]
    found.unit(model).call()


class Masked(nn.Module):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return x if mask is None else x * mask[:, None]


def test_recorded_calls_without_an_input_of_the_example_are_told(tmp_path: Path) -> None:
    model, file = Masked().eval(), tmp_path / "sizes.jsonl"
    with compilot.record(model, file) as served:
        for size in (2, 9, 5):
            served(torch.ones(size, 3), torch.ones(size) if size == 5 else None)
    calls, example = compilot.read_trace(file).first, (torch.ones(4, 3), torch.ones(4))
    found = declared_by(Workload(model, example), calls)
    assert "2 of 3 calls of the trace are without mask, which the example has; they are made with it" in found.notes
    assert not any("are without" in note for note in declared_by(Workload(model, example), calls[2:]).notes)
    plain = [CallSizes(line=1, sizes={"x:0": 5})]  # written by hand: what it does not name is the example's
    assert not any("are without" in note for note in declared_by(Workload(model, example), plain).notes)


def test_empty_calls_are_left_out_and_do_not_widen_a_range(workload: Workload) -> None:
    calls = [CallSizes(line=n, sizes={"x:0": size, "x:1": 3}) for n, size in enumerate([4, 0, 9, 0], 1)]
    found = replayed(workload, calls)
    assert [(dim.dim, dim.min, dim.max) for dim in found.dynamic] == [(0, 1, 9)]
    found.unit(workload.model).call()
    assert workload.model.seen == [(4, 3), (9, 3)]
    again = replayed(workload.with_dynamic(found.dynamic), calls)  # as a process that is opened later does it
    assert len(again.replay_order) == 2
    single = Workload(Net().eval(), (torch.ones(1, 3),))
    one = replayed(single, [CallSizes(line=1, sizes={"x:0": 1}), CallSizes(line=2, sizes={"x:0": 0})])
    assert (one.dynamic, len(one.replay_order)) == ((), 1)  # nothing varies but by being empty
    with pytest.raises(InputError, match="every call of the trace has an empty input"):
        replayed(workload, [calls[1]])


def test_empty_inputs_that_are_declared_or_the_examples_own_are_calls_like_others() -> None:
    empty = CallSizes(line=1, sizes={"x:0": 0, "x:1": 3})
    declared = Workload(Net().eval(), (torch.ones(2, 3),), dynamic={"x": {0: (0, 8)}})
    assert len(replayed(declared, [empty]).replay_order) == 1
    cache = Workload(Net().eval(), (torch.ones(0, 3),))
    assert [(dim.min, dim.max) for dim in declared_by(cache, [empty, *CALLS]).dynamic] == [(0, 9)]


def test_a_request_around_the_model_is_not_replayed_and_a_note_says_so() -> None:
    def request(call: Any, item: Tensor) -> Tensor:
        return call(item).sum()

    whole = Workload(Net().eval(), request=request, items=[torch.ones(2, 3)])
    note = "the request around the model is not replayed: calls of a trace are timed without it"
    assert note in declared_by(whole, CALLS).notes
    assert replayed(whole, CALLS).kind is Kind.TRACE
    assert note not in declared_by(whole.with_examples([whole.call]), CALLS).notes


def test_a_recorded_trace_of_other_inputs_or_of_another_rank_is_refused(workload: Workload) -> None:
    with pytest.raises(InputError, match=r"the trace has sizes of y only, and the example has other inputs: x:0, x:1"):
        replayed(workload, [CallSizes(line=7, sizes={"y:0": 4, "y:1": 3}, recorded=True)])
    with pytest.raises(InputError, match=r"line 7 of the shape trace: no dimension 'x:2' is declared"):
        replayed(workload, [CallSizes(line=7, sizes={"x:0": 2, "x:1": 3, "x:2": 5}, recorded=True)])


def test_a_size_outside_the_declared_range_is_refused(workload: Workload) -> None:
    declared = workload.with_dynamic(compilot.Workload(Net(), (torch.ones(2, 3),), dynamic={"x": {0: (1, 8)}}).dynamic)
    with pytest.raises(InputError, match=r"size 9 of x:0 is outside its declared range 1\.\.8"):
        replayed(declared, CALLS)


def test_a_shipment_brings_its_trace_along(workload: Workload, tmp_path: Path) -> None:
    shipment = ship(workload, tmp_path)
    there = unship(
        msgspec.structs.replace(shipment, replay=tuple(CALLS), replay_ranges={"x:0": DimRange(min=1, max=9)})
    )
    there.unit(there.model).call()
    assert there.model.seen == [(4, 3), (9, 3), (4, 3), (1, 3)]
    assert [(dim.min, dim.max) for dim in there.dynamic] == [(1, 9)]
    assert unship(shipment).kind is Kind.INFERENCE


def test_the_seconds_of_a_request_are_the_mean_of_its_passes(workload: Workload) -> None:
    ticks = iter([0.0, 1.0, 1.0, 3.0, 3.0, 6.0, 6.0, 10.0])  # of two requests, 1 and 2 seconds, then 3 and 4
    unit = replayed(workload, CALLS).unit(workload.model)
    assert isinstance(unit, Replay)
    assert unit.time_some(0, 2, 2, clock=lambda: next(ticks)) == (2.0, 3.0)
