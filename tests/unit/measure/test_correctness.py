"""The correctness gate: what it lets through and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from compilot._tree import Call
from compilot.errors import InputError
from compilot.measure import closeness, reference
from compilot.measure.correctness import check, make_reference
from compilot.records import Check, Reference


class Case(NamedTuple):
    name: str
    call: Call
    special: bool = False


class Job(NamedTuple):
    """Stands in for a workload."""

    model: nn.Module
    seed: int = 0
    grad: bool = False


class Function(nn.Module):
    """A model without weights, from a function."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def on(*inputs: Tensor) -> list[Case]:
    return [Case(f"seed {i}", Call((x,), {})) for i, x in enumerate(inputs)]


THREE = on(numbers(4, 8), numbers(4, 8, seed=1), torch.zeros(4, 8))


def mlp(dtype: torch.dtype = torch.float32) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 10)).to(dtype).eval()


@pytest.fixture
def judge(tmp_path: Path) -> Callable[..., Check]:
    def run(model: nn.Module, fn: Callable[..., Any], cases: list[Case] = THREE, **options: Any) -> Check:
        job = Job(model, **options)
        return check(fn, job, cases, tmp_path, make_reference(job, cases, tmp_path))

    return run


Judge = Callable[..., Check]


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
    result = judge(model, lambda x: torch.where(model(x) > 0.5, torch.nan, model(x)))
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
    assert result.why.startswith("1 cases agree")
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


# ---- state and randomness ------------------------------------------------------------------------------------------


class Norm(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.BatchNorm1d(8))
        self.train()


def test_batch_norm_in_train_mode_is_judged_from_the_same_buffers(judge: Judge) -> None:
    model = Norm()
    result = judge(model, model)
    assert result.passed
    assert any("changes the model's buffers" in note and "0.running_mean" in note for note in result.notes)
    assert model[0].num_batches_tracked == 0, "buffers are put back"


def test_buffers_must_end_as_eager_leaves_them(judge: Judge) -> None:
    model = Norm()
    result = judge(model, lambda x: nn.functional.batch_norm(x, None, None, training=True))
    assert "buffer 0.running_mean is left alone, eager changes it" in result.why


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.past: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.past.append(x)
        return torch.stack(self.past).sum(0)


def test_state_in_attributes_is_named_and_refused(judge: Judge) -> None:
    model = Counter()
    result = judge(model, model)
    assert not result.passed
    assert result.why.startswith("the model keeps state between calls (past)")


def test_dropout_passes_only_with_the_same_random_numbers(judge: Judge, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)).train()
    kept = make_reference(Job(model), THREE, tmp_path)
    assert kept.stochastic
    assert kept.seeded
    assert kept.kind == "eager"
    assert judge(model, model).passed

    def other_numbers(x: Tensor) -> Tensor:
        torch.rand(1)
        return model(x)

    result = judge(model, other_numbers)
    assert not result.passed
    assert result.why.endswith("draws other random numbers than eager: call model.eval()")


def test_randomness_that_no_seed_reaches_is_refused(judge: Judge) -> None:
    generator = torch.Generator().manual_seed(0)
    model = Function(lambda x: x + torch.rand(x.shape, generator=generator))
    result = judge(model, model)
    assert not result.passed
    assert result.why.startswith("the model is stochastic")
    assert result.why.endswith("call model.eval() or seed it")


def test_the_callers_random_state_is_left_alone(judge: Judge) -> None:
    model = nn.Dropout(0.5).train()
    before = torch.get_rng_state()
    judge(model, model)
    assert torch.equal(before, torch.get_rng_state())


# ---- the reference -------------------------------------------------------------------------------------------------


def test_a_case_on_which_eager_raises_is_dropped_and_noted(tmp_path: Path) -> None:
    model = mlp()
    cases = [*THREE, Case("batch 1", Call((torch.zeros(1, 3),), {}))]
    kept = make_reference(Job(model), cases, tmp_path)
    assert kept.cases == ("seed 0", "seed 1", "seed 2")
    assert any(note.startswith("case 'batch 1' dropped: eager raises RuntimeError: ") for note in kept.notes)
    assert check(model, Job(model), cases, tmp_path, kept).passed


def test_a_model_that_never_runs_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the model raises on every input"):
        make_reference(Job(nn.Linear(3, 3)), THREE, tmp_path)


def test_without_double_precision_eager_is_the_reference(judge: Judge) -> None:
    class Single(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x.float())  # float inputs meet double weights

    model = Single()
    result = judge(model, model)
    assert result.passed
    assert result.reference == "eager"
    assert any(note.startswith("no float64 reference for case 'seed 0': RuntimeError") for note in result.notes)
    assert judge(model, lambda x: model(x) * (1 + 1e-6)).passed
    assert not judge(model, lambda x: model(x) * 1.001).passed


def test_a_model_too_large_for_a_double_copy_is_noted(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "MEMORY_SHARE", 0.0)
    model = mlp()
    result = judge(model, model)
    assert result.reference == "eager"
    assert any("too large for the free memory" in note for note in result.notes)


def test_the_double_copy_leaves_the_model_alone(tmp_path: Path) -> None:
    model = mlp()
    model.scale = torch.ones(1)  # a tensor that is no buffer must be double in the copy too
    weights = [parameter.clone() for parameter in model.parameters()]
    assert make_reference(Job(model), THREE, tmp_path).kind == "float64"
    assert all(torch.equal(old, new) for old, new in zip(weights, model.parameters(), strict=True))


def test_inputs_that_differ_from_the_references_are_told(tmp_path: Path) -> None:
    model = mlp()
    kept = make_reference(Job(model), THREE, tmp_path)
    others = [Case(case.name, Call((case.call.args[0] + 1,), {})) for case in THREE]
    assert "equal seeds must give equal inputs" in check(model, Job(model), others, tmp_path, kept).why


def test_an_exception_names_the_case_and_its_type(judge: Judge) -> None:
    def broken(x: Tensor) -> Tensor:
        raise ValueError("no kernel\nsecond line")

    assert judge(mlp(), broken).why == "raises ValueError: no kernel (case seed 0)"


def test_a_reference_read_back_elsewhere_gives_the_same_check(tmp_path: Path) -> None:
    model = mlp()
    kept = make_reference(Job(model), THREE, tmp_path)
    travelled = msgspec.json.decode(msgspec.json.encode(kept), type=Reference)
    assert check(model, Job(model), THREE, tmp_path, travelled) == check(model, Job(model), THREE, tmp_path, kept)


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
    layers = [layer for i, o in zip(widths, widths[1:], strict=False) for layer in (nn.Linear(i, o), nn.Tanh())]
    model = nn.Sequential(*layers).to(dtype)
    cases = on(*(numbers(batch, widths[0], seed=seed + i, dtype=dtype) * scale for i in range(2)))
    folder = tmp_path_factory.mktemp("reference")
    result = check(model, Job(model), cases, folder, make_reference(Job(model), cases, folder))
    assert result.passed, result.why
