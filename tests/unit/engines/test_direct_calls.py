"""Programs of torch.compile that are entered past its wrapper: same answers, same recompiles, same guards.

Without a compiler: backends eager, and aot_eager, whose programs plans enter. What goes through torch's wrapper is
counted, and so is what the programs answer that are asked.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import distributed, nn

from compilot._torch import compiling
from compilot._torch.direct import MOST, Direct, _Program
from compilot.engines.inductor.load import _around, load
from compilot.engines.protocol import Alike, LoadRequest
from compilot.records import Guard, Settings

X = torch.linspace(-1.0, 1.0, 12).reshape(4, 3)
SCALE = 2.0
BACKEND = "eager"  # of the test that runs


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
        backend=BACKEND,
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


@pytest.fixture(autouse=True, params=["eager", "aot_eager"])
def _backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "BACKEND", request.param)


only_traced_ahead = pytest.mark.parametrize("_backend", ["aot_eager"], indirect=True)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What each program said that was asked whether it takes a call."""
    answers, takes = list[bool](), _Program.takes

    def told(self: Any, *call: Any) -> bool:
        answers.append(takes(self, *call))
        return answers[-1]

    monkeypatch.setattr(_Program, "takes", told)
    return answers


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
def test_a_known_program_is_entered_past_the_wrapper(make: Callable[[], nn.Module], asked: list[bool]) -> None:
    made = compiled(make())
    assert made.direct.programs == 1
    asked.clear()
    assert right(made)
    assert right(made, X + 1)
    assert not made.through
    assert asked == [True, True]


class Casts(Model):
    """Its own context, a loop, and rows that may be out of range."""

    def forward(self, x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        with torch.autocast("cpu", torch.bfloat16):
            for _ in range(2):
                x = self.first(x)
            return x[rows] * self.factor


ROWS = torch.tensor([0, 3])


def test_a_forward_may_cast_by_itself() -> None:
    made = compiled(Casts(), X, ROWS)
    assert right(made, X, ROWS)
    assert right(made, X + 1, ROWS)
    assert made.run(X, ROWS).dtype is torch.bfloat16
    assert made.through == []
    assert not torch.is_autocast_enabled("cpu")


def test_torchs_guards_on_autocast_hold() -> None:
    made = compiled(Model())
    with torch.autocast("cpu", torch.bfloat16):
        assert right(made)
    assert made.through == [1]


@only_traced_ahead
def test_an_error_in_a_program_is_that_of_the_model() -> None:
    made = compiled(Casts(), X, ROWS)
    with pytest.raises(IndexError) as eager:
        made.model(X, ROWS + 9)
    with pytest.raises(IndexError) as raised:
        made.run(X, ROWS + 9)
    assert str(raised.value) == str(eager.value)
    assert not torch.is_autocast_enabled("cpu")
    assert right(made, X, ROWS)
    assert made.through == []


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


def shifted(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * SCALE


class Tries(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        x = self.first(x) * self.factor
        try:
            torch._dynamo.graph_break()
            return shifted(x)
        except ValueError:
            return x


class Inside:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


class InContext(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        x = self.first(x) * self.factor
        with Inside():
            torch._dynamo.graph_break()
            return shifted(x)


class Steps(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        x = self.first(x)
        x = x * self.factor
        torch._dynamo.step_unsupported()
        return shifted(x)


class Loops(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        x = self.first(x)
        for _ in range(2):
            torch._dynamo.graph_break()
            x = shifted(x)
        return x


@pytest.mark.parametrize("broken", [Tries, InContext, Steps, Loops])
def test_what_torch_cannot_resume_goes_through_the_wrapper(broken: type[Model]) -> None:
    """One program and then the frame's own code: what that calls is compiled, and compiled anew when it changes."""
    made = compiled(broken())
    assert made.direct.programs == 0
    built = compiling.graphs_built()
    assert right(made)
    assert made.through == [1]
    assert compiling.graphs_built() == built
    assert right(made, X[:2])
    assert compiling.graphs_built() > built


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
        backend=BACKEND,
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


def blocks(factors: list[float]) -> list[Model]:
    made = [Model() for _ in factors]
    for block, factor in zip(made, factors, strict=True):
        block.factor = factor
    return made


def for_all(modules: list[Model], through: list[int]) -> tuple[Direct, Callable[..., Any]]:
    direct = Direct(for_all=True)
    run = compiling.compile_for_all(
        backend=BACKEND,
        options={},
        dynamic=False,
        recompile_limit=4 * len(modules),
        around=lambda made: direct.around(counted(through, made)),
    )
    with direct.learning():
        for module in modules:
            run(module, X)
    through.clear()
    return direct, run


def test_each_of_many_modules_asks_for_its_own_program_alone(asked: list[bool]) -> None:
    modules, through = blocks([1.0 + n for n in range(MOST + 4)]), list[int]()
    direct, run = for_all(modules, through)
    assert direct.programs == len(modules)
    asked.clear()
    for module in (*modules, *reversed(modules)):
        assert torch.equal(run(module, X), module(X))
    assert not through
    assert asked == [True] * 2 * len(modules)


def test_like_modules_of_a_region_ask_for_their_own_programs(asked: list[bool]) -> None:
    modules, settings = blocks([1.0 + n for n in range(MOST + 4)]), Settings(engine="dynamo:aot_eager")
    guard, alike = Guard(positional=1, keywords=(), tensors=()), Alike(modules)
    loaded = [load(LoadRequest(module, guard, settings, None, alike=alike)) for module in modules]
    for one in loaded:
        assert one.prepare is not None
        one.prepare((X,), {})
    asked.clear()
    for one, module in zip(loaded, modules, strict=True):
        assert torch.equal(one.call(X), module(X))
    assert asked == [True] * len(modules)


def test_modules_that_share_a_program_of_many_find_it(asked: list[bool]) -> None:
    modules, through = blocks([1.0 + n % (MOST + 2) for n in range(2 * MOST + 4)]), list[int]()
    direct, run = for_all(modules, through)
    assert direct.programs == MOST + 2
    asked.clear()
    for module in modules:
        assert torch.equal(run(module, X), module(X))
    assert not through
    assert asked == [True] * len(modules)


def test_no_call_asks_more_programs_than_the_most(asked: list[bool]) -> None:
    modules, through = blocks([1.0 + n for n in range(MOST + 4)]), list[int]()
    _, run = for_all(modules, through)
    modules[0].factor = 99.0
    asked.clear()
    assert torch.equal(run(modules[0], X), modules[0](X))
    assert through == [1]
    assert asked == [False] * MOST


def test_the_program_of_the_last_call_is_asked_first(asked: list[bool]) -> None:
    made = compiled(Model())
    with made.direct.learning():
        made.run(X[:2])
    for given in (X, X, X[:2], X[:2]):
        assert right(made, given)
    asked.clear()
    for given in (X, X, X[:2], X[:2]):
        assert right(made, given)
    assert asked == [False, True, True, False, True, True]


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
        backend=BACKEND,
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


@pytest.mark.parametrize("in_place", [False, True])
def test_other_defaults_of_keywords_are_noticed(monkeypatch: pytest.MonkeyPatch, in_place: bool) -> None:
    monkeypatch.setattr(Model.forward, "__kwdefaults__", {"shift": 1.0})
    made = compiled(Model())
    assert right(made)
    assert made.through == []
    if in_place:
        Model.forward.__kwdefaults__["shift"] = 5.0  # type: ignore[index]
    else:
        Model.forward.__kwdefaults__ = {"shift": 5.0}
    assert right(made)
    assert made.through == [1]


def test_keywords_without_a_default_any_more_are_the_models_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    made = compiled(Model())
    monkeypatch.setattr(Model.forward, "__kwdefaults__", None)
    with pytest.raises(TypeError, match="shift"):
        made.run(X)


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


def test_ranks_that_agree_on_guards_wait_for_no_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, gathered = compiled(Model()), list[bool]()
    gather = distributed.all_gather_object

    def counting(into: list[Any], hit: bool, group: Any) -> None:
        gathered.append(hit)
        gather(into, hit, group)

    monkeypatch.setattr(distributed, "all_gather_object", counting)
    monkeypatch.setattr("torch._dynamo.distributed._GUARD_PG", None)
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1)
    torch.compiler.set_enable_guard_collectives(True)
    try:
        assert right(made)
    finally:
        torch.compiler.set_enable_guard_collectives(False)
        distributed.destroy_process_group()
    assert made.through == [1]
    assert gathered == [True]
    assert right(made)
    assert made.through == [1]


@pytest.mark.parametrize(
    ("backend", "direct"), [("aot_eager", True), ("inductor", True), ("eager", False), ("x", False)]
)
def test_only_programs_of_backends_that_trace_ahead_are_entered(backend: str, direct: bool) -> None:
    """One that runs the graph as it is leaves autocast on where it raises in it; torch's wrapper puts it back."""
    settings = Settings(engine=backend if backend == "inductor" else f"dynamo:{backend}")
    assert bool(_around(Direct(), settings)) is direct
