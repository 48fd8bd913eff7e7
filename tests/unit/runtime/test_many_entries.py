"""Plans with many entries: found by the sizes of a call, every guard complete, memory bounded; a fake engine."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections.abc import Iterator, Sequence

import numpy
import pytest
import torch
from torch import nn

from compilot._tree import Call
from compilot.engines import registry
from compilot.engines.protocol import Loaded, LoadRequest, NotTaken
from compilot.engines.traits import EngineTraits
from compilot.errors import FallbackWarning
from compilot.records import Candidate, DynamicDim, Settings, Shapes
from compilot.runtime import chain, variants
from compilot.runtime.fast import Fast, attach_closed, attach_parts, open_entry
from compilot.runtime.gate import BEING_BUILT
from compilot.runtime.guards import make_guard
from compilot.runtime.matching import Matcher
from compilot.runtime.sources import EntryParts

pytestmark = pytest.mark.usefixtures("no_grad")


class Numbered:
    """Each load is an engine of its own: it answers as the model does, and notes who did."""

    TRAITS = EngineTraits(version="1")

    def __init__(self) -> None:
        self.answered: list[int] = []
        self.loads = 0

    def load(self, request: LoadRequest) -> Loaded:
        number, self.loads = self.loads, self.loads + 1

        def call(*args, **kwargs):
            self.answered.append(number)
            return request.model(*args, **kwargs)

        return Loaded(call=call, builds=lambda: 1)


class Quiet(Numbered):
    """The same, and keeps nothing itself."""

    def load(self, request: LoadRequest) -> Loaded:
        return Loaded(call=request.model, builds=lambda: 1)


@pytest.fixture
def numbered() -> Iterator[Numbered]:
    engine = Numbered()
    registry.register("numbered", None, engine)
    registry.register("quiet", None, Quiet())
    yield engine
    registry.unregister("numbered")
    registry.unregister("quiet")


class Sum(nn.Module):
    def forward(self, x, mask=None):
        return x.sum(1) if mask is None else (x * mask).sum(1)


def part(model: nn.Module, *args, engine="numbered", dynamic: Sequence[DynamicDim] = (), name="", **kwargs):
    shapes = Shapes.DYNAMIC if dynamic else Shapes.STATIC
    guard = make_guard(model, Call(args, kwargs), dynamic=dynamic, shapes=shapes, grad=False)
    settings = Settings(engine=engine, shapes=shapes)
    return EntryParts(Candidate(settings=settings, label=engine, rationale=""), guard, None, name=name)


def up_to(size: int, *inputs: str) -> list[DynamicDim]:
    return [DynamicDim(input=name, dim=1, min=1, max=size) for name in inputs or ("x",)]


def static_and_dynamic(model: nn.Module) -> Fast:
    static = [part(model, torch.ones(2, n), name=f"length {n}") for n in (4, 8, 16)]
    return attach_parts(model, (*static, part(model, torch.ones(2, 5), dynamic=up_to(32), name="any length")))


def test_each_size_goes_to_its_entry_and_the_first_call_counts_as_fast(numbered):
    model = Sum().eval()
    fast = static_and_dynamic(model)
    sizes = [8, 4, 5, 16, 5, 7, 8]
    for n in sizes:
        x = torch.randn(2, n)
        assert torch.equal(fast(x), model(x))
    assert numbered.answered == [1, 0, 3, 2, 3, 3, 1]
    stats = fast.stats()
    assert (stats.calls, stats.fast, stats.fallbacks) == (7, 7, {})
    assert {name: entry.fast for name, entry in stats.entries.items()} == {
        "length 4": 1,
        "length 8": 2,
        "length 16": 1,
        "any length": 3,
    }


def test_the_first_entry_in_the_plan_is_asked_first_also_where_a_later_one_is_for_one_size(numbered):
    model = Sum().eval()
    fast = attach_parts(model, (part(model, torch.ones(2, 5), dynamic=up_to(32)), part(model, torch.ones(2, 8))))
    fast(torch.ones(2, 8))
    assert numbered.answered == [0]


@pytest.mark.parametrize("shape", [(2, 33), (2, 0), (3, 8), (2, 8, 1), (8,)])
def test_sizes_of_no_entry_go_to_eager_and_are_no_entrys_fallback(numbered, shape):
    model = Sum().eval()
    fast = static_and_dynamic(model)
    for _ in range(2):
        if len(shape) == 1:
            with pytest.raises(IndexError):
                fast(torch.ones(shape))
        else:
            assert torch.equal(fast(torch.ones(shape)), model(torch.ones(shape)))
    stats = fast.stats()
    assert numbered.answered == []
    assert stats.fast == 0
    if len(shape) > 1:
        assert stats.calls == sum(stats.fallbacks.values()) == 2
        assert all(entry.calls == 0 for entry in stats.entries.values())
        assert next(iter(stats.fallbacks)).startswith("shape of args[0]: ")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (lambda: torch.ones(2, 8, dtype=torch.float64), "dtype"),
        (lambda: torch.ones(8, 2).t(), "strides"),
        (lambda: torch.ones(2, 8, requires_grad=True), None),
    ],
)
def test_an_entry_that_was_found_by_sizes_still_checks_everything(numbered, given, reason):
    model = Sum().eval()
    fast = static_and_dynamic(model)
    fast(torch.ones(2, 8))
    before = len(numbered.answered)
    assert torch.equal(fast(given()), model(given()))
    if reason is None:  # a variant of its own, the same numbers
        assert fast.stats().fallbacks == {}
    else:
        assert len(numbered.answered) == before
        assert next(iter(fast.stats().fallbacks)).startswith(reason)


def test_other_modes_go_to_eager(numbered):
    model = Sum().eval()
    fast = static_and_dynamic(model)
    x = torch.ones(2, 8)
    fast(x)
    with torch.enable_grad(), pytest.warns(UserWarning, match="gradients"):
        fast(x)
    fast.train()
    fast(x)
    assert numbered.answered == [1]
    assert set(fast.stats().fallbacks) == {"gradients enabled", "train mode"}


def test_entries_that_differ_in_more_than_sizes_are_told_apart_as_well(numbered):
    model = Sum().eval()
    entries = (
        part(model, torch.ones(2, 8)),
        part(model, torch.ones(2, 8, dtype=torch.float64)),
        part(model, torch.ones(2, 4)),
    )
    fast = attach_parts(model, entries)
    for x in (torch.ones(2, 8, dtype=torch.float64), torch.ones(2, 8), torch.ones(2, 4)):
        fast(x)
    assert numbered.answered == [1, 0, 2]
    assert fast.stats().fast == 3


def test_entries_with_other_forms_of_call_are_asked_in_turn(numbered):
    model = Sum().eval()
    x, mask = torch.ones(2, 4), torch.ones(2, 4)
    fast = attach_parts(model, (part(model, x), part(model, x, mask=mask)))
    fast(x)
    fast(x, mask)
    fast(x, mask=mask)
    assert numbered.answered == [0, 1, 1]
    assert fast.stats().fast == 3


def test_the_same_call_may_be_written_otherwise(numbered):
    model = Sum().eval()
    entries = [part(model, torch.ones(2, n), mask=torch.ones(2, n)) for n in (4, 8)]
    fast = attach_parts(model, tuple(entries))
    x = torch.randn(2, 8)
    for _ in range(2):
        assert torch.equal(fast(x=x, mask=torch.ones(2, 8)), x.sum(1))
        assert torch.equal(fast(x, torch.ones(2, 8)), x.sum(1))
    assert numbered.answered == [1] * 4
    with pytest.raises(TypeError, match="nonsense"):
        fast(x, mask=torch.ones(2, 8), nonsense=1)


def test_thousands_of_sizes_leave_memory_flat(numbered, monkeypatch):
    monkeypatch.setattr(chain, "MAX_SIZES", 256)
    monkeypatch.setattr(variants, "MAX_SHAPES", 256)
    model = Sum().eval()
    fast = attach_parts(
        model,
        (
            part(model, torch.ones(1, 4), engine="quiet"),
            part(model, torch.ones(1, 5), engine="quiet", dynamic=up_to(10_000)),
        ),
    )
    row = torch.zeros(1, 10_001)

    def churn(sizes: Sequence[int]) -> None:
        for n in sizes:
            fast(row.narrow(1, 0, n))

    churn(range(1, 600))
    tracemalloc.start()
    churn(range(600, 1_200))
    settled, _ = tracemalloc.get_traced_memory()
    churn(range(1_200, 4_000))
    with pytest.warns(FallbackWarning, match="missed the fast path"):
        churn([10_001] * 300)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - settled < 40_000  # one size takes more than 300 bytes: 2,800 of them would be far above
    stats = fast.stats()
    assert (stats.fast, stats.compiles) == (3_999, 2)
    assert stats.entries["entry 0"].fast == 1


class Named(nn.Module):
    """mode: a float, which no hot path compares."""

    def forward(self, x, mode=0.5):
        return x * 2 if mode == 0.5 else x * 100


@pytest.mark.parametrize("by_name", [True, False])
def test_an_argument_that_was_left_out_stays_left_out(numbered, by_name):
    model = Named().eval()
    given = ((), {"mode": 0.5}) if by_name else ((0.5,), {})
    fast = attach_parts(model, tuple(part(model, torch.ones(n, 3), *given[0], **given[1]) for n in (2, 4)))
    for n in (2, 4, 5):
        assert torch.equal(fast(torch.ones(n, 3)), torch.full((n, 3), 2.0))
    assert numbered.answered == [0, 1]
    assert fast.stats().calls == 3


class AsTensor(nn.Module):
    def forward(self, x):
        return torch.as_tensor(x, dtype=torch.float32) * 2


def test_an_array_of_another_library_is_eagers_at_known_sizes_and_at_others(numbered):
    model = AsTensor().eval()
    fast = attach_parts(model, tuple(part(model, torch.ones(n, 3)) for n in (2, 4)))
    for n in (2, 5, 5):
        assert torch.equal(fast(numpy.ones((n, 3))), torch.full((n, 3), 2.0))
    assert numbered.answered == []
    assert sum(fast.stats().fallbacks.values()) == 3


class OddShape:
    shape = ("two", object())

    def sum(self, dim):
        return "eager"


def test_whatever_an_odd_shape_is_eager_decides(numbered):
    assert static_and_dynamic(Sum().eval())(OddShape()) == "eager"


def test_an_entry_that_is_still_being_built_leaves_its_calls_to_one_that_can_answer_them(numbered):
    model = Sum().eval()
    sizes = part(model, torch.ones(2, 4)), part(model, torch.ones(2, 5), dynamic=up_to(32))
    fast = attach_closed(model, [one.guard for one in sizes])
    assert torch.equal(fast(torch.ones(2, 4)), torch.full((2,), 4.0))  # nobody can: eager
    open_entry(fast, sizes[1], number=1)
    for n in (4, 5, 4):
        assert torch.equal(fast(torch.ones(2, n)), torch.full((2,), float(n)))
    stats = fast.stats()
    assert (stats.fast, stats.fallbacks) == (3, {BEING_BUILT: 1})
    assert len(numbered.answered) == 3


def test_a_size_of_no_entry_is_not_looked_at_by_each_of_many(numbered, monkeypatch):
    model = Sum().eval()
    asked: list[int] = []
    mismatch = Matcher.call_mismatch
    monkeypatch.setattr(Matcher, "call_mismatch", lambda self, call: asked.append(1) or mismatch(self, call))
    fast = attach_parts(model, tuple(part(model, torch.ones(2, n)) for n in range(1, 33)))
    for _ in range(3):
        fast(torch.ones(2, 40))
    assert len(asked) == 3  # one says why
    assert fast.stats().fallbacks == {"shape of args[0]: 2x40, plan has 2x32": 3}
    asked.clear()
    with torch.enable_grad(), pytest.warns(FallbackWarning, match="gradients"):
        fast(torch.ones(2, 7))
    assert asked == []
    assert numbered.answered == []


def test_the_inputs_of_a_call_that_eager_answers_are_let_go_at_once(numbered):
    fast = static_and_dynamic(Sum().eval())
    x = torch.ones(2, 40)
    gone = weakref.ref(x)
    gc.collect()
    gc.disable()
    try:
        fast(x)
        del x
        assert gone() is None
    finally:
        gc.enable()


class Choosy(Numbered):
    """Takes no call whose first number is negative, and does not count its programs."""

    def load(self, request: LoadRequest) -> Loaded:
        def prepare(args, kwargs):
            if args[0][0, 0] < 0:
                raise NotTaken("a negative number")
            return request.model(*args, **kwargs)

        return Loaded(call=request.model, prepare=prepare)


def test_calls_that_an_engine_does_not_take_are_no_programs(numbered):
    registry.register("choosy", None, Choosy())
    try:
        model = Sum().eval()
        fast = attach_parts(model, (part(model, torch.ones(2, 4), engine="choosy"),))
        for _ in range(2 * variants.MAX_BUILDS):
            fast(-torch.ones(2, 4))
        fast(torch.ones(2, 4))
        stats = fast.stats()
        assert (stats.fast, stats.compiles) == (1, 1)
        assert stats.fallbacks == {"the artifact does not take this call: a negative number": 2 * variants.MAX_BUILDS}
    finally:
        registry.unregister("choosy")
