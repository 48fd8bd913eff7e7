"""Cases on which eager raises do not pass in silence: who answers there is told apart from who raises too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from judging import Case, Function, Job, numbers
from torch import Tensor

from compilot._tree import Call
from compilot.measure.correctness import Miss, check, make_reference
from compilot.measure.raising import may_end_the_process
from compilot.records import Check, Raising


def positive(x: Tensor) -> Tensor:
    if (x < 0).any():
        raise ValueError("negative input")
    return x * 2


def no_zeros(x: Tensor) -> Tensor:
    torch._assert_async((x != 0).any(), "all zeros")
    return x * 2


def asserted(x: Tensor) -> Tensor:
    assert x.max() < 1e3, "too large"
    return x * 2


def divides(x: Tensor) -> Tensor:
    return x * (10 // int(x.sum().sign().abs()))


CASES = [
    Case("seed 1", Call((numbers(4, 8).abs(),), {})),
    Case("zeros", Call((torch.zeros(4, 8),), {})),
    Case("negative", Call((-numbers(4, 8).abs(),), {})),
    Case("also negative", Call((-numbers(4, 8, seed=1).abs(),), {})),
    Case("large", Call((numbers(4, 8).abs() * 1e4,), {})),
]
KINDS: dict[str, tuple[Callable[[Tensor], Tensor], str, str]] = {
    "raise": (positive, "ValueError", "negative"),
    "assert_async": (no_zeros, "RuntimeError", "zeros"),
    "assert": (asserted, "AssertionError", "large"),
    "divide": (divides, "ZeroDivisionError", "zeros"),
}


def judged(model: Callable[[Tensor], Tensor], fn: Callable[[Tensor], Tensor], folder: Path, **given: object) -> Check:
    job = Job(Function(model))
    return check(fn, job, CASES, folder, make_reference(job, CASES, folder), **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_who_answers_where_eager_raises_passes_with_a_caveat(kind: str, tmp_path: Path):
    model, error, case = KINDS[kind]
    factor = 10.0 if model is divides else 2.0
    result = judged(model, lambda x: x * factor, tmp_path)
    assert result.passed, result.why
    [caveat] = result.caveats
    assert caveat.startswith(f"eager raises {error} on case '{case}'")
    assert "answers instead: checks inside the model are not part of its compiled form" in caveat


@pytest.mark.parametrize("kind", KINDS)
def test_who_raises_too_has_nothing_to_answer_for(kind: str, tmp_path: Path):
    model = KINDS[kind][0]
    assert judged(model, model, tmp_path).caveats == ()


def test_cases_with_the_same_error_are_one_sentence_with_the_message(tmp_path: Path):
    [caveat] = judged(positive, lambda x: x * 2, tmp_path).caveats
    assert "on case 'negative', 'also negative' (negative input);" in caveat


def test_a_call_that_is_not_the_candidates_is_eagers_to_refuse(tmp_path: Path):
    called: list[Tensor] = []

    def fn(x: Tensor) -> Tensor:
        called.append(x)
        return x * 2

    result = judged(positive, fn, tmp_path, takes=lambda call: False)
    assert (result.passed, result.caveats) == (True, ())
    assert called
    assert not any((x < 0).any() for x in called)


def test_eagers_own_answer_is_not_the_candidates(tmp_path: Path):
    """A check that raises once only: the candidate's call was left to eager, which answered it."""

    def missed(call: Call) -> Miss | None:
        return Miss("turned down", refused=True) if (call.args[0] < 0).any() else None

    assert judged(positive, lambda x: x * 2, tmp_path, missed=missed).caveats == ()


def test_a_wrong_candidate_is_not_tried_on_them(tmp_path: Path):
    result = judged(positive, lambda x: x * 3, tmp_path)
    assert not result.passed
    assert result.caveats == ()


def test_bad_indices_are_not_tried_but_said(tmp_path: Path):
    table, ids = torch.randn(4, 2), torch.tensor([0, 3])
    cases = [Case("seed 1", Call((ids,), {})), Case("beyond", Call((ids + 1,), {}))]
    job = Job(Function(lambda ids: table[ids]))
    tried: list[Tensor] = []

    def fn(ids: Tensor) -> Tensor:
        tried.append(ids)
        return table[ids.clamp(0, 3)]

    [caveat] = check(fn, job, cases, tmp_path, make_reference(job, cases, tmp_path)).caveats
    assert caveat.startswith("eager raises IndexError on case 'beyond'")
    assert "not tried" in caveat
    assert {tuple(ids.tolist()) for ids in tried} == {(0, 3)}


@pytest.mark.parametrize(
    "run",
    [
        lambda: torch.nn.functional.embedding(torch.tensor([9]), torch.randn(4, 2)),
        lambda: torch.randn(4).gather(0, torch.tensor([-9])),
        lambda: torch.zeros(4).scatter(0, torch.tensor([9]), 1.0),
        lambda: torch.randn(4).index_select(0, torch.tensor([9])),
        lambda: torch.nn.functional.cross_entropy(torch.randn(1, 4), torch.tensor([9])),
        lambda: torch.zeros(4).index_put((torch.tensor([9]),), torch.tensor(1.0)),
        lambda: torch.take(torch.randn(4), torch.tensor([9])),
    ],
)
def test_torchs_words_for_a_bad_index_are_known(run: Callable[[], Tensor]):
    with pytest.raises((IndexError, RuntimeError)) as caught:
        run()
    assert may_end_the_process(Raising(case="", error=caught.type.__name__, message=str(caught.value)))


def test_other_errors_are_tried():
    assert not may_end_the_process(Raising(case="", error="ValueError", message="negative input"))
    with pytest.raises(RuntimeError) as caught:
        torch.linalg.cholesky(-torch.eye(2))
    assert not may_end_the_process(Raising(case="", error="LinAlgError", message=str(caught.value)))
