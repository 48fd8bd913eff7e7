"""Lower precisions are judged by the user's tolerance, everything else by the strict limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from judging import THREE, Function, Job, mlp
from torch import Tensor, nn

from compilot.measure.correctness import check, make_reference
from compilot.measure.tolerance import DEFAULTS, tolerance_of
from compilot.records import Check, Precision


@pytest.fixture
def judge(tmp_path: Path) -> Any:
    def run(model: nn.Module, fn: Any, tolerance: float | None) -> Check:
        job = Job(model)
        return check(fn, job, THREE, tmp_path, make_reference(job, THREE, tmp_path), tolerance)

    return run


def off_by(model: nn.Module, share: float) -> Any:
    """The model with every output off by this share of its RMS, to and fro."""

    def run(x: Tensor) -> Tensor:
        y = model(x)
        signs = torch.ones_like(y)
        signs[..., ::2] = -1
        return y + share * y.square().mean().sqrt() * signs

    return run


def test_an_error_within_the_tolerance_passes_and_is_told(judge: Any) -> None:
    result = judge(mlp(), off_by(mlp(), 0.01), 0.02)
    assert result.passed
    assert result.tolerance == 0.02
    assert result.relative_error == pytest.approx(0.01, rel=1e-3)
    assert result.why == "3 cases agree with float64 (relative error 1.00%, tolerance 2.00%)"


def test_an_error_above_the_tolerance_is_refused_with_the_numbers(judge: Any) -> None:
    result = judge(mlp(), off_by(mlp(), 0.03), 0.02)
    assert not result.passed
    assert "RMSE" in result.why
    assert "relative error 3.00%, tolerance 2.00%" in result.why


def test_the_same_error_never_passes_as_is(judge: Any) -> None:
    result = judge(mlp(), off_by(mlp(), 0.01), None)
    assert not result.passed
    assert result.relative_error == pytest.approx(0.01, rel=1e-3)


def test_the_error_of_a_candidate_that_passes_is_known_without_a_tolerance(judge: Any) -> None:
    result = judge(mlp(), mlp(), None)
    assert result.passed
    assert result.tolerance is None
    assert 0.0 < result.relative_error < 1e-5  # float32 against float64
    assert "relative error" not in result.why


def test_answers_that_cannot_be_compared_have_no_error(judge: Any) -> None:
    assert judge(mlp(), lambda x: mlp()(x)[:, :3], None).relative_error is None
    ids = Function(lambda x: (x > 0).long())
    assert judge(ids, ids, None).relative_error is None


def test_eagers_own_error_is_that_of_a_candidate_which_answers_as_eager_does(tmp_path: Path) -> None:
    job = Job(mlp())
    reference = make_reference(job, THREE, tmp_path)
    assert reference.eager_error is not None
    assert check(job.model, job, THREE, tmp_path, reference).relative_error == reference.eager_error


def test_eager_has_no_error_where_there_is_no_float64(tmp_path: Path) -> None:
    only_float = Function(lambda x: x.float() if x.dtype is torch.float32 else 1 / 0)
    reference = make_reference(Job(only_float), THREE, tmp_path)
    assert (reference.kind, reference.eager_error) == ("eager", None)


def test_a_single_bad_value_is_not_hidden_by_the_tolerance(judge: Any) -> None:
    model = nn.Linear(8, 4000).eval()

    def spoiled(x: Tensor) -> Tensor:
        y = model(x).clone()
        y[0, 7] += 20 * 0.05 * y.square().mean().sqrt()
        return y

    result = judge(model, spoiled, 0.05)
    assert not result.passed
    assert "max abs error" in result.why


def scores(first: float, second: float) -> nn.Module:
    """64 scores per row, two of them large."""
    return Function(lambda x: torch.cat([x[:, :2] * 0 + x.new_tensor([first, second]), x.new_zeros(len(x), 62)], 1))


def test_a_clear_winner_must_stay_the_winner(judge: Any) -> None:
    assert "the largest entry" in judge(scores(1.0, 0.5), scores(0.7, 0.75), 0.36).why
    assert judge(scores(1.0, 0.99), scores(0.99, 1.0), 0.05).passed


def test_integers_and_dtypes_are_judged_strictly_all_the_same(judge: Any) -> None:
    ids = Function(lambda x: (x > 0).long())
    assert "values differ" in judge(ids, lambda x: (x >= 0).long(), 0.5).why
    half = judge(mlp(), lambda x: mlp()(x).bfloat16(), 0.5)
    assert not half.passed
    assert "bfloat16" in half.why


def test_defaults_hold_where_the_user_says_nothing() -> None:
    assert tolerance_of(Precision.AS_IS, 0.5) is None
    assert tolerance_of(Precision.INT8_DYNAMIC, None) == DEFAULTS[Precision.INT8_DYNAMIC] == 0.05
    assert tolerance_of(Precision.BF16, 0.1) == 0.1
    assert set(DEFAULTS) == set(Precision) - {Precision.AS_IS}
