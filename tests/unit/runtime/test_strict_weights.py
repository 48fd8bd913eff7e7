"""Row 36 with strict_weights=True: every write that raises a tensor's version, and every tensor that was moved or
exchanged, is noticed before the next answer."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from file_engine import plan_for
from hypothesis import given, settings
from hypothesis import strategies as st
from replaceable import Constant, X
from torch import nn

from compilot._torch import dicts
from compilot.engines import registry
from compilot.errors import CompilotWarning, FallbackWarning, InputError
from compilot.runtime import Fast
from compilot.runtime import compile as apply_plan
from compilot.runtime.weight_watch import INSPECT_EVERY, SMALL_EVERY

ENGINE = "constant"
LAYERS = 12  # more weights than have their turn in the first calls


class Deep(nn.Module):
    """Each of its tensors changes its answer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(LAYERS))
        self.register_buffer("scale", torch.ones(3))
        self.table = torch.ones(3)
        self.tables = {"rows": [torch.ones(3)]}
        self.hidden = [nn.Linear(3, 3)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answers = [layer(x) for layer in (*self.layers, *self.hidden)]
        return torch.stack(answers).sum(0) * self.scale * self.table * self.tables["rows"][0]

    def tensor(self, number: int) -> torch.Tensor:
        own = [self.scale, self.table, self.tables["rows"][0]]
        return [*self.layers.parameters(), *self.hidden[0].parameters(), *own][number]


TENSORS = 2 * LAYERS + 5


@pytest.fixture(autouse=True)
def engine() -> Iterator[None]:
    registry.register(ENGINE, None, Constant())
    yield
    registry.unregister(ENGINE)


def strict(model: nn.Module, **options: Any) -> Fast:
    return apply_plan(model, plan_for(model, ENGINE, X), strict=True, strict_weights=True, **options)


def in_place(tensor: torch.Tensor) -> None:
    tensor.add_(1)


def one_element(tensor: torch.Tensor) -> None:
    tensor.view(-1)[0] += 1


def through_a_view(tensor: torch.Tensor) -> None:
    tensor[:1].mul_(3)


def through_detach(tensor: torch.Tensor) -> None:
    tensor.detach().add_(1)


def by_set(tensor: torch.Tensor) -> None:
    tensor.set_(tensor + 1)


def by_data_assigned(tensor: torch.Tensor) -> None:
    tensor.data = tensor.data + 1


def by_copy(tensor: torch.Tensor) -> None:
    tensor.copy_(tensor + 1)


WRITES = [in_place, one_element, through_a_view, through_detach, by_set, by_data_assigned, by_copy]


@pytest.mark.usefixtures("no_grad")
@given(st.sampled_from(WRITES), st.integers(0, TENSORS - 1), st.integers(0, 2 * SMALL_EVERY))
@settings(max_examples=80, deadline=None, derandomize=True)
def test_row_36_any_write_to_any_tensor_is_noticed_before_the_next_answer(write, number, calls_before):
    torch.manual_seed(0)
    model = Deep().eval()
    fast = strict(model)
    for _ in range(3 + calls_before):
        assert torch.equal(fast(X), model(X))
    assert fast.stats().fast == 3 + calls_before
    old = model(X)
    write(model.tensor(number))
    with pytest.warns(CompilotWarning, match="changed"):
        answer = fast(X)
    assert torch.equal(answer, model(X))
    assert not torch.equal(answer, old)


def parameter_assigned(model: Deep) -> None:
    model.layers[5].weight = nn.Parameter(torch.ones(3, 3))


def parameter_behind_torchs_back(model: Deep) -> None:
    model.layers[5]._parameters["weight"] = nn.Parameter(torch.ones(3, 3))


def buffer_behind_torchs_back(model: Deep) -> None:
    model._buffers["scale"] = torch.zeros(3)


def one_layer_converted(model: Deep) -> None:
    model.layers[5].weight.data.add_(1)
    model.layers[5].bfloat16().float()


def attribute_assigned(model: Deep) -> None:
    model.table = torch.zeros(3)


def tensors_swapped(model: Deep) -> None:
    torch.utils.swap_tensors(model.layers[5].weight, nn.Parameter(torch.ones(3, 3)))


EXCHANGES = [
    parameter_assigned,
    parameter_behind_torchs_back,
    buffer_behind_torchs_back,
    one_layer_converted,
    attribute_assigned,
    tensors_swapped,
]


@pytest.mark.usefixtures("no_grad")
@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("writes", [dicts.writes, lambda _: None], ids=["numbers of writes", "value by value"])
def test_row_36_any_tensor_in_anothers_place_is_noticed_before_the_next_answer(monkeypatch, exchange, writes):
    monkeypatch.setattr(dicts, "writes", writes)
    model = Deep().eval()
    fast = strict(model)
    _ = [fast(X) for _ in range(3)]
    old = model(X)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exchange(model)
        answer = fast(X)
    assert torch.equal(answer, model(X))
    assert not torch.equal(answer, old)
    assert [w.category for w in caught] == [FallbackWarning]


@pytest.mark.usefixtures("no_grad")
def test_row_36_one_parameter_given_for_one_call():
    model = Deep().eval()
    fast = strict(model)
    _ = [fast(X) for _ in range(3)]
    given_now = {"layers.5.weight": torch.ones(3, 3)}
    with pytest.warns(CompilotWarning, match="changed"):
        answer = torch.func.functional_call(fast, given_now, (X,))
    assert torch.equal(answer, torch.func.functional_call(model, given_now, (X,)))


@pytest.mark.usefixtures("no_grad")
@pytest.mark.parametrize("inplace", [False, True])
def test_without_a_write_every_call_is_fast(inplace):
    model = Deep().eval()
    expected = copy.deepcopy(model)(X)
    fast = strict(model, inplace=inplace)
    for _ in range(INSPECT_EVERY + 5):
        assert torch.equal(fast(X), expected)
    model.table = model.table  # a write that changes nothing: the hot path opens again
    model.layers[0]._parameters["weight"] = model.layers[0].weight
    before = fast.stats().fast
    for _ in range(5):
        assert torch.equal(fast(X), expected)
    assert fast.stats().fast == before + 5
    assert type(fast)._compilot_core._gate.served() >= INSPECT_EVERY + 5  # by the hot path, not by the slow one


@pytest.mark.usefixtures("no_grad")
def test_a_refresh_is_strict_again():
    model = Deep().eval()
    fast = strict(model)
    fast(X)
    for _ in range(2):
        model.layers[7].weight.mul_(2)
        with pytest.warns(CompilotWarning, match=r"weights changed.*refresh\(\)"):
            assert torch.equal(fast(X), model(X))
        fast.refresh()
        for _ in range(3):
            assert torch.equal(fast(X), model(X))
    assert copy.deepcopy(fast).stats().calls == 0


@pytest.mark.usefixtures("no_grad")
def test_a_copy_is_strict_too():
    model = Deep().eval()
    fast = copy.deepcopy(strict(model))
    _ = [fast(X) for _ in range(3)]
    fast.layers[9].bias.add_(1)
    with pytest.warns(CompilotWarning, match="weights changed"):
        fast(X)


def test_there_is_nothing_to_watch_without_a_model():
    with pytest.raises(InputError, match=r"strict_weights=True.*keep_model=False.*choose one"):
        strict(Deep().eval(), keep_model=False)


def test_weights_without_a_version_are_refused():
    with torch.inference_mode():
        model = Deep().eval()
    with pytest.raises(InputError, match=r"strict_weights=True cannot be used.*inference mode"):
        strict(model)


def sparse_buffer(model: nn.Module) -> torch.Tensor:
    model.register_buffer("adjacency", torch.eye(3).to_sparse())
    return model.adjacency


@pytest.mark.usefixtures("no_grad")
def test_tensors_without_an_address_are_watched_by_their_version():
    model = Deep().eval()
    buffer = sparse_buffer(model)
    fast = strict(model)
    _ = [fast(X) for _ in range(3)]
    assert fast.stats().fast == 3
    buffer.mul_(2)
    with pytest.warns(CompilotWarning, match="weights changed"):
        fast(X)


class Many(nn.Module):
    """As many tensors as wanted."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.all = nn.ParameterList(torch.full((3,), 0.5) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.stack([*self.all]).sum(0)


WINDOWS = {1: 8, 2: 8, 3: 16, 29: 120, 30: 120, 63: 256, 64: 32, 65: 33, 100: 50, 511: 256}  # docs/tune.md, by tensors


def calls_until_noticed(model: nn.Module, number: int, calls_before: int) -> int:
    """Which call after a write was the first with the new answer; one warning is all that is said."""
    fast = apply_plan(model, plan_for(model, ENGINE, X), strict=True)
    _ = [fast(X) for _ in range(calls_before)]
    [*model.parameters()][number].add_(1)
    expected = model(X)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        right = [torch.equal(fast(X), expected) for _ in range(300)]
    first = right.index(True)
    assert all(right[first:])
    assert [w.category for w in caught] == [FallbackWarning]
    return first + 1


@pytest.mark.usefixtures("no_grad")
@given(st.sampled_from([*WINDOWS]), st.integers(0, 10_000), st.integers(3, 300))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_the_default_has_the_window_that_is_documented(count, number, calls_before):
    assert calls_until_noticed(Many(count).eval(), number % count, calls_before) <= WINDOWS[count]


@pytest.mark.usefixtures("no_grad")
@pytest.mark.parametrize("count", [3, 4, 5, 65])
def test_some_write_is_noticed_no_sooner(count):
    """The second tensor's: the last one is looked at in every call, and the first fills up an odd row."""
    expected = (count + 1) // 2 * (8 if count < 64 else 1)
    found = [calls_until_noticed(Many(count).eval(), 1, calls) for calls in range(3, 4 + expected)]
    assert max(found) == expected
