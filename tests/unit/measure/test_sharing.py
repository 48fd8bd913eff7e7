"""Outputs that share memory with each other: as in eager, or said; never where eager's do not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from judging import Function, judge_in
from torch import Tensor

from compilot.workload.sharing import overlap, sharing

Pair = Callable[[Tensor], Any]

SHARING: dict[str, Pair] = {
    "the same twice": lambda y: (y, y),
    "flat": lambda y: (y, y.view(-1)),
    "transposed": lambda y: (y, y.T),
    "a slice": lambda y: (y, y[1:]),
    "every other column": lambda y: (y, y[:, ::2]),
    "expanded": lambda y: (y[0], y[0].expand(3, 8)),
    "in a dict": lambda y: {"a": y, "b": [y[0]]},
}
APART: dict[str, Pair] = {
    "halves": lambda y: y.chunk(2),
    "odd and even": lambda y: (y[:, ::2], y[:, 1::2]),
    "copies": lambda y: (y, y.clone()),
}


def copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    return {k: copied(v) for k, v in value.items()} if isinstance(value, dict) else type(value)(map(copied, value))


@pytest.mark.parametrize("make", SHARING.values(), ids=SHARING)
def test_copies_in_the_place_of_views_pass_with_a_caveat(make: Pair, tmp_path: Path):
    result = judge_in(tmp_path)(Function(lambda x: make(x + 1)), lambda x: copied(make(x + 1)))
    assert result.passed, result.why
    [caveat] = result.caveats  # once, not for each case
    assert "has memory of its own; eager's shares it with output" in caveat


@pytest.mark.parametrize("make", [*SHARING.values(), *APART.values()], ids=[*SHARING, *APART])
def test_who_shares_as_eager_does_has_nothing_to_answer_for(make: Pair, tmp_path: Path):
    result = judge_in(tmp_path)(Function(lambda x: make(x + 1)), lambda x: make(x + 1))
    assert (result.passed, result.caveats) == (True, ())


@pytest.mark.parametrize("make", SHARING.values(), ids=SHARING)
def test_sharing_that_eager_does_not_do_is_wrong(make: Pair, tmp_path: Path):
    result = judge_in(tmp_path)(Function(lambda x: copied(make(x + 1))), lambda x: make(x + 1))
    assert not result.passed
    assert "shares memory with output" in result.why
    assert "eager's does not" in result.why


def test_a_copy_of_an_input_view_is_said(tmp_path: Path):
    result = judge_in(tmp_path)(Function(lambda x: x.view(-1)), lambda x: x.view(-1).clone())
    assert result.passed
    assert result.caveats == ("output has memory of its own; eager's shares it with input args[0]",)


def test_other_dtypes_over_the_same_bytes_share():
    words = torch.zeros(4, dtype=torch.int32)
    halves = words.view(torch.int16)
    assert sharing({"a": words, "b": halves}) == [["a", "b"]]
    assert not overlap(words[:2], halves[4:])
    assert overlap(words[:2], halves[3:])


@st.composite
def views(draw: st.DrawFn) -> Tensor:
    dims = draw(st.integers(1, 3))
    shape = draw(st.lists(st.integers(1, 3), min_size=dims, max_size=dims))
    strides = draw(st.lists(st.integers(0, 5), min_size=dims, max_size=dims))
    return MEMORY.as_strided(shape, strides, draw(st.integers(0, 20)))


MEMORY = torch.zeros(64)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(views(), views())
def test_two_views_share_exactly_when_a_write_into_one_shows_in_the_other(one: Tensor, other: Tensor):
    MEMORY.zero_()
    one.fill_(1.0)
    assert overlap(one, other) == bool(other.any())
