"""The correctness gate: structure of outputs, and what a call does to its inputs and its own results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from judging import THREE, Case, Function, Judge, judge_in, mlp, numbers, on
from torch import Tensor, nn

from compilot._tree import Call


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    return judge_in(tmp_path)


# ---- structure -----------------------------------------------------------------------------------------------------


class HeadOutput(dict):  # type: ignore[type-arg]
    """Like the outputs of Hugging Face models."""


class Cache:
    """An object with tensors in its attributes, like a key-value cache."""

    def __init__(self, keys: list[Tensor]) -> None:
        self.keys = keys


RICH = Function(
    lambda x: HeadOutput(
        logits=x * 2, hidden=(x, None), count=3, name="head", score=float(x.double().sum()), cache=Cache([x + 1])
    )
)


def test_nested_outputs_pass_and_each_part_is_looked_at(judge: Judge) -> None:
    def but(**changes: Any) -> Callable[[Tensor], Any]:
        return lambda x: HeadOutput({**RICH(x), **{key: value(x) for key, value in changes.items()}})

    assert judge(RICH, RICH).passed
    assert "output['logits'] (case" in judge(RICH, but(logits=lambda x: x * 2.1)).why
    assert "output['count'] is int 4, eager gives int 3" in judge(RICH, but(count=lambda x: 4)).why
    assert "output['name']" in judge(RICH, but(name=lambda x: "tail")).why
    assert "output['score']" in judge(RICH, but(score=lambda x: float(x.sum()) + 1)).why
    assert "output['hidden'][1]" in judge(RICH, but(hidden=lambda x: (x, x))).why
    assert "output['hidden'] is list of 2" in judge(RICH, but(hidden=lambda x: [x, None])).why
    assert "output['cache'].keys[0]" in judge(RICH, but(cache=lambda x: Cache([x + 2]))).why
    assert "output is dict with keys" in judge(RICH, lambda x: dict(RICH(x))).why


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda y: y.double(), "output is float64[4, 10] on cpu, eager gives float32[4, 10] on cpu"),
        (lambda y: y[:, :9], "output is float32[4, 9] on cpu"),
        (lambda y: (y,), "output is tuple of 1"),
        (lambda y: None, "output is NoneType None"),
    ],
)
def test_other_dtype_shape_or_structure_is_refused(judge: Judge, change: Callable[[Tensor], Any], told: str) -> None:
    model = mlp()
    result = judge(model, lambda x: change(model(x)))
    assert not result.passed
    assert told in result.why


def test_lost_gradients_are_refused_in_grad_mode(judge: Judge) -> None:
    model = mlp()
    assert judge(model, model, grad=True).passed
    assert "with grad" in judge(model, lambda x: model(x).detach(), grad=True).why


# ---- side effects --------------------------------------------------------------------------------------------------


def test_mutating_an_input_is_refused(judge: Judge) -> None:
    result = judge(Function(lambda x: x + 1), lambda x: x.add_(1) * 1)
    assert "input args[0] is changed, eager leaves it alone" in result.why


def test_inputs_must_be_mutated_as_eager_does(judge: Judge) -> None:
    model = Function(lambda x: x.add_(1) * 2)
    assert judge(model, model).passed
    assert "is left alone, eager changes it" in judge(model, lambda x: (x + 1) * 2).why
    assert "ends otherwise" in judge(model, lambda x: (x.add_(2) - 1) * 2).why
    assert torch.equal(THREE[2].call.args[0], torch.zeros(4, 8)), "the case's own inputs stay"


def test_a_key_put_into_an_input_dict_is_seen(judge: Judge) -> None:
    def remember(batch: dict[str, Tensor]) -> Tensor:
        batch["y"] = batch["x"] * 2
        return batch["x"] + 1

    cases = [Case("seed 0", Call(({"x": numbers(3)},), {}))]
    assert judge(Function(remember), remember, cases).passed
    assert "the inputs end up otherwise" in judge(Function(lambda b: b["x"] + 1), remember, cases).why


def test_sharing_memory_with_an_input_is_refused_unless_eager_does(judge: Judge) -> None:
    result = judge(Function(lambda x: x.clone()), lambda x: x.view(4, 8))
    assert "output shares memory with input args[0], eager's does not" in result.why
    assert judge(Function(lambda x: x.T), lambda x: x.T).passed
    assert judge(Function(lambda x: x.T), lambda x: x.T.contiguous()).passed


def test_results_that_later_calls_overwrite_are_refused(judge: Judge) -> None:
    buffer = torch.empty(4, 8)

    def reuse(x: Tensor) -> Tensor:
        return torch.mul(x, 2, out=buffer)

    model = Function(lambda x: x * 2)
    assert "results do not own their memory" in judge(model, reuse).why
    assert "results do not own their memory" in judge(model, reuse, THREE[:1]).why


def test_returning_a_parameter_is_no_overwriting_where_eager_does_it_too(judge: Judge) -> None:
    table = nn.Parameter(numbers(3, 3))
    model = Function(lambda x: (x * 2, table))
    assert judge(model, model).passed
    assert judge(model, model, THREE[:1]).passed


def test_the_candidate_gets_inputs_with_the_same_strides(judge: Judge) -> None:
    layouts = [numbers(4, 8).T, numbers(8, 8)[:, ::2], numbers(1, 8).expand(4, 8), numbers(4, 8)]
    given: list[tuple[int, ...]] = []

    def note(x: Tensor) -> Tensor:
        given.append(x.stride())
        return x * 2

    assert judge(Function(lambda x: x * 2), note, on(*layouts)).passed
    assert given == [x.stride() for x in layouts]
