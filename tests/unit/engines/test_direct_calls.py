"""Programs of torch.compile that are entered past its wrapper: same answers, same recompiles, same guards.

Without a compiler: backend eager. What goes through torch's wrapper is counted.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from compilot._torch import compiling
from compilot._torch.direct import MOST, Direct
from compilot.engines.inductor.load import _around
from compilot.records import Settings

X = torch.linspace(-1.0, 1.0, 12).reshape(4, 3)
SCALE = 2.0


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.factor = 2.0
        self.kept: list[float] = []

    def forward(self, x: torch.Tensor, negative: bool = False, *, shift: float = 1.0) -> torch.Tensor:
        x = self.first(x) * self.factor * SCALE + shift
        return -x if negative else x


class Broken(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        x = self.first(x)
        torch._dynamo.graph_break()
        return x * self.factor


class Compiled(NamedTuple):
    model: Any
    run: Callable[..., Any]
    direct: Direct
    through: list[int]  # one per call that went through torch's wrapper


def counted(through: list[int], compiled: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(compiled)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        through.append(1)
        return compiled(*args, **kwargs)

    return wrapper


def compiled(model: nn.Module, *args: Any, dynamic: bool | None = False, learn: bool = True, **kwargs: Any) -> Compiled:
    direct, through = Direct(), list[int]()
    run = compiling.compile_module(
        model,
        backend="eager",
        options={},
        dynamic=dynamic,
        recompile_limit=4,
        around=lambda made: direct.around(counted(through, made)),
    )
    if learn:
        with direct.learning():
            run(*(args or (X,)), **kwargs)
        through.clear()
    return Compiled(model, run, direct, through)


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield
    torch._dynamo.reset()


def right(made: Compiled, *args: Any, **kwargs: Any) -> bool:
    given = args or (X,)
    return torch.equal(made.run(*given, **kwargs), made.model(*given, **kwargs))


def sequential() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 3), nn.Tanh())


class Wrapped(Model):
    """Its forward stands behind a decorator with a closure, as those of Hugging Face's models do."""

    @staticmethod
    def plain(forward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(forward)
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            return forward(self, *args, **kwargs)

        return wrapper

    forward = plain(Model.forward)


@pytest.mark.parametrize("make", [Model, sequential, Wrapped])
def test_a_known_program_is_entered_past_the_wrapper(make: Callable[[], nn.Module]) -> None:
    made = compiled(make())
    assert made.direct.programs == 1
    assert right(made)
    assert right(made, X + 1)
    assert not made.through


def test_nothing_is_known_before_it_was_learnt() -> None:
    made = compiled(Model(), learn=False)
    assert right(made)
    assert right(made)
    assert len(made.through) == 2
    assert made.direct.programs == 0


@pytest.mark.parametrize("kwargs", [{"negative": True}, {"shift": 3.0}, {"negative": True, "shift": 3.0}])
def test_other_arguments_are_another_program(kwargs: dict[str, Any]) -> None:
    made = compiled(Model())
    assert right(made, **kwargs)
    assert made.through == [1]
    with made.direct.learning():
        made.run(X, **kwargs)
    made.through.clear()
    assert made.direct.programs == 2
    assert right(made)
    assert right(made, **kwargs)
    assert not made.through


def test_wrong_arguments_are_the_models_own_error() -> None:
    made = compiled(Model())
    with pytest.raises(TypeError, match="forward"):
        made.run(X, nothing_of_this_name=1)


@pytest.mark.parametrize(
    "other",
    [X.double()[:, :3], X[:2], X.t().contiguous().t(), X.clone().requires_grad_()],
    ids=["dtype", "size", "stride", "requires-grad"],
)
def test_torchs_guards_on_inputs_hold(other: torch.Tensor) -> None:
    made = compiled(Model())
    made.model.to(other.dtype)
    assert right(made, other)
    assert made.through == [1]


def test_torchs_guards_on_the_model_hold() -> None:
    made = compiled(Model())
    made.model.factor = 5.0
    assert right(made)
    assert made.through == [1]
    made.model.first = nn.Linear(3, 3, bias=False)
    assert right(made)
    assert made.through == [1, 1]


def test_new_values_of_weights_need_no_other_program() -> None:
    made = compiled(Model())
    made.model.first.weight.mul_(3.0)
    assert right(made)
    assert not made.through
    made.model.load_state_dict(Model().state_dict())
    assert right(made)
    assert not made.through


def test_torchs_guards_on_globals_and_modes_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    made = compiled(Model())
    with torch.enable_grad():
        assert made.run(X).requires_grad
        assert made.through == [1]
    monkeypatch.setitem(globals(), "SCALE", 7.0)
    assert right(made)
    assert made.through == [1, 1]


def test_another_forward_or_class_is_noticed() -> None:
    made = compiled(Model())

    class Other(Model):
        def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return x - 1

    made.model.__class__ = Other
    assert right(made)
    assert made.through == [1]
    own = compiled(Model())
    own.model.forward = lambda x: x * 9
    assert right(own)
    assert own.through == [1]


def test_hooks_run_as_torch_runs_them() -> None:
    made = compiled(Model())
    seen: list[int] = []
    handle = made.model.register_forward_hook(lambda *_: seen.append(1))
    made.run(X)
    assert made.through == [1]
    handle.remove()
    calls = len(seen)
    assert right(made)
    assert made.through == [1]
    assert len(seen) == calls == 1


def test_graph_breaks_go_through_the_wrapper() -> None:
    made = compiled(Broken())
    assert made.direct.programs == 0
    assert right(made)
    assert made.through == [1]


def test_after_a_reset_torch_compiles_again() -> None:
    made = compiled(Model())
    torch._dynamo.reset()
    built = compiling.graphs_built()
    assert right(made)
    assert made.through == [1]
    assert compiling.graphs_built() == built + 1


def test_a_stance_is_respected() -> None:
    made = compiled(Model())
    with torch.compiler.set_stance("force_eager"):
        assert right(made)
        assert made.through == [1]
    assert right(made)
    assert made.through == [1]


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace.*:DeprecationWarning")
def test_while_something_else_traces_torchs_wrapper_decides() -> None:
    made = compiled(Model())
    with pytest.raises(RuntimeError, match="trace"):
        torch.jit.trace(lambda x: made.run(x), (X,))
    assert made.through == [1]
    whole = torch.compile(lambda x: made.run(x) + 1, backend="eager", fullgraph=False)
    assert torch.equal(whole(X), made.model(X) + 1)


def test_two_callables_of_one_model_do_not_mix() -> None:
    model = Model()
    first = compiled(model)
    calls: list[int] = []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            calls.append(1)
            return graph(*args)

        return run

    direct = Direct()
    second = compiling.compile_module(
        model, backend=backend, options={}, dynamic=False, recompile_limit=4, around=direct.around
    )
    with direct.learning():
        second(X)
    calls.clear()
    first.run(X)
    assert not calls
    assert not first.through
    second(X)
    assert calls == [1]
    assert direct.programs == 1


def test_modules_that_are_alike_share_a_known_program() -> None:
    modules = [Model() for _ in range(3)]
    direct, through = Direct(), list[int]()
    run = compiling.compile_for_all(
        backend="eager",
        options={},
        dynamic=False,
        recompile_limit=4,
        around=lambda made: direct.around(counted(through, made)),
    )
    with direct.learning():
        for module in modules:
            run(module, X)
    assert through == [1]
    assert direct.programs == 1
    for module in modules:
        assert torch.equal(run(module, X), module(X))
    modules[1].factor = 9.0
    assert torch.equal(run(modules[1], X), modules[1](X))
    assert through == [1, 1]


def test_a_program_about_an_object_that_is_gone_is_not_used() -> None:
    holder = {"scale": torch.ones(3)}

    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.holder = holder

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.holder["scale"]

    made = compiled(Reads())
    made.model.holder = {"scale": torch.full((3,), 5.0)}
    assert right(made)
    made.model.holder = {"scale": torch.full((3,), 5.0, dtype=torch.float64)}
    assert right(made)


def test_programs_beyond_the_most_go_through_the_wrapper() -> None:
    direct, through = Direct(), list[int]()
    run = compiling.compile_module(
        Model(),
        backend="eager",
        options={},
        dynamic=False,
        recompile_limit=MOST + 4,
        around=lambda made: direct.around(counted(through, made)),
    )
    with direct.learning():
        for rows in range(2, MOST + 4):
            run(torch.ones(rows, 3))
    assert direct.programs == MOST
    through.clear()
    run(torch.ones(MOST + 3, 3))
    assert through == [1]
    run(torch.ones(2, 3))
    assert through == [1]


def test_only_the_learning_thread_is_learnt_from() -> None:
    made = compiled(Model(), learn=False)
    with made.direct.learning():
        other = threading.Thread(target=lambda: made.run(X))
        other.start()
        other.join()
    assert made.direct.programs == 0


def test_the_forward_of_another_model_is_noticed() -> None:
    made, other = compiled(Model()), Model()
    made.model.forward = other.forward
    assert torch.equal(made.run(X), other(X))
    assert made.through == [1]


def test_other_defaults_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = compiled(Model())
    monkeypatch.setattr(Model.forward, "__defaults__", (True,))
    assert right(made)
    assert made.through == [1]


def test_a_signature_of_its_own_says_nothing_of_what_runs() -> None:
    class Signed(Model):
        def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:  # type: ignore[override]
            return self.first(x) * scale

    Signed.forward.__signature__ = "not one"  # type: ignore[attr-defined]
    made = compiled(Signed())
    assert made.direct.programs == 1
    assert right(made)
    assert made.through == []


def test_what_is_compiled_under_a_stance_is_not_learnt() -> None:
    made = compiled(Model(), learn=False)
    with torch.compiler.set_stance(force_backend="eager"), made.direct.learning():
        made.run(X)
    assert made.direct.programs == 0
    with made.direct.learning():
        made.run(X)
    assert made.direct.programs == 1


def test_the_usual_stance_set_anew_is_the_usual_one() -> None:
    made = compiled(Model())
    torch.compiler.set_stance("default")
    assert right(made)
    assert made.through == []


def test_a_dropped_program_is_passed_over_when_others_are_learnt(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._C._dynamo import eval_frame

    made = compiled(Model(), learn=False)
    made.run(X)  # compiles, for which torch asks, too
    known = eval_frame._get_cache_entries_for_region

    class Dropped(NamedTuple):
        code: None = None

    monkeypatch.setattr(eval_frame, "_get_cache_entries_for_region", lambda *of: [Dropped(), *known(*of)])
    with made.direct.learning():
        assert right(made)
    assert made.direct.programs == 1


def test_what_torch_has_dropped_is_not_kept() -> None:
    made = compiled(Model())
    torch._dynamo.reset()
    made.run(X)
    assert made.direct.programs == 0


@pytest.mark.parametrize("where", ["torch.distributed.is_initialized", "torch.cuda.is_available"])
def test_where_torchs_wrapper_does_more_nothing_is_learnt(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    made = compiled(Model(), learn=False)
    made.run(X)
    with monkeypatch.context() as patched, made.direct.learning():
        patched.setattr(where, lambda: True)
        made.run(X)
    assert made.direct.programs == 0


@pytest.mark.parametrize(
    ("backend", "direct"), [("aot_eager", True), ("inductor", True), ("eager", False), ("x", False)]
)
def test_only_programs_of_backends_that_trace_ahead_are_entered(backend: str, direct: bool) -> None:
    """One that runs the graph as it is leaves autocast on where it raises in it; torch's wrapper puts it back."""
    settings = Settings(engine=backend if backend == "inductor" else f"dynamo:{backend}")
    assert bool(_around(Direct(), settings)) is direct
