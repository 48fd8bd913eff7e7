"""Silent eager is the enemy: fallbacks are counted, bounded, and said once. Failing engines are left alone."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from compilot._tree import Call
from compilot.engines.protocol import Infeasible, NotTaken
from compilot.errors import CompilotWarning, FallbackWarning, InputError, NoFallback
from compilot.records import DynamicDim
from compilot.runtime import gate, notices, variants


class Double(nn.Module):
    def forward(self, x):
        return x * 2


X = torch.ones(2, 3)


def test_one_warning_when_more_than_one_percent_of_the_calls_fall_back(make_fast):
    fast = make_fast(Double().eval(), X)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(notices.MIN_CALLS + 50):
            fast(X)
    [warning] = caught
    assert warning.category is FallbackWarning
    assert "gradients enabled" in str(warning.message)
    assert "torch.no_grad()" in str(warning.message)
    assert warning.filename == __file__


def test_gradients_are_told_of_at_the_first_call_and_other_reasons_still_later(make_fast):
    fast = make_fast(Double().eval(), X)
    with pytest.warns(CompilotWarning, match=r"called with gradients enabled.*torch.no_grad\(\)") as caught:
        fast(X)
    assert len(caught) == 1
    with pytest.warns(CompilotWarning, match="100 of 100 calls missed .* most often: shape") as caught, torch.no_grad():
        [fast(torch.ones(3, 3)) for _ in range(notices.MIN_CALLS)]
    assert len(caught) == 1


@pytest.mark.usefixtures("no_grad")
def test_no_warning_below_one_percent(make_fast):
    fast = make_fast(Double().eval(), X)
    for _ in range(1000):
        fast(X)
    for _ in range(10):
        fast(torch.ones(3, 3))
    assert fast.stats().fast_share == pytest.approx(1000 / 1010)


@pytest.mark.usefixtures("no_grad")
def test_row_32_shape_churn_keeps_the_reasons_bounded(make_fast, engine):
    fast = make_fast(Double().eval(), X)
    with pytest.warns(CompilotWarning, match="missed the fast path"):
        shapes = [fast(torch.ones(n, 3)).shape for n in range(3, 303)]
    assert shapes == [(n, 3) for n in range(3, 303)]
    stats = fast.stats()
    assert len(stats.fallbacks) <= notices.MAX_REASONS + 1
    assert sum(stats.fallbacks.values()) == stats.calls == 300
    assert engine.prepared == []


def test_the_counts_add_up(make_fast):
    fast = make_fast(Double().eval(), X)
    assert fast.stats() == (0, 0, {}, 0, (), {}, {})
    assert fast.stats().fast_share == 1.0
    with torch.no_grad():
        for _ in range(7):
            fast(X)
    fast(X)
    assert fast.stats() == (8, 7, {"gradients enabled": 1}, 1, (), {}, {})
    assert fast.stats().fast_share == 7 / 8


@pytest.mark.parametrize("reason", ["gradients enabled", "train mode", "shape of args[0]: 3, plan has 2", "keys"])
def test_every_reason_has_advice(reason):
    assert notices.advice(reason)


@pytest.mark.usefixtures("no_grad")
class TestRow18FailingEngines:
    def test_a_failing_preparation_is_answered_by_eager_and_not_tried_again(self, make_fast, engine):
        engine.fail_prepare = RuntimeError("no compiler\nlong story")
        fast = make_fast(Double().eval(), X)
        with pytest.warns(CompilotWarning, match="no compiler"):
            assert torch.equal(fast(X), X * 2)
        assert torch.equal(fast(X), X * 2)
        assert len(engine.prepared) == 1
        assert fast.stats().fast == 0
        assert "engine failed: RuntimeError: no compiler" in fast.stats().fallbacks

    def test_a_failing_call_is_answered_by_eager_until_the_engine_is_switched_off(self, make_fast, engine):
        fast = make_fast(Double().eval(), X)
        fast(X)
        engine.fail_call = RuntimeError("boom")
        with pytest.warns(CompilotWarning, match="boom") as caught:
            answers = [fast(X) for _ in range(10)]
        assert all(torch.equal(answer, X * 2) for answer in answers)
        assert len(caught) == 1
        assert engine.calls == gate.MAX_FAILURES
        stats = fast.stats()
        assert (stats.calls, stats.fast) == (11, 1)
        assert any("switched off" in reason for reason in stats.fallbacks)

    def test_an_error_of_the_model_itself_is_not_held_against_the_engine(self, make_fast, engine):
        class Strict(nn.Module):
            def forward(self, x):
                if x.sum() < 0:
                    raise ValueError("negative input")
                return x * 2

        fast = make_fast(Strict().eval(), X)
        fast(X)
        for _ in range(5):
            with pytest.raises(ValueError, match="negative input") as caught:
                fast(-X)
            assert caught.value.__context__ is None
        assert torch.equal(fast(X), X * 2)
        assert fast.stats().fallbacks == {}

    def test_a_call_that_the_artifact_does_not_take_is_no_failure(self, make_fast, engine):
        fast = make_fast(Double().eval(), X)
        fast(X)
        engine.fail_call = NotTaken("sizes differ")
        for _ in range(gate.MAX_FAILURES + 2):
            assert torch.equal(fast(X), X * 2)
        engine.fail_call = None
        fast(X)
        assert fast.stats() == (7, 2, {"the artifact does not take this call: sizes differ": 5}, 1, (), {}, {})

    def test_new_variants_are_bounded(self, make_fast, engine):
        class Many(nn.Module):
            def forward(self, a, b):
                return a.sum() + b.sum()

        dims = [DynamicDim(input=name, dim=d, min=0, max=9) for name in "ab" for d in (0, 1)]
        fast = make_fast(Many().eval(), X, X, dynamic=dims)
        for sizes in [(a, b, c, d) for a in (0, 1, 2) for b in (0, 1, 2) for c in (0, 1, 2) for d in (1, 2)]:
            fast(torch.ones(sizes[:2]), torch.ones(sizes[2:]))
        assert len(engine.programs) == variants.MAX_BUILDS == fast.stats().compiles
        assert "more than 12 programs would be needed for the planned call" in fast.stats().fallbacks

    def test_interrupts_are_not_swallowed(self, make_fast, engine):
        engine.fail_prepare = KeyboardInterrupt()
        fast = make_fast(Double().eval(), X)
        with pytest.raises(KeyboardInterrupt):
            fast(X)
        engine.fail_prepare = None
        assert torch.equal(fast(X), X * 2)
        assert fast.stats().fast == 1

    def test_refresh_gives_the_engine_another_chance(self, make_fast, engine):
        engine.fail_prepare = RuntimeError("no compiler")
        fast = make_fast(Double().eval(), X)
        with pytest.warns(CompilotWarning):
            fast(X)
        engine.fail_prepare = None
        fast.refresh()
        fast(X)
        fast(X)
        assert fast.stats().fast == 2


def test_prepare_says_why_it_cannot(make_fast, engine):
    fast = make_fast(Double().eval(), X)
    with pytest.raises(InputError, match="gradients enabled"):
        fast.prepare(Call((X,), {}))
    engine.fail_prepare = RuntimeError("outer")
    engine.fail_prepare.__cause__ = ValueError("the first cause")
    with torch.no_grad(), pytest.raises(Infeasible, match="ValueError: the first cause"):
        fast.prepare(Call((X,), {}))


@pytest.mark.usefixtures("no_grad")
def test_prepare_builds_before_the_first_call(make_fast, engine):
    fast = make_fast(Double().eval(), X)
    fast.prepare(Call((X,), {}))
    engine.unasked = 1
    fast(X)
    assert (len(engine.prepared), engine.calls) == (1, 1)
    assert fast.stats() == (1, 1, {}, 1, (), {}, {})


@pytest.mark.usefixtures("no_grad")
def test_without_the_model_an_unplanned_call_is_a_typed_error(make_fast, engine):
    engine.needs_model = False
    fast = make_fast(Double().eval(), X, keep_model=False)
    assert torch.equal(fast(X), X * 2)
    with pytest.raises(NoFallback, match="shape of args"):
        fast(torch.ones(5, 3))
