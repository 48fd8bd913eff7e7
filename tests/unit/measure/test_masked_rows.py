"""Attention rows that a mask hides altogether: eager answers 0, and whoever answers otherwise is refused by the gate.

The candidates are what engines were seen to do: an even mean over all values, and NaN. Nothing else about them is
wrong, so only a case with such a row can tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from judging import Function
from torch import Tensor

from compilot.measure.correctness import Miss, NotServed, check, make_reference
from compilot.records import Check
from compilot.workload import Workload
from compilot.workload.variations import cases

KEYS = 4
Weights = Callable[[Tensor, Tensor], Tensor]


def kept(mask: Tensor) -> Tensor:
    return mask == 0 if mask.is_floating_point() else mask.bool()


def eager(x: Tensor, mask: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(x[..., : mask.shape[-2], :], x, x, attn_mask=kept(mask))


def uniform(scores: Tensor, keep: Tensor) -> Tensor:
    return scores.masked_fill(~keep, -1e9).softmax(-1)


def not_a_number(scores: Tensor, keep: Tensor) -> Tensor:
    return scores.masked_fill(~keep, -math.inf).softmax(-1)


def zero(scores: Tensor, keep: Tensor) -> Tensor:
    return not_a_number(scores, keep).nan_to_num(0.0)


def attention(weights: Weights) -> Callable[[Tensor, Tensor], Tensor]:
    def answer(x: Tensor, mask: Tensor) -> Tensor:
        scores = x[..., : mask.shape[-2], :] @ x.transpose(-1, -2) / math.sqrt(x.shape[-1])
        return weights(scores, kept(mask)) @ x

    return answer


KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "bool": lambda keep: keep,
    "int64": lambda keep: keep.long(),
    "uint8": lambda keep: keep.byte(),
    "-inf": lambda keep: torch.zeros(keep.shape).masked_fill(~keep, -math.inf),
    "lowest": lambda keep: torch.zeros(keep.shape).masked_fill(~keep, torch.finfo(torch.float32).min),
}
ROW = st.lists(st.booleans(), min_size=KEYS, max_size=KEYS)
# the first row sees something, and something is masked: otherwise a mask of floats is not told from other floats
MASKS = st.tuples(ROW.filter(any), st.lists(ROW, min_size=1, max_size=KEYS - 1)).map(lambda t: [t[0], *t[1]])
MASKS = MASKS.filter(lambda rows: not all(map(all, rows)))


QUICKLY = settings(max_examples=12, deadline=None, derandomize=True, phases=[Phase.generate])  # a failure is small


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Weights, Tensor], Check]:
    def judge(weights: Weights, mask: Tensor) -> Check:
        torch.manual_seed(0)
        load = Workload(Function(eager).eval(), (torch.randn(2, KEYS, 8), mask))
        found, folder = cases(load), tmp_path_factory.mktemp("reference")
        return check(attention(weights), load, found, folder, make_reference(load, found, folder))

    return judge


@pytest.mark.parametrize("weights", [uniform, not_a_number])
@given(rows=MASKS, kind=st.sampled_from([*KINDS]))
@QUICKLY
def test_who_answers_for_a_row_that_sees_nothing_is_refused_with_the_case(judged, weights, rows, kind):
    result = judged(weights, KINDS[kind](torch.tensor(rows)))
    assert not result.passed
    case = "seed 1" if not all(map(any, rows)) else "first row of args[1] masked"
    assert f"(case {case})" in result.why


@given(rows=MASKS, kind=st.sampled_from([*KINDS]))
@QUICKLY
def test_who_answers_as_eager_does_passes(judged, rows, kind):
    result = judged(zero, KINDS[kind](torch.tensor(rows)))
    assert result.passed, result.why
    assert "first row of args[1] masked" in [worst.case for worst in result.worst]


def under_a_mask(folder: Path, weights: Weights, miss: Miss) -> Check:
    """A candidate that misses the calls in which a row is masked."""
    torch.manual_seed(0)
    load = Workload(Function(eager).eval(), (torch.randn(2, KEYS, 8), torch.ones(2, KEYS, dtype=torch.bool)))
    found = cases(load)
    masked = {id(case.call) for case in found if case.masked}
    assert len(masked) == 1
    reference = make_reference(load, found, folder)
    missed = lambda call: miss if id(call) in masked else None  # noqa: E731
    return check(attention(weights), load, found, folder, reference, missed=missed)


REGIONS = Miss("in layers.0: type of args[1]", regions=("layers.0",))


def test_regions_may_leave_a_mask_to_eager_with_a_caveat(tmp_path: Path) -> None:
    result = under_a_mask(tmp_path, zero, REGIONS)
    assert result.passed, result.why
    assert result.caveats == ("calls with such a mask run layers.0 in eager: first row of args[1] masked",)
    assert "first row of args[1] masked" in [worst.case for worst in result.worst]


def test_the_answer_is_judged_all_the_same(tmp_path: Path) -> None:
    result = under_a_mask(tmp_path, uniform, REGIONS)
    assert not result.passed
    assert "(case first row of args[1] masked)" in result.why


@pytest.mark.parametrize("miss", [Miss("engine failed"), Miss("the artifact does not take this call", refused=True)])
def test_whoever_misses_a_mask_otherwise_does_not_answer(tmp_path: Path, miss: Miss) -> None:
    with pytest.raises(NotServed, match=miss.reason):
        under_a_mask(tmp_path, zero, miss)
