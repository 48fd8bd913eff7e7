"""Calls in parts at run time: cut, answered by an engine for fewer rows, joined; fakes check what they are given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

from compilot._tree import Call
from compilot.engines import registry
from compilot.engines.protocol import Loaded, LoadRequest
from compilot.engines.traits import EngineTraits
from compilot.errors import FallbackWarning, PlanError
from compilot.inputs.layouts import fits
from compilot.records import (
    Candidate,
    DimRange,
    DynamicDim,
    Guard,
    OutputLayout,
    PaddedDim,
    PaddedInput,
    PaddedOutput,
    Padding,
    Settings,
    Shapes,
    SplitCalls,
)
from compilot.runtime.fast import Fast, attach_parts
from compilot.runtime.guards import make_guard
from compilot.runtime.padded_guards import ending_at, taken_by
from compilot.runtime.sources import EntryParts
from compilot.runtime.split_guards import engine_guard, taken_in_parts

pytestmark = pytest.mark.usefixtures("no_grad")
LARGEST = 12


class Watched:
    """Answers as the model does, only for calls that its guard takes, and remembers how many rows they had."""

    TRAITS = EngineTraits(version="1")

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.prepared: list[int] = []
        self.fails = False

    def load(self, request: LoadRequest) -> Loaded:
        wanted = request.guard.tensors

        def call(*args: Any, **kwargs: Any) -> Any:
            given = [part for value in args for part in (value.values() if isinstance(value, dict) else [value])]
            for tensor, want in zip(given, wanted, strict=True):
                for size, allowed in zip(tensor.shape, want.shape, strict=True):
                    assert allowed.min <= size <= allowed.max if isinstance(allowed, DimRange) else size == allowed
                assert fits(tensor.shape, tensor.stride(), want.order)
            if self.fails:
                raise RuntimeError("broken")
            self.rows.append(given[0].shape[0])
            return request.model(*args, **kwargs)

        def prepare(args: Any, kwargs: Any) -> Any:
            self.prepared.append(len(next(iter(args[0].values())) if isinstance(args[0], dict) else args[0]))
            return call(*args, **kwargs)

        return Loaded(call=call, prepare=prepare)


@pytest.fixture
def engine() -> Iterator[Watched]:
    one = Watched()
    registry.register("watched", None, one)
    yield one
    registry.unregister("watched")


class Rows(nn.Module):
    """Each row for itself: an output that is not contiguous, one with rows in its second dimension, one without."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 5)

    def forward(self, x):
        made = self.layer(x)
        turned = made.unsqueeze(1).expand(-1, 2, -1).contiguous().transpose(1, 2)
        return {
            "rows": made,
            "again": made,
            "turned": turned,
            "second": torch.stack([made, -made]),
            "flat": made.reshape(-1),
            "fixed": self.layer.bias + 0.0,
            "number": 7,
        }


OUTPUTS = (
    PaddedOutput(path="output['rows']", dim=0),
    PaddedOutput(path="output['again']", dim=0),
    PaddedOutput(path="output['turned']", dim=0),
    PaddedOutput(path="output['second']", dim=1),
    PaddedOutput(path="output['flat']", dim=0, times=5),
)
BATCH = PaddedDim(min=1, size=LARGEST, inputs=(PaddedInput(path="args[0]", dim=0),), outputs=OUTPUTS, in_parts=True)
LAYOUTS = (OutputLayout(path="output['turned']", order=(0, 2, 1)),)
CANDIDATE = Candidate(settings=Settings(engine="watched"), label="", rationale="")


def split(rows: int, least: int | None = None, **other: Any) -> SplitCalls:
    found = SplitCalls(rows=rows, min=least or rows + 1, batch=BATCH, layouts=LAYOUTS)
    return msgspec.structs.replace(found, **other)


def of_one_size(model: nn.Module, rows: int, **other: Any) -> EntryParts:
    """A program for one size: what is smaller is padded, what is larger is cut."""
    built = make_guard(model, Call((torch.ones(rows, 3),), {}), dynamic=(), shapes=Shapes.STATIC, grad=False)
    padding, rule = ending_at(Padding(dims=(BATCH,), layouts=LAYOUTS), [rows]), split(rows, **other)
    guard = taken_in_parts(taken_by(built, padding), rule)
    return EntryParts(CANDIDATE, guard, None, name=str(rows), padding=padding, split=rule)


def dynamic_guard(model: nn.Module, *args: Any) -> Guard:
    name = "x" if isinstance(args[0], torch.Tensor) else "batch.x"
    dims = (DynamicDim(input=name, dim=0, min=1, max=LARGEST),)
    return make_guard(model, Call(args, {}), dynamic=dims, shapes=Shapes.DYNAMIC, grad=False)


def of_all_sizes(model: nn.Module, rule: SplitCalls) -> EntryParts:
    return EntryParts(CANDIDATE, dynamic_guard(model, torch.ones(4, 3)), None, split=rule)


def same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    assert one["number"] == other["number"]
    assert one["rows"] is one["again"]
    for key in one.keys() - {"number"}:
        torch.testing.assert_close(one[key], other[key])
        assert one[key].stride() == other[key].stride()
        assert one[key].untyped_storage().nbytes() == other[key].untyped_storage().nbytes()


def test_calls_with_more_rows_than_the_program_are_answered_in_parts(engine):
    model = Rows().eval()
    fast = attach_parts(model, (of_one_size(model, 4),))
    for rows in range(1, LARGEST + 1):
        x = torch.randn(rows, 3)
        same(fast(x), model(x))
    assert set(engine.rows) == {4}  # smaller ones and what is left are padded
    assert len(engine.rows) == sum(-(-rows // 4) for rows in range(1, LARGEST + 1))
    assert engine.prepared == [4]
    stats = fast.stats()
    assert (stats.calls, stats.fast, stats.fallbacks, stats.compiles) == (LARGEST, LARGEST, {}, 1)


def test_a_program_for_all_sizes_has_parts_and_what_is_left(engine):
    model = Rows().eval()
    fast = attach_parts(model, (of_all_sizes(model, split(4, 8)),))
    for rows, parts in ((7, [7]), (8, [4, 4]), (11, [4, 4, 3]), (12, [4, 4, 4]), (8, [4, 4])):
        engine.rows.clear()
        x = torch.randn(rows, 3)
        same(fast(x), model(x))
        assert engine.rows == parts
    assert engine.prepared == [7, 4, 3]  # every size of a part once
    assert (fast.stats().fast, fast.stats().fallbacks) == (5, {})


def test_repeated_calls_take_the_hot_path_and_their_answers_share_no_memory(engine):
    model = Rows().eval()
    fast = attach_parts(model, (of_one_size(model, 4),))
    x = torch.randn(10, 3)
    answers = [fast(x) for _ in range(4)]
    for answer in answers:
        same(answer, model(x))
    assert len({answer["rows"].data_ptr() for answer in answers}) == 4
    assert fast.stats().fast == 4


def test_more_rows_than_were_proven_go_to_eager_whole(engine):
    model = Rows().eval()
    fast = attach_parts(model, (of_one_size(model, 4),))
    x = torch.randn(LARGEST + 1, 3)
    same(fast(x), model(x))
    assert engine.rows == []
    [reason] = fast.stats().fallbacks
    assert "13" in reason


def test_what_the_guard_does_not_take_goes_to_eager_whole(engine):
    model = Rows().eval().double()
    fast = attach_parts(model, (of_one_size(Rows().eval(), 4),))
    x = torch.randn(8, 3, dtype=torch.float64)
    same(fast(x), model(x))
    assert (engine.rows, fast.stats().fast) == ([], 0)


def test_an_engine_that_fails_in_a_part_leaves_the_whole_call_to_eager(engine):
    model = Rows().eval()
    fast = attach_parts(model, (of_one_size(model, 4),))
    fast(torch.ones(4, 3))
    engine.fails = True
    x = torch.randn(8, 3)
    with pytest.warns(FallbackWarning, match="broken"):
        answer = fast(x)
    same(answer, model(x))
    [reason] = fast.stats().fallbacks
    assert "broken" in reason


class TwoInputs(nn.Module):
    def forward(self, batch, shift):
        return batch["x"] + batch["y"] + shift


def test_inputs_in_containers_are_cut_and_those_without_rows_are_given_whole(engine):
    model = TwoInputs().eval()
    inputs = tuple(PaddedInput(path=f"args[0]['{name}']", dim=0) for name in "xy")
    batch = PaddedDim(min=1, size=LARGEST, inputs=inputs, outputs=(PaddedOutput(path="output", dim=0),), in_parts=True)
    example = {"x": torch.ones(4, 3), "y": torch.ones(4, 3)}, torch.ones(3)
    dims = tuple(DynamicDim(input=f"batch.{name}", dim=0, min=1, max=LARGEST) for name in "xy")
    guard = make_guard(model, Call(example, {}), dynamic=dims, shapes=Shapes.DYNAMIC, grad=False)
    rule = SplitCalls(rows=2, min=3, batch=batch)
    fast = attach_parts(model, (EntryParts(CANDIDATE, guard, None, split=rule),))
    x, y, shift = torch.randn(5, 3), torch.randn(5, 3), torch.randn(3)
    torch.testing.assert_close(fast({"x": x, "y": y}, shift), x + y + shift)
    assert engine.rows == [2, 2, 1]
    other = fast({"x": x, "y": torch.randn(1, 3)}, shift)  # eager broadcasts what nobody can cut
    assert other.shape == (5, 3)
    assert (fast.stats().fast, sum(fast.stats().fallbacks.values())) == (1, 1)


class Channels(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3)

    def forward(self, x):
        return self.conv(x)


@pytest.mark.parametrize("shape", [(8, 2, 5, 5), (8, 2, 3, 3), (8, 2, 5, 3)])
def test_channels_last_answers_have_eagers_strides(engine, shape):
    model = Channels().eval().to(memory_format=torch.channels_last)
    x = torch.randn(shape)  # the weights' layout is that of the answer
    eager = model(x)
    order = tuple(sorted(range(4), key=lambda dim: (-eager.stride()[dim], dim)))
    layouts = () if eager.is_contiguous() else (OutputLayout(path="output", order=order),)
    batch = msgspec.structs.replace(BATCH, outputs=(PaddedOutput(path="output", dim=0),))
    rule = SplitCalls(rows=4, min=5, batch=batch, layouts=layouts)
    fast = attach_parts(model, (EntryParts(CANDIDATE, dynamic_guard(model, x), None, split=rule),))
    torch.testing.assert_close(fast(x), eager)
    assert engine.rows == [4, 4]
    strides = zip(fast(x).stride(), eager.stride(), eager.shape, strict=True)
    assert all(one == two for one, two, size in strides if size > 1)


def other_guard(guard: Guard, low: int, high: int) -> Guard:
    tensor = guard.tensors[0]
    shape = (DimRange(min=low, max=high), *tensor.shape[1:])
    return msgspec.structs.replace(guard, tensors=(msgspec.structs.replace(tensor, shape=shape),))


@pytest.mark.parametrize(
    "rule",
    [
        split(4, 4),  # a part as large as the call
        split(0, 2),
        split(4, batch=msgspec.structs.replace(BATCH, inputs=(PaddedInput(path="args[0]", dim=1),))),
        split(4, batch=msgspec.structs.replace(BATCH, inputs=(PaddedInput(path="args[3]", dim=0),))),
        split(4, batch=msgspec.structs.replace(BATCH, inputs=())),
        split(4, batch=msgspec.structs.replace(BATCH, outputs=(OUTPUTS[0], OUTPUTS[0]))),  # rows against rows
        split(4, batch=msgspec.structs.replace(BATCH, outputs=(PaddedOutput(path="output", dim=0, plus=1),))),
    ],
)
def test_a_plan_that_cuts_what_cannot_be_cut_is_refused(rule):
    guard = dynamic_guard(Rows().eval(), torch.ones(4, 3))
    with pytest.raises(PlanError, match="cuts calls into parts"):
        engine_guard(guard, None, rule)


def test_a_guard_beyond_the_proof_other_parts_or_gradients_are_refused():
    model = Rows().eval()
    guard, rule = dynamic_guard(model, torch.ones(4, 3)), split(4)
    assert engine_guard(guard, None, rule) == guard
    with pytest.raises(PlanError, match="cuts calls into parts"):
        engine_guard(other_guard(guard, 1, LARGEST + 1), None, rule)
    with pytest.raises(PlanError, match="cuts calls into parts"):  # a rest of one row, and nothing fills it up
        engine_guard(other_guard(guard, 3, LARGEST), None, rule)
    with pytest.raises(PlanError, match="other parts than it pads"):
        engine_guard(guard, ending_at(Padding(dims=(BATCH,)), [3]), rule)
    with pytest.raises(PlanError, match="with gradients or in train mode"):
        engine_guard(msgspec.structs.replace(guard, grad_enabled=True), None, rule)
    turned = msgspec.structs.replace(guard.tensors[0], order=(1, 0))
    with pytest.raises(PlanError, match="cuts calls into parts"):
        engine_guard(msgspec.structs.replace(guard, tensors=(turned,)), None, rule)


def test_entries_of_several_sizes_and_parts_behind_one_look_up(engine):
    model = Rows().eval()
    small = make_guard(model, Call((torch.ones(1, 3),), {}), dynamic=(), shapes=Shapes.STATIC, grad=False)
    parts = (EntryParts(CANDIDATE, small, None, name="1"), of_one_size(model, 4))
    fast: Fast = attach_parts(model, parts)
    for rows in (1, 2, 4, 9, 1, 12):
        x = torch.randn(rows, 3)
        same(fast(x), model(x))
    assert {name: stats.fast for name, stats in fast.stats().entries.items()} == {"1": 2, "4": 4}
