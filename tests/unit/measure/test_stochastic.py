"""Models that draw random numbers and repeat themselves when seeded: candidates are held to eager's own draws."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from judging import THREE, Function, Job, judge_in
from torch import Tensor, nn
from torch.nn import functional as F

from compilot.diagnose.model import inspection
from compilot.engines.needs import not_for_exports
from compilot.measure.correctness import make_reference
from compilot.records import Diagnosis

DRAWS: dict[str, Callable[[Tensor], Tensor]] = {
    "dropout": lambda x: F.dropout(x + 1, 0.5, training=True),
    "rand": lambda x: x + torch.rand(x.shape),
    "randn_like": lambda x: x + torch.randn_like(x),
    "bernoulli": lambda x: x + torch.bernoulli(torch.full_like(x, 0.5)),
    "randperm": lambda x: x + torch.randperm(8),
    "multinomial": lambda x: x + torch.multinomial(torch.ones(8), 8),
    "rrelu": lambda x: F.rrelu(x - 1, training=True),
}


@pytest.fixture(params=DRAWS.values(), ids=DRAWS)
def model(request: pytest.FixtureRequest) -> nn.Module:
    return Function(request.param).eval()


def test_who_draws_as_eager_does_passes(model: nn.Module, tmp_path: Path):
    result = judge_in(tmp_path)(model, lambda x: model(x))
    assert result.passed, result.why
    assert result.reference == "eager"


def test_who_draws_one_number_before_is_wrong_and_told_why(model: nn.Module, tmp_path: Path):
    def late(x: Tensor) -> Any:
        torch.rand(1)
        return model(x)

    result = judge_in(tmp_path)(model, late)
    assert not result.passed
    assert "draws other random numbers than eager" in result.why


def test_draws_that_were_baked_in_at_the_first_call_are_wrong(tmp_path: Path):
    model = Function(lambda x: x + torch.rand(x.shape))
    kept: list[Tensor] = []

    def folded(x: Tensor) -> Tensor:
        if not kept:
            kept.append(torch.rand(x.shape))
        return x + kept[0]

    result = judge_in(tmp_path)(model, folded)
    assert not result.passed
    assert "seed 1" in result.why


@pytest.mark.parametrize("draw", [random.random, np.random.default_rng().random], ids=["random", "numpy"])
def test_numbers_that_no_seed_of_torchs_repeats_cannot_be_judged(draw: Callable[[], float], tmp_path: Path):
    model = Function(lambda x: x + draw())
    result = judge_in(tmp_path)(model, lambda x: model(x))
    assert not result.passed
    assert inspection._unjudgeable(make_reference(Job(model), THREE, tmp_path)) is not None


def test_the_diagnosis_refuses_only_what_the_judge_would(model: nn.Module, tmp_path: Path):
    reference = make_reference(Job(model), THREE, tmp_path)
    assert inspection._unjudgeable(reference) is None
    [finding] = inspection.random_findings(reference)
    assert finding.kind == "stochastic"
    assert "refused" in finding.advice


def test_a_model_without_random_numbers_has_no_such_finding(tmp_path: Path):
    assert inspection.random_findings(make_reference(Job(Function(torch.relu)), THREE, tmp_path)) == ()


def test_exporters_draw_their_own_numbers_so_they_are_not_asked():
    assert not_for_exports(Diagnosis(stochastic=True))
    assert not not_for_exports(Diagnosis())


def test_judging_leaves_the_random_numbers_of_the_process_alone(model: nn.Module, tmp_path: Path):
    before = torch.get_rng_state()
    judge_in(tmp_path)(model, lambda x: model(x))
    assert torch.equal(before, torch.get_rng_state())
