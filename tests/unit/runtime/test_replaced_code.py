"""Row 36: code, structure and attributes that are replaced after compile. Never old numbers for longer than is said:
the model's own forward and class before the next answer, everything else within 256 calls."""

from __future__ import annotations

import collections
import copy
import functools
import pickle
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from replaceable import (
    AT_ONCE,
    WEIGHTS_ONLY,
    WITHIN_THE_WINDOW,
    Constant,
    Holder,
    Slots,
    X,
    make_model,
    own_forward,
    times,
)
from torch import nn

from compilot._torch import dicts
from compilot._tree import Call
from compilot.engines import registry
from compilot.engines.protocol import Baked
from compilot.errors import CompilotWarning, FallbackWarning, StalePlan
from compilot.records import Candidate, Settings, Shapes
from compilot.runtime.code_watch import CodeWatch
from compilot.runtime.fast import Fast, attach
from compilot.runtime.gate import CODE_CHANGED, FILES_OF_OTHER_CODE
from compilot.runtime.guards import make_guard
from compilot.runtime.notices import advice
from compilot.runtime.weight_watch import INSPECT_EVERY

pytestmark = pytest.mark.usefixtures("no_grad")
Make = Callable[..., Fast]


@pytest.fixture
def make() -> Iterator[Make]:
    """make(model, engine, ...): the model behind an engine that follows nothing of it, used a few times."""

    def made(model: nn.Module, engine: Constant | None = None, *, used: bool = True, **options: Any) -> Fast:
        registry.register("constant", None, engine or Constant())
        guard = make_guard(model, Call((X,), {}), dynamic=(), shapes=Shapes.STATIC, grad=False)
        candidate = Candidate(settings=Settings(engine="constant"), label="constant", rationale="test")
        expected = copy.deepcopy(model)(X)
        fast = attach(model, candidate, guard, None, **options)
        for _ in range(3 * used):
            assert torch.equal(fast(X), expected)
        assert fast.stats().fast == 3 * used
        return fast

    yield made
    registry.unregister("constant")


def calls_until_right(fast: Fast, model: nn.Module, limit: int) -> int:
    """How many answers were old ones, up to the limit."""
    expected = model(X)
    for number in range(limit + 1):
        if torch.equal(fast(X), expected):
            return number
    raise AssertionError(f"still the old answer after {limit} calls")


ENGINES = {
    "weights at load": lambda: Constant(),
    "weights in files": lambda: Constant(baked=Baked.AT_BUILD),
    "weights at the first call": lambda: Constant(baked=Baked.AT_PREPARE),
    "no weights": lambda: Constant(frozen=False),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("change", AT_ONCE)
def test_row_36_another_forward_or_class_is_noticed_before_the_next_answer(make, engine, change):
    model = make_model()
    fast, old = make(model, ENGINES[engine]()), model(X)
    change(model)
    assert not torch.equal(model(X), old)
    with pytest.warns(CompilotWarning, match="code or attributes"):
        assert calls_until_right(fast, model, 0) == 0
    reason = FILES_OF_OTHER_CODE if engine == "weights in files" else CODE_CHANGED
    assert fast.stats().fallbacks == {reason: 1}


@pytest.mark.parametrize(
    ("engine", "change"),
    [(e, c) for e in ENGINES for c in WITHIN_THE_WINDOW if e != "no weights" or c not in WEIGHTS_ONLY],
)
def test_row_36_whatever_else_is_replaced_is_noticed_within_256_calls(make, engine, change):
    model = make_model()
    fast, old = make(model, ENGINES[engine]()), model(X)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        change(model)
        assert not torch.equal(model(X), old)
        calls_until_right(fast, model, INSPECT_EVERY)
    assert [w.category for w in caught] == [FallbackWarning]
    [reason] = fast.stats().fallbacks
    assert "refresh" in advice(reason) or "compilot tune" in advice(reason)
    for _ in range(3):
        assert torch.equal(fast(X), model(X))


@pytest.mark.parametrize("change", [c for c in WITHIN_THE_WINDOW if c not in WEIGHTS_ONLY])
def test_what_is_replaced_is_seen_without_numbers_of_writes_too(make, change, monkeypatch):
    monkeypatch.setattr(dicts, "writes", lambda _: None)
    model = make_model()
    fast = make(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        change(model)
        calls_until_right(fast, model, INSPECT_EVERY)


def test_nothing_is_said_while_nothing_changes(make):
    model = make_model()
    fast = make(model)
    for _ in range(2 * INSPECT_EVERY + 5):
        fast(X)
    copy.copy(model)
    pickle.dumps(Constant())  # writes __slotnames__ into a class
    model.number = 1.0
    model.numbers = [1.0, {"deep": [2.0]}]  # another list that holds the same
    model.train()
    model.eval()
    for _ in range(2 * INSPECT_EVERY + 5):
        fast(X)
    assert fast.stats().fast_share == 1.0


@pytest.mark.parametrize("change", [*AT_ONCE[:2], WITHIN_THE_WINDOW[0]])
def test_a_refresh_takes_the_new_code(make, change):
    model = make_model()
    fast = make(model)
    change(model)
    with pytest.warns(CompilotWarning, match=r"call refresh\(\)"):
        calls_until_right(fast, model, INSPECT_EVERY)
    fast.refresh()
    served = fast.stats().fast
    assert torch.equal(fast(X), model(X))
    assert fast.stats().fast == served + 1


@pytest.mark.parametrize("change", [c for c in [*AT_ONCE, *WITHIN_THE_WINDOW] if c not in WEIGHTS_ONLY])
def test_files_that_were_made_from_other_code_cannot_be_refreshed(make, change):
    model = make_model()
    fast = make(model, Constant(baked=Baked.AT_BUILD))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        change(model)  # and refreshed before a call could notice
    with pytest.raises(StalePlan, match=r"made from other code or attributes.*compilot tune"):
        fast.refresh()
    for _ in range(3):
        assert torch.equal(fast(X), model(X))


def test_with_inplace_the_models_own_forward_is_seen(make):
    model = make_model()
    fast = make(model, inplace=True)
    assert fast is model
    own_forward(model)
    with pytest.warns(CompilotWarning, match="forward"):
        assert torch.equal(model(X), X * 7)


def test_with_inplace_another_class_is_the_models_own_again(make):
    model = make_model()
    kind = type(model)
    make(model, inplace=True)
    model.__class__ = type("Other", (kind,), {"forward": lambda self, x: x * 9})
    assert torch.equal(model(X), X * 9)


def test_with_inplace_a_forward_given_to_the_class_that_is_shown_is_seen(make):
    model = make_model()
    make(model, inplace=True)
    type(model).forward = lambda self, x: x * 8
    with pytest.warns(CompilotWarning, match="forward"):
        assert torch.equal(model(X), X * 8)


def test_a_forward_that_was_an_attribute_from_the_start_is_compared_as_one(make):
    model = make_model()
    model.forward = lambda x: x * 3
    fast = make(model)
    _ = [fast(X) for _ in range(INSPECT_EVERY + 5)]
    assert fast.stats().fast_share == 1.0
    del model.forward
    with pytest.warns(CompilotWarning, match="forward"):
        assert torch.equal(fast(X), model(X))


def test_what_the_model_itself_writes_down_is_no_change(make):
    model = make_model()
    model.cache = {}
    plain = type(model).forward

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.cache[len(self.cache)] = x
        self.space.calls = getattr(self.space, "calls", 0) + 1
        type(self).offset = 0.5 + 0.0 * self.space.calls
        return plain(self, x)

    type(model).forward = forward
    fast = make(model, used=False)
    fast(torch.ones(5, 3))  # eager's
    served = fast.stats().fast
    for _ in range(2 * INSPECT_EVERY + 5):
        fast(X)
    assert fast.stats().fast == served + 2 * INSPECT_EVERY + 5
    model.space.factor = 9.0  # the rest of it is watched still
    with pytest.warns(CompilotWarning, match="factor"):
        calls_until_right(fast, model, INSPECT_EVERY)


# ---- values of any kind ----------------------------------------------------------------------------------------------

PLAIN = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=True, width=32) | st.text(max_size=3)
ARRAYS = st.lists(st.integers(-9, 9), max_size=3).map(np.array)
VALUES = st.recursive(
    PLAIN | ARRAYS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.lists(inner, max_size=3).map(collections.deque)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
        | inner.map(lambda one: types.SimpleNamespace(held=one))
        | inner.map(Holder)
        | inner.map(Slots)
        | inner.map(lambda one: functools.partial(times, one))
        | inner.map(lambda one: Holder(one).times)
    ),
    max_leaves=6,
)


def places_in(value: Any) -> list[Callable[[], None]]:
    """Ways to put a new number in the place of each part, in the value itself."""
    if isinstance(value, list | dict | collections.deque):
        names = [*value] if isinstance(value, dict) else range(len(value))
        here = [functools.partial(value.__setitem__, name, -77) for name in names]
        parts = [*value.values()] if isinstance(value, dict) else [*value]
    elif isinstance(value, np.ndarray):
        return [functools.partial(value.__setitem__, number, -77) for number in range(value.size)]
    elif isinstance(value, types.SimpleNamespace | Holder | Slots):
        names = ["factor"] if isinstance(value, Slots) else [*vars(value)]
        here = [functools.partial(setattr, value, name, -77) for name in names]
        parts = [getattr(value, name) for name in names]
    else:
        held = {tuple: lambda: value, functools.partial: lambda: value.args, types.MethodType: lambda: [value.__self__]}
        here, parts = [], [*held.get(type(value), tuple)()]
    return here + [change for part in parts for change in places_in(part)]


@given(value=VALUES, data=st.data())
@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.filter_too_much])
def test_a_write_anywhere_inside_of_an_attribute_is_seen_and_nothing_else_is(value, data):
    places = places_in(value)
    assume(places)
    model = nn.Module()
    model.held = value
    watch = CodeWatch(model)
    for _ in range(2):
        assert not watch.changed()
    data.draw(st.sampled_from(places))()
    assert watch.changed()
    assert watch.changed()
    assert watch.which()


@given(first=VALUES, second=VALUES)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_an_attribute_that_is_assigned_anew_is_seen_unless_it_means_the_same(first, second):
    model = nn.Module()
    model.held = first
    watch = CodeWatch(model)
    assert not watch.changed()
    model.held = second
    if repr(first) != repr(second):
        assert watch.changed()
    elif isinstance(first, int | float | str | None):
        assert not watch.changed()
