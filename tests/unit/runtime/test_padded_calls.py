"""Padded entries at run time: filled up, answered at one size, cut back; a fake engine that takes nothing else."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator

import msgspec
import pytest
import torch
from torch import nn

from compilot._tree import Call
from compilot.engines import registry
from compilot.engines.protocol import Loaded, LoadRequest
from compilot.engines.traits import EngineTraits
from compilot.errors import PlanError
from compilot.records import (
    Candidate,
    DimRange,
    Guard,
    IndexRange,
    MaskRule,
    OutputLayout,
    PaddedDim,
    PaddedInput,
    PaddedOutput,
    Padding,
    Settings,
    SizeOf,
    SplitCalls,
)
from compilot.runtime.fast import Fast, attach_parts
from compilot.runtime.guards import make_guard
from compilot.runtime.padded_guards import built_for, taken_by
from compilot.runtime.sources import EntryParts
from compilot.runtime.split_guards import taken_in_parts

pytestmark = pytest.mark.usefixtures("no_grad")


class OneSize:
    """Answers as the model does, and only at the sizes it was built for."""

    TRAITS = EngineTraits(version="1")

    def __init__(self) -> None:
        self.prepared = 0
        self.answered = 0

    def load(self, request: LoadRequest) -> Loaded:
        built = [tensor.shape for tensor in request.guard.tensors]
        strides = [tensor.stride for tensor in request.guard.tensors]
        assert not any(isinstance(size, DimRange) for shape in built for size in shape)

        def call(*args, **kwargs):
            given = [*args, *kwargs.values()]
            given = [part for value in given for part in (value.values() if isinstance(value, dict) else [value])]
            assert [tuple(tensor.shape) for tensor in given] == built
            assert [tensor.stride() for tensor in given] == strides
            self.answered += 1
            return request.model(*args, **kwargs)

        def prepare(args, kwargs):
            self.prepared += 1
            return call(*args, **kwargs)

        return Loaded(call=call, prepare=prepare)


@pytest.fixture
def engine() -> Iterator[OneSize]:
    one = OneSize()
    registry.register("one size", None, one)
    yield one
    registry.unregister("one size")


def entry(model: nn.Module, padding: Padding, *args, name: str = "", **kwargs) -> EntryParts:
    """args: of the built sizes."""
    built = make_guard(model, Call(args, kwargs), dynamic=(), shapes=Settings().shapes, grad=False)
    candidate = Candidate(settings=Settings(engine="one size"), label="", rationale="")
    return EntryParts(candidate, taken_by(built, padding), None, name=name, padding=padding)


class Rows(nn.Module):
    """Each row for itself; the second output is not contiguous."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 5)

    def forward(self, x):
        made = self.layer(x)
        return {"rows": made, "turned": made.unsqueeze(1).expand(-1, 2, -1).contiguous().transpose(1, 2)}


def batch_of(size: int) -> Padding:
    outputs = (PaddedOutput(path="output['rows']", dim=0), PaddedOutput(path="output['turned']", dim=0))
    return Padding(
        dims=(PaddedDim(min=1, size=size, inputs=(PaddedInput(path="args[0]", dim=0),), outputs=outputs),),
        layouts=(OutputLayout(path="output['turned']", order=(0, 2, 1)),),
    )


def same(one, other) -> None:
    assert one.keys() == other.keys()
    for key in one:
        torch.testing.assert_close(one[key], other[key])
        assert one[key].stride() == other[key].stride()


def test_every_batch_up_to_the_built_one_is_answered_at_that_size(engine):
    model = Rows().eval()
    fast = attach_parts(model, (entry(model, batch_of(4), torch.ones(4, 3)),))
    for batch in (1, 2, 3, 4, 2, 1):
        x = torch.randn(batch, 3)
        same(fast(x), model(x))
    stats = fast.stats()
    assert (stats.fast, stats.fallbacks, stats.compiles) == (6, {}, 1)
    assert (engine.answered, engine.prepared) == (6, 1)


@pytest.mark.parametrize("batch", [0, 5])
def test_an_empty_batch_and_a_larger_one_go_to_eager(engine, batch):
    model = Rows().eval()
    fast = attach_parts(model, (entry(model, batch_of(4), torch.ones(4, 3)),))
    x = torch.randn(batch, 3)
    same(fast(x), model(x))
    assert engine.answered == 0
    assert fast.stats().fallbacks == {f"shape of args[0]: {batch}x3, plan has 1..4x3": 1}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda x: x.double(), "dtype"),
        (lambda x: torch.randn(3, 2).t(), "strides"),
        (lambda x: x[:, :2], "shape"),
    ],
)
def test_what_is_not_the_plans_call_goes_to_eager(engine, change, reason):
    model = Rows().eval()
    fast = attach_parts(model, (entry(model, batch_of(4), torch.ones(4, 3)),))
    x = change(torch.randn(2, 3))
    if reason == "strides":
        same(fast(x), model(x))
    else:
        with pytest.raises(RuntimeError):
            fast(x)
    assert engine.answered == 0


def test_results_that_are_kept_do_not_change(engine):
    model = Rows().eval()
    fast = attach_parts(model, (entry(model, batch_of(4), torch.ones(4, 3)),))
    x = torch.randn(2, 3)
    kept = fast(x)
    before = {key: tensor.clone() for key, tensor in kept.items()}
    for _ in range(3):
        fast(torch.randn(3, 3))
    same(kept, before | {"turned": kept["turned"]})
    assert torch.equal(kept["turned"], before["turned"])


def test_inference_mode_is_a_mode_of_its_own_and_builds_once_more(engine):
    model = Rows().eval()
    fast = attach_parts(model, (entry(model, batch_of(4), torch.ones(4, 3)),))
    for batch in (1, 2, 3):
        x = torch.randn(batch, 3)
        same(fast(x), model(x))
        with torch.inference_mode():
            same(fast(x), model(x))
            same(fast(x.clone()), model(x))
    assert fast.stats().fast == 9
    assert engine.prepared == 2


class Masked(nn.Module):
    """A mean over what the mask lets through, and each position for itself."""

    def forward(self, ids, mask):
        weight = mask.unsqueeze(-1).float()
        hidden = torch.stack((ids, ids * ids), -1).float()
        return hidden * 2, (hidden * weight).sum(1) / weight.sum(1)


def text(batch: int, length: int, rule: MaskRule = MaskRule.ANY) -> Padding:
    ids, mask = "args[0]", "kwargs['mask']"
    rows = PaddedDim(
        min=1,
        size=batch,
        inputs=(PaddedInput(path=ids, dim=0), PaddedInput(path=mask, dim=0)),
        outputs=(PaddedOutput(path="output[0]", dim=0), PaddedOutput(path="output[1]", dim=0)),
    )
    along = PaddedDim(
        min=1,
        size=length,
        inputs=(PaddedInput(path=ids, dim=1, value=7), PaddedInput(path=mask, dim=1, value=0, mask=rule)),
        outputs=(PaddedOutput(path="output[0]", dim=1),),
    )
    return Padding(dims=(rows, along))


def buckets(model: nn.Module, sizes, rule: MaskRule = MaskRule.ANY) -> Fast:
    made = [
        entry(model, text(b, n, rule), torch.ones(b, n, dtype=torch.long), mask=torch.ones(b, n, dtype=torch.bool))
        for b, n in sizes
    ]
    return attach_parts(model, tuple(made))


def test_random_calls_of_many_sizes_get_eagers_answers(engine):
    model = Masked().eval()
    fast = buckets(model, [(1, 8), (1, 32), (4, 8), (4, 32)])
    draw = random.Random(0)
    for _ in range(400):
        batch, length = draw.randint(1, 4), draw.randint(1, 32)
        ids = torch.randint(0, 9, (batch, length))
        mask = torch.rand(batch, length) < 0.7
        mask[:, draw.randrange(length)] = True
        for got, want in zip(fast(ids, mask=mask), model(ids, mask=mask), strict=True):
            torch.testing.assert_close(got, want)
            assert got.stride() == want.stride()
    stats = fast.stats()
    assert (stats.fast, stats.fallbacks, stats.compiles) == (400, {}, 4)
    assert engine.answered == 400
    assert all(one.fast for one in stats.entries.values())


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (MaskRule.SOME, [[0, 1], [1, 0]], [[0, 0], [1, 1]]),
        (MaskRule.FIRST, [[1, 0], [1, 1]], [[1, 1], [0, 1]]),
        (MaskRule.ONES, [[1, 1], [1, 1]], [[1, 1], [1, 0]]),
    ],
)
def test_a_mask_for_which_nothing_is_proven_goes_to_eager_and_the_size_stays_fast(engine, rule, good, bad):
    model = Masked().eval()
    fast = buckets(model, [(4, 8)], rule)
    ids = torch.ones(2, 2, dtype=torch.long)
    for mask in (bad, good, bad, good):
        fast(ids, mask=torch.tensor(mask, dtype=torch.bool))
    assert (engine.answered, fast.stats().fast) == (2, 2)
    (reason,) = fast.stats().fallbacks
    assert "kwargs['mask'] masks" in reason


def test_a_mask_is_not_looked_at_where_nothing_is_padded(engine):
    model = Masked().eval()
    fast = buckets(model, [(2, 2)], MaskRule.ONES)
    fast(torch.ones(2, 2, dtype=torch.long), mask=torch.tensor([[True, False], [True, True]]))
    assert fast.stats().fast == 1


def test_inputs_that_do_not_agree_on_a_size_go_to_eager(engine):
    model = Masked().eval()
    fast = buckets(model, [(4, 8)])
    ids, mask = torch.ones(2, 5, dtype=torch.long), torch.ones(2, 1, dtype=torch.bool)
    for got, want in zip(fast(ids, mask=mask), model(ids, mask=mask), strict=True):
        torch.testing.assert_close(got, want)
    assert engine.answered == 0
    assert "size 1 at dimension 1 of kwargs['mask'], 5 elsewhere" in next(iter(fast.stats().fallbacks))


class Nested(nn.Module):
    def forward(self, batch):
        return batch["x"] * batch["y"]


def test_nested_inputs_are_padded_where_they_are(engine):
    model = Nested().eval()
    inputs = tuple(PaddedInput(path=f"args[0]['{name}']", dim=0) for name in "xy")
    padding = Padding(dims=(PaddedDim(min=1, size=4, inputs=inputs, outputs=(PaddedOutput(path="output", dim=0),)),))
    fast = attach_parts(model, (entry(model, padding, {"x": torch.ones(4, 2), "y": torch.ones(4, 2)}),))
    given = {"x": torch.randn(3, 2), "y": torch.randn(3, 2)}
    assert torch.equal(fast(given), model(given))
    assert engine.answered == 1
    assert given["x"].shape == (3, 2)


def guard_of(size: int) -> Guard:
    return make_guard(Rows().eval(), Call((torch.ones(size, 3),), {}), dynamic=(), shapes=Settings().shapes, grad=False)


def test_the_two_guards_are_each_others_inverse():
    assert built_for(taken_by(guard_of(4), batch_of(4)), batch_of(4)) == guard_of(4)


@pytest.mark.parametrize(
    "guard",
    [
        guard_of(4),
        taken_by(guard_of(8), batch_of(8)),
        msgspec.structs.replace(taken_by(guard_of(4), batch_of(4)), tensors=()),
    ],
)
def test_a_padding_that_does_not_belong_to_its_guard_is_refused(guard):
    with pytest.raises(PlanError, match="its guard takes other sizes"):
        built_for(guard, batch_of(4))


# ---- who answers what a padded entry does not, and how many at once --------------------------------------------------


TOGETHER: list[threading.Barrier] = []  # no attribute of the model: those are watched


@pytest.fixture
def together() -> Iterator[list[threading.Barrier]]:
    yield TOGETHER
    TOGETHER.clear()


class Meeting(nn.Module):
    """Each position for itself; when asked to, a call goes on only once another one is inside as well."""

    def forward(self, ids, mask):
        for barrier in TOGETHER:
            barrier.wait(timeout=30)  # broken, and so an error, where calls come one after the other
        return ids * 2, mask.float().mean(1)


def both(calls) -> None:
    problems: list[BaseException] = []

    def one(call) -> None:
        try:
            with torch.no_grad():
                call()
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=one, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def ids_of(length: int) -> torch.Tensor:
    return torch.ones(2, length, dtype=torch.long)


def test_new_sizes_of_a_built_entry_are_answered_at_the_same_time(engine, together):
    model = Meeting().eval()
    fast = buckets(model, [(4, 8)])
    fast(ids_of(2), mask=torch.ones(2, 2, dtype=torch.bool))
    together.append(threading.Barrier(2))
    both([lambda n=n: fast(ids_of(n), mask=torch.ones(2, n, dtype=torch.bool)) for n in (3, 4)])
    stats = fast.stats()
    assert (stats.fast, stats.fallbacks, engine.prepared) == (3, {}, 1)


def test_calls_that_are_not_taken_are_answered_by_eager_at_the_same_time(engine, together):
    model = Meeting().eval()
    fast = buckets(model, [(4, 8)], MaskRule.ONES)
    together.append(threading.Barrier(2))
    both([lambda n=n: fast(ids_of(n), mask=torch.zeros(2, n, dtype=torch.bool)) for n in (3, 3)])
    assert sum(fast.stats().fallbacks.values()) == 2
    assert engine.answered == 0


def test_a_mask_that_one_entry_does_not_take_is_offered_to_the_next(engine):
    model = Masked().eval()
    fast = attach_parts(
        model,
        tuple(
            entry(model, text(4, 8, rule), torch.ones(4, 8, dtype=torch.long), mask=torch.ones(4, 8, dtype=torch.bool))
            for rule in (MaskRule.ONES, MaskRule.FIRST)
        ),
    )
    some = torch.tensor([[True, False], [True, True]])
    for mask in (some, some, ~some):
        for got, want in zip(fast(ids_of(2), mask=mask), model(ids_of(2), mask=mask), strict=True):
            torch.testing.assert_close(got, want, equal_nan=True)
    stats = fast.stats()
    assert (stats.fast, engine.answered) == (2, 2)
    (reason,) = stats.fallbacks
    assert "kwargs['mask'] masks something, and padding is not proven for that" in reason
    assert [sum(one.fallbacks.values()) for one in stats.entries.values()] == [1, 0]


def test_an_answer_keeps_no_more_memory_than_eagers(engine):
    model = nn.ReLU().eval()
    inputs, outputs = (PaddedInput(path="args[0]", dim=0),), (PaddedOutput(path="output", dim=0),)
    padding = Padding(dims=(PaddedDim(min=1, size=64, inputs=inputs, outputs=outputs),))
    fast = attach_parts(model, (entry(model, padding, torch.ones(64, 3)),))
    for batch in (1, 1, 2, 64):
        x = torch.randn(batch, 3)
        assert fast(x).untyped_storage().nbytes() == model(x).untyped_storage().nbytes()
    assert engine.answered == 4


def test_a_mask_of_other_numbers_than_0_and_1_goes_to_eager(engine):
    model = Masked().eval()
    ones = torch.ones(4, 8, dtype=torch.long)
    fast = attach_parts(model, (entry(model, text(4, 8, MaskRule.SOME), ones, mask=ones),))
    for number, answered in ((1, 1), (-1, 1), (2, 1), (1, 2)):
        mask = ids_of(3) * number
        for got, want in zip(fast(ids_of(3), mask=mask), model(ids_of(3), mask=mask), strict=True):
            torch.testing.assert_close(got, want)
        assert engine.answered == answered
    (reason,) = fast.stats().fallbacks
    assert "kwargs['mask'] holds other numbers than 0 and 1" in reason


def test_indices_that_follow_a_padded_size_are_refused():
    guard = guard_of(4)
    end = SizeOf(path="args[0]", dim=0, times=1, plus=-1)
    (tensor,) = guard.tensors
    follows = msgspec.structs.replace(tensor, index=IndexRange(low=0, high=end))
    with pytest.raises(PlanError, match="positions along a size"):
        taken_by(msgspec.structs.replace(guard, tensors=(follows,)), batch_of(4))


class OneCaller:
    """An engine with nothing to prepare that takes one call at a time."""

    TRAITS = EngineTraits(version="1")

    def __init__(self) -> None:
        self.inside: list[int] = []
        self.met = 0

    def load(self, request: LoadRequest) -> Loaded:
        def call(*args, **kwargs):
            self.inside.append(1)
            time.sleep(0.002)
            self.met += len(self.inside) - 1
            self.inside.pop()
            return request.model(*args, **kwargs)

        return Loaded(call=call, concurrent=False, builds=lambda: 0)


@pytest.mark.parametrize("parts", [False, True])
def test_no_new_size_gets_around_the_lock_of_an_engine_that_takes_one_call_at_a_time(parts):
    one, model, padding = OneCaller(), Rows().eval(), batch_of(4)
    registry.register("one caller", None, one)
    candidate = Candidate(settings=Settings(engine="one caller"), label="", rationale="")
    entry_ = entry(model, padding, torch.ones(4, 3))._replace(candidate=candidate)
    if parts:
        whole = msgspec.structs.replace(padding.dims[0], size=12)
        rule = SplitCalls(rows=4, min=5, batch=whole, layouts=padding.layouts)
        entry_ = entry_._replace(split=rule, guard=taken_in_parts(entry_.guard, rule))
    fast = attach_parts(model, (entry_,))
    sizes = [1, 2, 3, 4, *([5, 7, 9, 12] if parts else [])]

    def work(number: int) -> None:
        with torch.no_grad():
            for size in sizes[number % 4 :] + sizes[: number % 4]:
                fast(torch.ones(size, 3))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    registry.unregister("one caller")
    assert one.met == 0
    assert fast.stats().fast == 4 * len(sizes)
    assert fast.stats().compiles == 0


def test_an_input_that_wants_gradients_is_prepared_for_and_not_built_on_the_way(engine):
    model = Rows().eval()
    fast = attach_parts(model, (entry(model, batch_of(4), torch.ones(4, 3)),))
    fast(torch.randn(4, 3))
    fast(torch.randn(4, 3).requires_grad_())  # under no_grad: another program for a compiler
    assert engine.prepared == 2
