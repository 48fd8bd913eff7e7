"""The correctness gate: which numbers it lets through and which it refuses."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from judging import Case, Function, Job, Judge, judge_in, mlp, numbers, on
from torch import Tensor, nn

from compilot._tree import Call
from compilot.measure import closeness
from compilot.measure.correctness import check, make_reference


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    return judge_in(tmp_path)


# ---- numbers -------------------------------------------------------------------------------------------------------


def test_eager_itself_passes_and_says_what_was_checked(judge: Judge) -> None:
    model = mlp()
    result = judge(model, model)
    assert result.passed
    assert result.reference == "float64"
    assert result.why.startswith("3 cases agree with float64 (worst ")
    assert [worst.case for worst in result.worst] == ["seed 0", "seed 1", "seed 2"]
    assert all(0 < worst.eager_rmse < 1e-6 for worst in result.worst)


def test_another_order_of_summation_passes(judge: Judge) -> None:
    model = Function(lambda x: x.sum(-1))
    assert judge(model, lambda x: x.flip(-1).cumsum(-1)[:, -1], on(numbers(32, 1000))).passed


def test_slightly_wrong_numbers_are_refused_with_the_place_and_the_sizes(judge: Judge) -> None:
    model = mlp()
    result = judge(model, lambda x: model(x) * 1.001)
    assert not result.passed
    assert "max abs error" in result.why
    assert "RMSE" in result.why
    assert result.why.endswith("at output (case seed 0)")
    assert not result.worst[0].passed
    assert result.worst[0].rmse > result.worst[0].limit


def test_one_wrong_value_among_many_is_refused(judge: Judge) -> None:
    def one_off(x: Tensor) -> Tensor:
        y = x * 2
        y[123, 456] += 0.005  # the RMSE over a million values stays below the floor
        return y

    result = judge(Function(lambda x: x * 2), one_off, on(numbers(1000, 1000)))
    assert not result.passed
    assert result.worst[0].rmse < result.worst[0].limit
    assert "max abs error 5.0e-03" in result.why


def test_large_outputs_are_judged_in_slices(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closeness, "SLICE", 8)
    model = mlp()
    assert judge(model, model).passed
    assert not judge(model, lambda x: model(x) + torch.tensor([[0.0]] * 3 + [[0.1]])).passed


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_allows_its_own_rounding_and_no_more(judge: Judge, dtype: torch.dtype) -> None:
    model = mlp(dtype)
    more_exact = mlp(dtype).float()
    cases = on(numbers(4, 8, dtype=dtype), numbers(4, 8, seed=1, dtype=dtype))
    assert judge(model, lambda x: more_exact(x.float()).to(dtype), cases).passed
    assert not judge(model, lambda x: model(x) * 1.2, cases).passed


def test_float64_models_are_judged_finely(judge: Judge) -> None:
    model = mlp(torch.float64)
    cases = on(numbers(4, 8, dtype=torch.float64))
    assert judge(model, model, cases).passed
    assert not judge(model, lambda x: model(x).float().double(), cases).passed


def test_noise_where_the_output_is_zero_in_theory_is_no_error(judge: Judge) -> None:
    centred = Function(lambda x: x - x.mean(-1, keepdim=True))
    cases = on(numbers(4, 7), torch.full((4, 7), 0.1))
    assert judge(centred, lambda x: x - x.sum(-1, keepdim=True) / 7, cases).passed


def test_complex_outputs(judge: Judge) -> None:
    model = Function(lambda x: torch.fft.fft(x))
    assert judge(model, lambda x: torch.fft.fft(x.double()).to(torch.complex64)).passed
    assert not judge(model, lambda x: torch.fft.fft(x).conj()).passed


def test_integers_must_be_equal(judge: Judge) -> None:
    model = Function(lambda x: (x > 0).long().cumsum(-1))
    assert judge(model, model).passed
    result = judge(model, lambda x: model(x) + (x > 1))
    assert not result.passed
    assert "int64 values differ from eager's at output" in result.why


def test_an_index_may_be_the_float64_one_where_eager_rounds_into_a_tie(judge: Judge) -> None:
    model = Function(lambda x: (x + 1).argmax(-1))
    tie = torch.tensor([[0.0, 1e-9, -1.0], [3.0, 2.0, 1.0]])  # float32 cannot see 1 + 1e-9
    assert model(tie).tolist() == [0, 0]
    assert judge(model, lambda x: torch.tensor([1, 0]), on(tie)).passed
    assert not judge(model, lambda x: torch.tensor([2, 0]), on(tie)).passed
    assert not judge(model, lambda x: torch.tensor([1, 1]), on(tie)).passed


def test_a_changed_winner_is_refused_and_a_close_call_is_not(judge: Judge) -> None:
    def scores(margin: float) -> list[Case]:
        rows = torch.tensor([[0.0, 0.0, -900.0]]).repeat(100, 1)
        rows[7, 0] = margin
        return on(rows)

    identity = Function(lambda x: x * 1.0)
    # both differences are far below what the large entries allow
    result = judge(identity, lambda x: x[:, [1, 0, 2]], scores(0.02))
    assert result.worst[0].rmse < result.worst[0].limit
    assert result.why.startswith("the largest entry of 1 rows is not eager's")
    assert judge(identity, lambda x: x[:, [1, 0, 2]], scores(0.001)).passed


# ---- NaN and Inf ---------------------------------------------------------------------------------------------------


def test_new_nan_is_refused(judge: Judge) -> None:
    model = mlp()
    result = judge(model, lambda x: torch.where(model(x) == model(x).max(), torch.nan, model(x)))
    assert not result.passed
    assert "values are NaN, eager has 0 at output" in result.why


def test_missing_nan_is_refused(judge: Judge) -> None:
    model = Function(lambda x: x.sqrt())
    result = judge(model, lambda x: x.sqrt().nan_to_num(nan=0.0))
    assert not result.passed
    assert "0 of 32 values are NaN, eager has" in result.why


def test_infinity_of_the_other_sign_is_refused(judge: Judge) -> None:
    model = Function(lambda x: 1 / x.relu())
    assert judge(model, model).passed
    result = judge(model, lambda x: torch.where(x > 0, 1 / x, -torch.inf))
    assert not result.passed
    assert "values are NaN or Inf in other places than eager's" in result.why


def test_only_nan_cannot_be_judged(judge: Judge) -> None:
    model = Function(lambda x: x * torch.nan)
    result = judge(model, model)
    assert not result.passed
    assert "cannot be judged" in result.why


def test_a_case_with_only_nan_does_not_count(judge: Judge) -> None:
    model = Function(lambda x: (x / x.sum()) if x.any() else x * torch.nan)
    result = judge(model, model)
    assert result.passed
    assert result.why.startswith("2 cases agree")
    assert "case 'seed 2' cannot be judged: eager gives only NaN at output" in result.notes


def test_empty_outputs_prove_nothing(judge: Judge) -> None:
    model = Function(lambda x: x[:0])
    assert "cannot be judged" in judge(model, model).why


NAN_CASE = Case("nan", Call((torch.tensor([[1.0, torch.nan, 2.0, -1.0]]),), {}), special=True)


def test_another_pattern_on_nan_inputs_is_a_note(judge: Judge) -> None:
    model = Function(lambda x: x.relu())
    result = judge(model, lambda x: x.relu().nan_to_num(), [*on(numbers(2, 4)), NAN_CASE])
    assert result.passed
    assert result.why.startswith("1 case agrees")
    assert "on nan inputs: 0 of 4 values are NaN, eager has 1 at output" in result.notes


def test_a_crash_or_other_shape_on_nan_inputs_is_a_failure(judge: Judge) -> None:
    model = Function(lambda x: x.relu())
    cases = [*on(numbers(2, 4)), NAN_CASE]

    def crash(x: Tensor) -> Tensor:
        if x.isnan().any():
            raise FloatingPointError("NaN seen")
        return x.relu()

    assert judge(model, crash, cases).why == "raises FloatingPointError: NaN seen (case nan)"
    assert "(case nan)" in judge(model, lambda x: x.relu()[:, : 3 if x.isnan().any() else 4], cases).why


def test_special_cases_alone_prove_nothing(judge: Judge) -> None:
    model = Function(lambda x: x.relu())
    assert "cannot be judged" in judge(model, model, [NAN_CASE]).why


# ---- property ------------------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(
    widths=st.lists(st.integers(1, 12), min_size=2, max_size=5),
    batch=st.integers(1, 5),
    seed=st.integers(0, 1000),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    scale=st.sampled_from([1e-6, 1.0, 1e6]),
)
def test_eager_always_agrees_with_itself(
    tmp_path_factory: pytest.TempPathFactory,
    widths: list[int],
    batch: int,
    seed: int,
    dtype: torch.dtype,
    scale: float,
) -> None:
    torch.manual_seed(seed)
    layers = [layer for i, o in itertools.pairwise(widths) for layer in (nn.Linear(i, o), nn.Tanh())]
    model = nn.Sequential(*layers).to(dtype)
    cases = on(*(numbers(batch, widths[0], seed=seed + i, dtype=dtype) * scale for i in range(2)))
    folder = tmp_path_factory.mktemp("reference")
    result = check(model, Job(model), cases, folder, make_reference(Job(model), cases, folder))
    assert result.passed, result.why
