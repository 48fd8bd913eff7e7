"""Regions in the run plane, with a fake engine: who answers, what is counted, what is followed."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

from compilot._tree import Call
from compilot.boundary.build import build
from compilot.engines import registry
from compilot.engines.protocol import Baked, BuildRequest, Follows, Infeasible, Loaded, LoadRequest
from compilot.engines.traits import EngineTraits
from compilot.errors import BundleError, FallbackWarning
from compilot.records import Candidate, DynamicDim, Region, Settings, Shapes
from compilot.runtime import proving
from compilot.runtime.fast import Fast, attach
from compilot.runtime.gate import CODE_CHANGED
from compilot.runtime.guards import make_guard

X = torch.randn(2, 3)
EAGER = Settings()
PATHS = ("layers.0", "layers.1", "layers.2", "layers.3")


class Layer(nn.Module):
    """Called with keywords, nested containers and values; answers with a tuple."""

    def __init__(self, layer_idx: int) -> None:
        super().__init__()
        self.layer_idx = layer_idx
        self.linear = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor, *, extra: Any, cache: Any = None, flag: bool = True) -> Any:
        first, (second, factor) = extra["a"], extra["b"]
        return self.linear(x) + first + second * factor, cache


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(i) for i in range(4))
        self.scale = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x, _ = layer(x, extra={"a": x, "b": (torch.ones(3), 2)}, cache=None)
        return x * self.scale * (2 if self.training else 1)


class MarkingEngine:
    """Answers as the submodule and notes its name; fails on demand, by layer."""

    TRAITS = EngineTraits(version="1")

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.alike: list[int] = []
        self.fail_load: set[int] = set()
        self.fail_prepare: set[int] = set()
        self.fail_call: set[int] = set()
        self.frozen = False

    def build(self, request: BuildRequest) -> tuple[()]:
        return ()

    def load(self, request: LoadRequest) -> Loaded:
        model: Any = request.model
        number = model.layer_idx
        if number in self.fail_load:
            raise Infeasible("cannot be loaded")
        assert request.alike is not None
        self.alike.append(len(request.alike.modules))
        own = copy.deepcopy(model) if self.frozen else model

        def call(*args: Any, **kwargs: Any) -> Any:
            if number in self.fail_call:
                raise RuntimeError("broke down")
            self.calls.append(number)
            return own(*args, **kwargs)

        def prepare(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if number in self.fail_prepare:
                raise RuntimeError("no such operator")
            return call(*args, **kwargs)

        follows = Follows.NOTHING if self.frozen else Follows.EVERYTHING
        return Loaded(call, prepare, frozen_weights=self.frozen, baked=Baked.AT_LOAD, follows=follows)


@pytest.fixture
def marking() -> Iterator[MarkingEngine]:
    engine = MarkingEngine()
    registry.register("marking", engine, engine)  # type: ignore[arg-type]
    yield engine
    registry.unregister("marking")


Made = Callable[..., Fast]


@pytest.fixture
def regional(marking: MarkingEngine, tmp_path: Path, no_grad: None) -> Made:
    def make(model: nn.Module, *selectors: str, rest: Settings = EAGER, **how: Any) -> Fast:
        regions = tuple(Region(selector=one, settings=Settings(engine="marking")) for one in selectors or ("layers.*",))
        candidate = Candidate(settings=rest, label="regions", rationale="", regions=regions)
        call = Call((X,), {})
        guard = make_guard(model, call, dynamic=(), shapes=Shapes.STATIC, grad=False)
        build(BuildRequest(model, call, guard, candidate, tmp_path))
        return attach(model, candidate, guard, tmp_path, **how)

    return make


def fast_by_region(fast: Fast) -> dict[str, int]:
    return {path: one.fast for path, one in fast.stats().regions.items()}


def fast_after(
    fast: Fast, times: int, change: Callable[[], object] = lambda: None, x: torch.Tensor = X
) -> list[torch.Tensor]:
    """The answers to so many calls, with a change before each."""
    answers = []
    for _ in range(times):
        change()
        answers.append(fast(x))
    return answers


def test_each_region_answers_its_submodules_calls_and_is_counted(regional: Made, marking: MarkingEngine) -> None:
    model = Stack().eval()
    fast = regional(model)
    for _ in range(3):
        assert torch.equal(fast(X), model(X))
    assert marking.calls == [0, 1, 2, 3] * 3
    assert marking.alike == [4] * 4  # they may share a program
    stats = fast.stats()
    assert (stats.calls, stats.fast, stats.fallbacks, stats.compiles) == (3, 3, {}, 4)
    assert {path: (one.calls, one.fast, one.fallbacks) for path, one in stats.regions.items()} == {
        path: (3, 3, {}) for path in PATHS
    }


def test_the_rest_is_eager_and_submodules_outside_of_regions_too(regional: Made, marking: MarkingEngine) -> None:
    model = Stack().eval()
    fast = regional(model, "layers.1", "layers.3")
    assert torch.equal(fast(X), model(X))
    assert marking.calls == [1, 3]
    assert marking.alike == [1, 1]  # of two regions
    assert fast_by_region(fast) == {"layers.1": 1, "layers.3": 1}


def test_the_model_itself_is_not_changed(regional: Made, marking: MarkingEngine) -> None:
    model = Stack().eval()
    before = {name: [*vars(module)] for name, module in model.named_modules()}
    fast = regional(model)
    fast(X)
    marking.calls.clear()
    model(X)
    assert marking.calls == []
    assert {type(layer) for layer in model.layers} == {Layer}
    assert {name: [*vars(module)] for name, module in model.named_modules()} == before
    assert {*fast.state_dict()} == {*model.state_dict()}
    assert fast.layers[0].linear.weight is model.layers[0].linear.weight


def test_weights_are_followed_in_place_and_where_they_are_assigned(regional: Made) -> None:
    model = Stack().eval()
    fast = regional(model)
    fast(X)
    model.layers[1].linear.weight.mul_(2)
    assert torch.equal(fast(X), model(X))
    model.layers[2].linear.weight = nn.Parameter(torch.eye(3))
    assert torch.equal(fast(X), model(X))
    model.load_state_dict({name: tensor + 1 for name, tensor in model.state_dict().items()})
    assert torch.equal(fast(X), model(X))
    assert fast.stats().fast == 4


def test_frozen_regions_freeze_the_model(regional: Made, marking: MarkingEngine) -> None:
    marking.frozen = True
    model = Stack().eval()
    fast = regional(model, "layers.2")
    fast(X)
    assert fast.frozen_weights
    with pytest.warns(FallbackWarning, match="weights changed"):
        fast_after(fast, 40, lambda: model.layers[2].linear.weight.mul_(1.5))
    assert torch.equal(fast(X), model(X))
    fast.refresh()
    assert torch.equal(fast(X), model(X))
    assert marking.calls.count(2) > 1


def test_a_region_that_cannot_be_prepared_falls_back_alone(regional: Made, marking: MarkingEngine) -> None:
    marking.fail_prepare = {2}
    model = Stack().eval()
    fast = regional(model)
    with pytest.warns(FallbackWarning, match=r"the compiled layers\.2 failed and eager answered instead: .*no such op"):
        assert torch.equal(fast(X), model(X))
    for _ in range(3):
        assert torch.equal(fast(X), model(X))
    regions = fast.stats().regions
    assert {path: one.fast for path, one in regions.items()} == {
        "layers.0": 4,
        "layers.1": 4,
        "layers.2": 0,
        "layers.3": 4,
    }
    assert sum(regions["layers.2"].fallbacks.values()) == 4
    assert all("no such operator" in reason for reason in regions["layers.2"].fallbacks)
    assert fast.stats().fallbacks == {}


def test_a_region_that_breaks_down_later_falls_back_alone_and_is_left_alone(
    regional: Made, marking: MarkingEngine
) -> None:
    model = Stack().eval()
    fast = regional(model)
    fast(X)
    marking.fail_call = {1}
    with pytest.warns(FallbackWarning, match=r"the compiled layers\.1 failed"):
        answers = fast_after(fast, 6)
    assert all(torch.equal(answer, model(X)) for answer in answers)
    assert fast_by_region(fast) == {"layers.0": 7, "layers.1": 1, "layers.2": 7, "layers.3": 7}
    assert any("switched off" in reason for reason in fast.stats().regions["layers.1"].fallbacks)


def test_calls_that_the_models_guard_does_not_take_reach_no_region(regional: Made, marking: MarkingEngine) -> None:
    model = Stack().eval()
    fast = regional(model)
    fast(X)
    marking.calls.clear()
    wide = torch.randn(5, 3)
    assert torch.equal(fast(wide), model(wide))
    assert marking.calls == []
    assert fast.stats().fallbacks == {"shape of args[0]: 5x3, plan has 2x3": 1}


class Branching(Stack):
    """Calls its third layer in another way where the inputs' values say so."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            factor = 3 if number == 2 and x.sum() < -1e6 else 2
            x, _ = layer(x, extra={"a": x, "b": (torch.ones(3), factor)}, cache=None)
        return x


def test_a_regions_own_guard_sends_other_calls_of_its_submodule_to_eager(
    regional: Made, marking: MarkingEngine
) -> None:
    model = Branching().eval()
    fast = regional(model)
    fast(X)
    low = X - 1e9
    assert torch.equal(fast(low), model(low))
    assert fast.stats().fallbacks == {}
    assert fast_by_region(fast) == {"layers.0": 2, "layers.1": 2, "layers.2": 1, "layers.3": 2}
    [reason] = fast.stats().regions["layers.2"].fallbacks
    assert reason == "value of kwargs['extra']['b'][1]: plan has 2"


def test_too_many_fallbacks_of_a_region_are_said_with_its_name(regional: Made) -> None:
    model = Branching().eval()
    fast = regional(model)
    fast(X)
    low = X - 1e9
    with pytest.warns(FallbackWarning, match=r"calls of layers\.2 missed the fast path"):
        fast_after(fast, 120, x=low)


def test_attributes_around_regions_are_watched(regional: Made, marking: MarkingEngine) -> None:
    model = Stack().eval()
    fast = regional(model)
    fast(X)
    model.scale = 3.0
    with pytest.warns(FallbackWarning, match="code or attributes"):
        answers = fast_after(fast, 600)
    assert torch.equal(answers[-1], model(X))
    assert CODE_CHANGED in fast.stats().fallbacks
    fast.refresh()
    marking.calls.clear()
    assert torch.equal(fast(X), model(X))
    assert marking.calls == [0, 1, 2, 3]


def test_attributes_of_a_regions_submodule_are_its_own(regional: Made) -> None:
    """An engine that follows everything sees them at once; the watch would, some calls later."""
    model = Stack().eval()
    fast = regional(model)
    for _ in range(3):
        fast(X)
    model.layers[0].forward = lambda x, **kwargs: (x, None)  # type: ignore[method-assign, assignment]
    assert torch.equal(fast(X), model(X))


def test_hooks_that_come_later_are_run(regional: Made) -> None:
    model = Stack().eval()
    fast = regional(model)
    fast(X)
    seen: list[str] = []
    model.layers[1].register_forward_hook(lambda *_: seen.append("layer"))
    model.register_forward_hook(lambda *_: seen.append("model"))
    assert torch.equal(fast(X), model(X))
    assert seen == ["layer", "model"] * 2


def test_compiled_in_train_mode_called_in_eval_mode(regional: Made, marking: MarkingEngine) -> None:
    model = Stack().eval()
    guarded = regional(model)
    guarded(X)
    again = attach_again(guarded, model.train())
    model.eval()
    marking.calls.clear()
    assert torch.equal(again(X), model(X))
    assert marking.calls == [0, 1, 2, 3]


def attach_again(fast: Fast, model: nn.Module) -> Fast:
    make, _, parts, options, check = fast._compilot_rebuild
    return make(model, parts, options, check)  # type: ignore[no-any-return]


def test_copies_and_pickles_have_regions_of_their_own(regional: Made, marking: MarkingEngine) -> None:
    model = Stack().eval()
    fast = regional(model)
    fast(X)
    for other in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        marking.calls.clear()
        assert torch.equal(other(X), model(X))
        assert marking.calls == [0, 1, 2, 3]
        assert other.layers[0].linear.weight is not model.layers[0].linear.weight


def test_inplace_and_back(regional: Made, marking: MarkingEngine) -> None:
    from compilot.runtime import restore

    model = Stack().eval()
    expected = model(X)
    fast = regional(model, inplace=True)
    assert fast is model
    assert torch.equal(model(X), expected)
    assert marking.calls == [0, 1, 2, 3]
    restore(model)
    marking.calls.clear()
    assert torch.equal(model(X), expected)
    assert marking.calls == []


def test_inference_mode_is_a_variant_of_each_region(regional: Made) -> None:
    model = Stack().eval()
    fast = regional(model)
    fast(X)
    with torch.inference_mode():
        for _ in range(2):
            assert torch.equal(fast(X), model(X))
    assert fast.stats().fallbacks == {}
    assert fast_by_region(fast) == dict.fromkeys(PATHS, 3)


def test_a_region_whose_engine_cannot_be_loaded_is_named(regional: Made, marking: MarkingEngine) -> None:
    marking.fail_load = {3}
    with pytest.raises(Infeasible, match=r"in layers\.3: cannot be loaded"):
        regional(Stack().eval())


def test_the_rest_runs_in_eager_today(regional: Made) -> None:
    with pytest.raises(Infeasible, match="the model outside of regions runs in eager"):
        regional(Stack().eval(), rest=Settings(engine="inductor"))


def test_a_region_in_plain_eager_is_none(marking: MarkingEngine, tmp_path: Path) -> None:
    model, call = Stack().eval(), Call((X,), {})
    candidate = Candidate(
        settings=EAGER, label="", rationale="", regions=(Region(selector="layers.1", settings=EAGER),)
    )
    guard = make_guard(model, call, dynamic=(), shapes=Shapes.STATIC, grad=False)
    with pytest.raises(Infeasible, match=r"the region 'layers\.1' runs in plain eager"):
        build(BuildRequest(model, call, guard, candidate, tmp_path))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda file: file.unlink(), "regions.json is missing"),
        (lambda file: file.write_text("[{]"), "regions.json is damaged"),
        (lambda file: file.write_bytes(msgspec.json.encode(msgspec.json.decode(file.read_bytes())[1:])), "about other"),
    ],
)
def test_a_regions_file_that_does_not_fit_is_refused(
    regional: Made, tmp_path: Path, change: Callable[[Path], None], words: str
) -> None:
    model = Stack().eval()
    fast = regional(model)
    change(tmp_path / "regions.json")
    with pytest.raises(Infeasible, match=words):
        attach_again(fast, model)


def test_calls_before_the_users_first_are_not_counted(regional: Made) -> None:
    fast = regional(Stack().eval())
    fast(X)
    type(fast)._compilot_core.forget_calls()
    assert fast_by_region(fast) == dict.fromkeys(PATHS, 0)


@pytest.mark.parametrize("shapes", [Shapes.STATIC, Shapes.DYNAMIC])
@pytest.mark.usefixtures("no_grad")
def test_a_region_has_a_policy_for_sizes_of_its_own(marking: MarkingEngine, tmp_path: Path, shapes: Shapes) -> None:
    """The model's guard takes four sizes: a static region those of the example, a dynamic one all."""
    model, call = Stack().eval(), Call((X,), {})
    region = Region(selector="layers.1", settings=Settings(engine="marking", shapes=shapes))
    rest = Settings(shapes=Shapes.DYNAMIC)
    candidate = Candidate(settings=rest, label="", rationale="", regions=(region,))
    dims = (DynamicDim(input="x", dim=0, min=2, max=5),)
    guard = make_guard(model, call, dynamic=dims, shapes=Shapes.DYNAMIC, grad=False)
    build(BuildRequest(model, call, guard, candidate, tmp_path))
    fast = attach(model, candidate, guard, tmp_path)
    for size in (2, 3, 5):
        x = torch.randn(size, 3)
        assert torch.equal(fast(x), model(x))
    served = 3 if shapes is Shapes.DYNAMIC else 1
    assert (fast.stats().fast, fast.stats().regions["layers.1"].fast) == (3, served)
    reasons = fast.stats().regions["layers.1"].fallbacks
    assert all(reason.startswith("shape of args[0]") for reason in reasons)
    assert sum(reasons.values()) == 3 - served


def test_several_threads_get_right_answers(regional: Made) -> None:
    from concurrent.futures import ThreadPoolExecutor

    model = Stack().eval()
    fast = regional(model)
    expected = model(X)

    def run(_: int) -> bool:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("error")
            return torch.equal(fast(X), expected)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(100)))
    assert fast_by_region(fast) == dict.fromkeys(PATHS, 100)


class Heard:
    def __init__(self) -> None:
        self.missing: list[str] = []
        self.failures: list[str] = []

    def missed(self, reason: str, call: Call) -> None:
        self.missing.append(reason)

    def failed(self, reason: str) -> None:
        self.failures.append(reason)


def test_who_watches_a_plan_hears_of_regions_that_fail(regional: Made, marking: MarkingEngine) -> None:
    fast, heard = regional(Stack().eval()), Heard()
    type(fast)._compilot_core.watch(heard)  # type: ignore[attr-defined]
    fast(X)
    fast.refresh()  # the regions of the engine that is loaded now are watched, too
    marking.fail_call = {2}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        fast(X)
        fast(X)
    assert heard.failures
    assert all(text.startswith("engine failed") and text.endswith("(in layers.2)") for text in heard.failures)
    assert heard.missing == []  # calls of submodules are none of the user's


def test_where_nothing_is_built_any_more_regions_build_nothing_either(regional: Made, marking: MarkingEngine) -> None:
    model = Stack().eval()
    fast = regional(model)
    type(fast)._compilot_core.seal("no more")  # type: ignore[attr-defined]
    fast.refresh()
    parts = type(fast)._compilot_core.loaded.parts  # type: ignore[attr-defined]
    assert {part.sealed for part in parts.values()} == {"no more"}


def test_a_golden_call_proves_every_region(regional: Made, marking: MarkingEngine) -> None:
    fast = regional(Stack().eval())
    core = type(fast)._compilot_core  # type: ignore[attr-defined]
    assert torch.equal(proving._answer(core, Call((X,), {}), Path("x.cpbundle")), fast._compilot_plain(X))
    marking.fail_call = {2}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        with pytest.raises(BundleError, match=r"golden call by the engine of layers\.2: engine"):
            proving._answer(core, Call((X,), {}), Path("x.cpbundle"))
