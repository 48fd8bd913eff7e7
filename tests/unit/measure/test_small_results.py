"""Small results are results: refused when they are off by percents, let through when they are noise of cancellation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from judging import Case, Function, Judge, judge_in, numbers, on
from torch import Tensor, nn

from compilot._tree import Call
from compilot.measure.correctness import Miss, NotServed, check, make_reference
from compilot.workload import Workload
from compilot.workload.variations import cases


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    return judge_in(tmp_path)


ORDINARY = on(numbers(8, 16), numbers(8, 16, seed=1))


def with_small(values: Tensor) -> list[Case]:
    return [*ORDINARY, Case("small", Call((values,), {}))]


GIVING_UP: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "log1p": (lambda x: torch.log1p(x.abs()), lambda x: torch.log(1 + x.abs())),
    "expm1": (torch.expm1, lambda x: torch.exp(x) - 1),
    "tanh": (torch.tanh, lambda x: 1 - 2 / (torch.exp(2 * x) + 1)),
    "sinh": (torch.sinh, lambda x: (torch.exp(x) - torch.exp(-x)) / 2),
    "asinh": (lambda x: torch.asinh(x.abs()), lambda x: torch.log(x.abs() + (x * x + 1).sqrt())),
    "softsign": (lambda x: x * 0.1, lambda x: (x * 0.1 + 1) - 1),
}


@pytest.mark.parametrize("name", GIVING_UP)
def test_a_form_that_loses_small_results_is_refused(judge: Judge, name: str) -> None:
    exact, loses = GIVING_UP[name]
    small = numbers(8, 16, seed=2) * 1e-6
    assert judge(Function(exact), exact, with_small(small)).passed
    result = judge(Function(exact), loses, with_small(small))
    assert not result.passed
    assert "(case small)" in result.why


@pytest.mark.parametrize(
    ("exact", "values"),
    [
        (torch.sigmoid, numbers(8, 16).abs() - 22),
        (torch.erfc, numbers(8, 16).abs() * 0.3 + 5),
        (torch.exp, numbers(8, 16) - 30),
        (F.softplus, numbers(8, 16) - 25),
    ],
)
def test_a_saturating_function_that_gives_zero_is_refused(
    judge: Judge, exact: Callable[[Tensor], Tensor], values: Tensor
) -> None:
    flushed = lambda x: exact(x) * (exact(x) > 1e-7)  # noqa: E731
    result = judge(Function(exact), flushed, with_small(values))
    assert not result.passed
    assert "(case small)" in result.why


def test_small_values_beside_large_ones_are_judged_by_their_own_size(judge: Judge) -> None:
    """The RMSE sees the large ones only."""
    mixed = numbers(8, 16).abs() + 1
    mixed[:, :12] *= 1e-7
    result = judge(Function(torch.expm1), lambda x: torch.exp(x) - 1, with_small(mixed))
    assert not result.passed
    assert "of 128 values are off by more than 1% of their own size, eager's are exact" in result.why


def test_a_few_lost_values_are_let_through(judge: Judge) -> None:
    mixed = numbers(8, 16).abs() + 1
    mixed[:, :3] *= 1e-7
    assert judge(Function(torch.expm1), lambda x: torch.exp(x) - 1, with_small(mixed)).passed


NOISE: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor], Tensor]] = {
    "centred": (
        lambda x: x - x.mean(-1, keepdim=True),
        lambda x: x - x.sum(-1, keepdim=True) / x.shape[-1],
        torch.full((8, 16), 0.1),
    ),
    "centred nearly": (
        lambda x: x - x.mean(-1, keepdim=True),
        lambda x: x - x.flip(-1).cumsum(-1)[:, -1:] / x.shape[-1],
        1 + numbers(8, 16) * 1e-6,
    ),
    "difference": (lambda x: (x + 3.3) - x, lambda x: (x - x) + 3.3, numbers(8, 16) * 100),
    "zero in theory": (lambda x: (x + 0.3) - x - 0.3, lambda x: (x - x) * 1.0, numbers(8, 16)),
    "variance": (
        lambda x: x.var(-1),
        lambda x: (x.square().mean(-1) - x.mean(-1).square()) * (16 / 15),
        numbers(8, 16),
    ),
    "zeros": (lambda x: x @ torch.ones(16, 16), lambda x: x @ torch.ones(16, 16), torch.zeros(8, 16)),
    "gelu tail": (F.gelu, lambda x: 0.5 * x * (1 + torch.erf(x * 0.70710678)), -5.5 - numbers(8, 16).abs() * 0.1),
}


@pytest.mark.parametrize("name", NOISE)
def test_noise_of_cancellation_is_let_through(judge: Judge, name: str) -> None:
    eager, other, values = NOISE[name]
    result = judge(Function(eager), other, with_small(values))
    assert result.passed, result.why


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    scale=st.sampled_from([1e-30, 1e-12, 1e-6, 1e-3, 1.0, 1e3]),
    seed=st.integers(0, 100),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    deep=st.integers(1, 4),
)
def test_another_order_of_sums_is_let_through_at_every_scale(
    tmp_path_factory: pytest.TempPathFactory, scale: float, seed: int, dtype: torch.dtype, deep: int
) -> None:
    torch.manual_seed(seed)
    layers = [nn.Linear(16, 16, bias=bool(i % 2)).to(dtype) for i in range(deep)]

    def other(x: Tensor) -> Tensor:
        for layer in layers:
            y = (layer.weight.flip(1)[None] * x.flip(1)[:, None]).sum(-1)
            x = F.elu(y if layer.bias is None else y + layer.bias)
        return x

    model = nn.Sequential(*[part for layer in layers for part in (layer, nn.ELU())]).eval()
    found = [*on(numbers(8, 16, dtype=dtype)), Case("scaled", Call((numbers(8, 16, seed=seed).to(dtype) * scale,), {}))]
    with torch.no_grad():
        result = judge_in(tmp_path_factory.mktemp("reference"))(model, other, found)
    assert result.passed, result.why


def test_the_gates_own_cases_find_all_of_these(tmp_path: Path) -> None:
    """Without a hand-made case: what a tuning run would have seen."""
    for name, (exact, loses) in GIVING_UP.items():
        load = Workload(Function(exact).eval(), torch.randn(8, 16))
        found = cases(load)
        reference = make_reference(load, found, tmp_path / name)
        assert check(exact, load, found, tmp_path / name, reference).passed
        assert not check(loses, load, found, tmp_path / name, reference).passed, name


# ---- integers --------------------------------------------------------------------------------------------------------

TRUNCATING: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "floor division": (lambda x: x // 2, lambda x: torch.div(x, 2, rounding_mode="trunc")),
    "remainder": (lambda x: x % 5, lambda x: torch.fmod(x, 5)),
    "sum in 32 bits": (lambda x: x.sum(), lambda x: x.sum(dtype=torch.int32).long()),
    "product in floats": (lambda x: x * 3, lambda x: (x.double() * 3).long()),
    "saturation": (
        lambda x: x.to(torch.int8) + 1,
        lambda x: (x.to(torch.int8).int() + 1).clamp(-128, 127).to(torch.int8),
    ),
    "absolute value": (lambda x: x, lambda x: x.abs()),
}


@pytest.mark.parametrize("name", TRUNCATING)
def test_integers_that_the_example_never_shows_are_judged(tmp_path: Path, name: str) -> None:
    right, wrong = TRUNCATING[name]
    load = Workload(Function(right).eval(), torch.arange(3, 60))
    found = cases(load)
    reference = make_reference(load, found, tmp_path)
    assert check(right, load, found, tmp_path, reference).passed
    result = check(wrong, load, found, tmp_path, reference)
    assert not result.passed
    assert "(case integers " in result.why


def test_an_index_is_never_bold_alone_in_eagers_eyes(tmp_path: Path) -> None:
    """Eager raises: the case is dropped by its name, the others are kept."""
    table = nn.Embedding(60, 4)
    load = Workload(table.eval(), torch.arange(3, 60))
    reference = make_reference(load, cases(load), tmp_path)
    assert reference.cases == ("example", "seed 1", "seed 2", "seed 3")
    dropped = [note for note in reference.notes if "dropped: eager raises IndexError" in note]
    assert [note.split("'")[1] for note in dropped] == ["integers beyond the example", "integers at the limits"]


def test_a_bold_case_that_the_candidates_guard_turns_down_is_a_note(tmp_path: Path) -> None:
    right = TRUNCATING["floor division"][0]
    load = Workload(Function(right).eval(), torch.arange(3, 60))
    found = cases(load)
    reference = make_reference(load, found, tmp_path)

    def beyond(refused: bool) -> Callable[[Call], Miss | None]:
        return lambda call: Miss("not in range", refused) if int(call.args[0].abs().max()) > 100 else None

    result = check(right, load, found, tmp_path, reference, missed=beyond(refused=True))
    assert result.passed
    assert "such calls go to eager: integers beyond the example (not in range)" in result.notes
    with pytest.raises(NotServed, match="integers beyond the example"):
        check(right, load, found, tmp_path, reference, missed=beyond(refused=False))
