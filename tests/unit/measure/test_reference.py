"""What candidates are compared with: float64, randomness, state, dropped cases."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import torch
from judging import THREE, Case, Function, Job, Judge, judge_in, mlp, numbers
from torch import Tensor, nn

from compilot._tree import Call
from compilot.errors import InputError
from compilot.measure import reference
from compilot.measure.correctness import check, make_reference
from compilot.records import Reference
from compilot.workload import Workload
from compilot.workload.variations import cases


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    return judge_in(tmp_path)


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
    assert result.why.endswith("draws other random numbers than eager")


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


def test_unequal_sizes_are_judged_only_where_eager_answers_them_both_ways_round(tmp_path: Path) -> None:
    def unequal(longer: int, other: int) -> Case:
        call, mirror = (Call((numbers(a, 8), numbers(b, 8)), {}) for a, b in ((longer, other), (other, longer)))
        return Case("unequal", call, mirror=mirror)

    equal = Case("equal", Call((numbers(4, 8), numbers(4, 8)), {}))
    kept = {
        name: make_reference(Job(Function(fn)), [equal, unequal(4, 3)], tmp_path / name)
        for name, fn in {
            "apart": lambda x, mask: x.mean(0) + mask.mean(0),
            "tied": lambda x, mask: x * mask,
            "cut to length": lambda x, mask: x * mask[torch.arange(len(x))],
        }.items()
    }
    assert {name: reference.cases[1:] for name, reference in kept.items()} == {
        "apart": ("unequal",),
        "tied": (),
        "cut to length": (),
    }
    assert not kept["tied"].notes


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


def test_a_model_that_refers_to_itself_is_still_probed(tmp_path: Path) -> None:
    model = nn.Dropout(0.5).train()
    model.registry = {}
    model.registry["self"] = model.registry
    assert make_reference(Job(model), THREE, tmp_path).stochastic


def test_the_real_workload_and_its_cases_fit(tmp_path: Path) -> None:
    workload = Workload(mlp(), (numbers(4, 8),), dynamic={"input": {0: (1, 6)}})
    kept = make_reference(workload, cases(workload), tmp_path)
    assert {"zeros", "large", "tiny", "nan", "inf", "smallest", "largest"} <= set(kept.cases)
    assert check(workload.model, workload, cases(workload), tmp_path, kept).passed
    refused = check(lambda x: workload.model(x)[:4], workload, cases(workload), tmp_path, kept)
    assert "(case largest)" in refused.why
