"""What users send stays in the process: examples for the child and reasons hold none of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from swapping import Faulty, Serving, plan_of
from torch import nn

from compilot._tree import Call
from compilot.serve import SwapState
from compilot.serve.judging import Judge
from compilot.serve.keeping import KeptCalls, NoExample, made_like
from compilot.serve.sentinel import RECURS, Sentinel
from compilot.serve.trial import without_values

Make = Callable[..., Serving]


@pytest.mark.parametrize("value", [torch.tensor([1234.5]), torch.full((4, 4), 1234.5), torch.tensor([1234.5, 1235.0])])
def test_few_or_equal_floats_do_not_come_back(value: torch.Tensor) -> None:
    made = made_like(Call((value,), {})).args[0]
    assert made.shape == value.shape
    assert float(made.abs().max()) < 10
    assert float(made.abs().max()) > 0


def test_equal_integers_are_drawn_from_what_stays_in_range() -> None:
    made = made_like(Call((torch.full((64,), 4711), torch.zeros(64, dtype=torch.int64)), {})).args
    assert len(made[0].unique()) > 1
    assert 0 <= int(made[0].min()) <= int(made[0].max()) <= 4711
    assert set(made[1].tolist()) == {0, 1}


def test_no_example_is_made_from_texts_and_other_objects() -> None:
    for value in ("my diagnosis", object()):
        with pytest.raises(NoExample, match=r"args\[1\] is a .*give an example with warm\(\)") as raised:
            made_like(Call((torch.randn(3), value), {}))
        assert "diagnosis" not in str(raised.value)
    assert made_like(Call((torch.randn(3), 7, True, None), {})).args[1:] == (7, True, None)
    kept = KeptCalls()
    kept.offer(Call((torch.randn(3), "my diagnosis"), {}))
    kept.offer(Call((torch.randn(3), None), {}))
    example = kept.example()
    assert example is not None
    assert example.call.args[1] is None


class Named(nn.Module):
    """Takes a text, too."""

    def forward(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return x * len(name)


def test_a_text_in_a_users_call_leaves_the_swap_eager(model: nn.Module, serving: Make, child: Any) -> None:
    served = serving(Named().eval(), None)
    with torch.no_grad():
        served.swap(torch.ones(3), "my diagnosis")
    assert served.swap.wait(30) is SwapState.EAGER
    assert "give an example with warm()" in served.swap.reason
    assert "diagnosis" not in served.reasons
    assert not child.jobs


def test_an_example_that_is_given_afterwards_is_built_with(model: nn.Module, serving: Make, child: Any) -> None:
    served = serving(Named().eval(), None)
    with torch.no_grad():
        served.swap(torch.ones(3), "my diagnosis")
        assert served.swap.wait(30) is SwapState.EAGER
        served.swap.warm([(torch.ones(3), "an example")])
        served.when_no_call(lambda: bool(child.jobs))


def test_recurring_calls_with_texts_are_counted_and_not_wanted() -> None:
    sentinel = Sentinel()
    call = Call((torch.ones(3), "my diagnosis"), {})
    assert not any(sentinel.missed("shape", call, adoptable=True) for _ in range(2 * RECURS))
    assert sentinel.next_wanted() is None


def test_the_judge_names_no_values(model: nn.Module) -> None:
    judge = Judge(plan_of(model))
    for right, answer in (("my diagnosis", "flu"), (4711, 4712), (torch.tensor([4711.0]), torch.tensor([4800.0]))):
        found = judge.difference(right, answer)
        assert found
        assert not any(word in found for word in ("diagnosis", "flu", "47", "4800"))
    assert judge.difference(torch.tensor([4711.0]), torch.tensor([4711.0])) is None


@pytest.mark.filterwarnings("ignore:the compiled model failed")
def test_an_engines_error_loses_the_values_that_it_quotes(model: nn.Module, engine: Faulty, serving: Make) -> None:
    def raising(number: int, answer: torch.Tensor) -> torch.Tensor:
        raise IndexError("device lost at 4711, key 'my diagnosis'")

    engine.fault = raising
    served = serving(model)
    served.brought()
    served.ask(4)
    assert served.swap.state is SwapState.ROLLED_BACK
    assert "engine failed: IndexError: device lost at #, key '...'" in served.swap.reason
    assert without_values("shape of args[0]: 5x3, plan has 2x3") == "shape of args[0]: 5x3, plan has 2x3"
