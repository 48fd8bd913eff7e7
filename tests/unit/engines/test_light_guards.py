"""Light guards: torch checks the inputs of a call, compilot watches the model. Without a compiler: backend eager."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from compilot._torch import compiling
from compilot._torch.light_guards import LightGuards
from compilot._tree import Call
from compilot.engines.inductor.load import load
from compilot.engines.protocol import Follows, Infeasible, LoadRequest
from compilot.errors import FallbackWarning
from compilot.records import Candidate, Settings, Shapes
from compilot.runtime.fast import Fast, attach
from compilot.runtime.gate import CODE_CHANGED
from compilot.runtime.guards import make_guard
from compilot.runtime.notices import CompilotWarning
from compilot.runtime.weight_watch import INSPECT_EVERY

X = torch.linspace(-1.0, 1.0, 12).reshape(4, 3)
SCALE = 2.0


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop = nn.Linear(3, 3), nn.Dropout(0.5)
        self.factor = 2.0

    def shift(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def forward(self, x: torch.Tensor, negative: bool = False) -> torch.Tensor:
        x = self.shift(self.drop(self.first(x))) * self.factor * SCALE
        return -x if negative else x


def made() -> Model:
    torch.manual_seed(0)

    class Own(Model):  # a class of its own: tests replace methods
        shift = Model.shift

    return Own().eval()


def settings(light: bool = True) -> Settings:
    return Settings(engine="dynamo:eager", options={"light_guards": light})


def fast_of(model: nn.Module, x: torch.Tensor = X, *, light: bool = True, **how: Any) -> Fast:
    call = Call((x,), {})
    shapes = Shapes.DYNAMIC if how.get("dynamic") else Shapes.STATIC
    guard = make_guard(model, call, dynamic=how.get("dynamic", ()), shapes=shapes, grad=False)
    candidate = Candidate(settings=settings(light), label="light", rationale="test")
    return attach(model, candidate, guard, None)


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def kept(model: nn.Module, *, weights_too: bool) -> tuple[list[str], list[str]]:
    """The guards of one frame that stay, and those that go."""
    stays: list[str] = []
    goes: list[str] = []

    class Noting(LightGuards):
        def __call__(self, entries: Any) -> list[bool]:
            found = super().__call__(entries)
            for entry, stay in zip(entries, found, strict=True):
                (stays if stay else goes).append(f"{entry.guard_type} {entry.name}".strip())
            return found

    light = Noting(model, weights_too=weights_too)
    run = compiling.compile_module(
        model, backend="eager", options={}, dynamic=False, recompile_limit=4, guard_filter=light
    )
    with light.compiling():
        run(X)
    return stays, goes


@pytest.mark.parametrize("model", [made(), nn.Sequential(nn.Linear(3, 3), nn.Tanh()).eval()], ids=["own", "torch's"])
def test_guards_of_the_model_go_and_those_of_inputs_and_torchs_state_stay(model: nn.Module) -> None:
    stays, goes = kept(model, weights_too=True)
    assert len(goes) > len(stays)
    assert {"GRAD_MODE", "GLOBAL_STATE", "SHAPE_ENV", "DETERMINISTIC_ALGORITHMS"} <= set(stays)
    assert sum(guard.startswith("TENSOR_MATCH") for guard in stays) == 1  # the input's
    assert not any("_parameters" in guard or "_modules" in guard for guard in stays)


def test_shapes_and_dtypes_of_weights_stay_guarded_unless_they_are_constants() -> None:
    stays, _ = kept(made(), weights_too=False)
    assert sum(guard.startswith("TENSOR_MATCH") for guard in stays) == 3  # the input, weight and bias
    assert any("SCALE" in guard for guard in stays)  # a global of the user


def test_the_runtime_is_told_to_watch_the_model() -> None:
    model = made()
    guard = make_guard(model, Call((X,), {}), dynamic=(), shapes=Shapes.STATIC, grad=False)
    follows = [load(LoadRequest(model, guard, settings(light), None)).follows for light in (True, False)]
    assert follows == [Follows.NOTHING, Follows.GUARDED]


def attribute(model: Any) -> None:
    model.factor = 7.0


def method(model: Any) -> None:
    type(model).shift = lambda self, x: x + 100


def submodule(model: Any) -> None:
    model.first = nn.Linear(3, 3)


@pytest.mark.parametrize("change", [attribute, method, submodule])
def test_a_changed_model_is_noticed_within_the_window_and_refresh_takes_it(change: Callable[[Any], None]) -> None:
    model = made()
    fast = fast_of(model)
    for _ in range(3):
        assert torch.equal(fast(X), model(X))
    old = model(X)
    change(model)
    assert not torch.equal(model(X), old)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CompilotWarning)
        answers = [fast(X) for _ in range(INSPECT_EVERY + 1)]
    assert torch.equal(answers[-1], model(X))
    assert [w.category for w in caught] == [FallbackWarning]
    assert set(fast.stats().fallbacks) == {CODE_CHANGED}
    fast.refresh()
    served = fast.stats().fast
    assert torch.equal(fast(X), model(X))
    assert fast.stats().fast == served + 1


def test_another_forward_is_noticed_before_the_next_answer() -> None:
    model: Any = made()
    fast = fast_of(model)
    assert torch.equal(fast(X), model(X))
    model.forward = lambda x: x * 7
    with pytest.warns(CompilotWarning, match="code or attributes"):
        assert torch.equal(fast(X), X * 7)


def test_a_changed_weight_is_read_in_the_next_call() -> None:
    model = made()
    fast = fast_of(model)
    old = fast(X)
    model.first.weight.mul_(3)
    assert torch.equal(fast(X), model(X))
    assert not torch.equal(fast(X), old)
    model.load_state_dict({name: value + 1 for name, value in model.state_dict().items()})
    assert torch.equal(fast(X), model(X))
    assert fast.stats().fallbacks == {}


def test_weights_of_another_dtype_are_never_read_as_the_old_one() -> None:
    model = made()
    fast = fast_of(model)
    fast(X)
    model.double()  # the parameter objects stay
    with pytest.raises(RuntimeError, match="dtype"):  # as eager does
        model(X)
    warnings.simplefilter("ignore", CompilotWarning)
    with pytest.raises(RuntimeError, match="dtype"):
        fast(X)


def test_train_mode_is_eagers_and_eval_comes_back() -> None:
    model = made()
    fast = fast_of(model)
    fast(X)
    model.train()
    torch.manual_seed(1)
    expected = model(X)
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CompilotWarning)
        assert torch.equal(fast(X), expected)
    model.eval()
    served = fast.stats().fast
    assert torch.equal(fast(X), model(X))
    assert fast.stats().fast == served + 1


def test_variants_by_plain_values_are_not_mixed_up() -> None:
    model = made()
    fast = fast_of(model)
    for _ in range(2):
        assert torch.equal(fast(X), model(X))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CompilotWarning)
            assert torch.equal(fast(X, negative=True), model(X, negative=True))
    light = LightGuards(model, weights_too=False)
    two = compiling.compile_module(
        model, backend="eager", options={}, dynamic=False, recompile_limit=4, guard_filter=light
    )
    for negative in (False, True, False):
        with light.compiling():
            assert torch.equal(two(X, negative), model(X, negative))


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = 3.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale if x.shape[0] > 4 else x - self.scale


def test_bounds_of_sizes_stay_guarded() -> None:
    model, before = Branches().eval(), compiling.graphs_built()
    light = LightGuards(model, weights_too=False)
    run = compiling.compile_module(
        model, backend="eager", options={}, dynamic=True, recompile_limit=4, guard_filter=light
    )
    for rows in (3, 4, 5, 9, 2):
        x = torch.ones(rows, 7)
        with light.compiling():
            assert torch.equal(run(x), model(x))
    assert compiling.graphs_built() == before + 2  # one program for each branch


class Broken(nn.Module):
    """Two modules share a method, and something stops the trace in it."""

    def __init__(self, inner: nn.Module, factor: float) -> None:
        super().__init__()
        self.inner, self.factor = inner, factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * self.factor
        torch._dynamo.graph_break()
        return self.inner(x)


def test_a_model_of_several_graphs_is_refused() -> None:
    model = Broken(Broken(nn.Identity(), 3.0), 2.0).eval()
    fast = fast_of(model)
    with pytest.raises(Infeasible, match=r"light_guards needs a model that torch\.compile takes as one graph"):
        fast.prepare(Call((X,), {}))
    plain = fast_of(model, light=False)
    assert torch.equal(plain(X), model(X))
    assert plain.stats().fast == 1


def test_hooks_of_the_model_are_further_programs_and_refused() -> None:
    model = made()
    model.register_forward_hook(lambda module, args, answer: answer * module.factor)
    with pytest.raises(Infeasible, match=r"torch.compile made \d programs of one call"):
        fast_of(model).prepare(Call((X,), {}))


def test_what_torch_compiles_by_itself_has_all_of_its_guards() -> None:
    model = made()
    light = LightGuards(model, weights_too=False)
    run = compiling.compile_module(
        model, backend="eager", options={}, dynamic=False, recompile_limit=4, guard_filter=light
    )
    assert torch.equal(run(X), model(X))  # nobody is preparing
    model.factor = 7.0
    assert torch.equal(run(X), model(X))
