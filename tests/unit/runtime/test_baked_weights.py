"""Weights that are in an engine's files, or were copied when it was loaded: no change of the model's own goes unseen,
whenever it comes, and what cannot be mended by refresh() says so."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator

import msgspec
import pytest
import torch
from file_engine import plan_for
from test_frozen_weights import AT_ONCE, Net, X, buffer_in_place, in_place, load_state_dict, through_data
from torch import nn

from compilot.engines import baked, registry
from compilot.engines.protocol import Baked, Loaded, LoadRequest
from compilot.engines.traits import EngineTraits
from compilot.errors import CompilotWarning, FallbackWarning, PlanError, StalePlan, StalePlanWarning
from compilot.runtime import Fast
from compilot.runtime import compile as apply_plan
from compilot.runtime.gate import FILES_OUTDATED, WEIGHTS_CHANGED
from compilot.runtime.notices import advice
from compilot.runtime.weight_watch import INSPECT_EVERY


class Copies:
    """Copies the weights when it is loaded, as other layouts and precisions do."""

    TRAITS = EngineTraits(version="1")

    def load(self, request: LoadRequest) -> Loaded:
        return Loaded(call=copy.deepcopy(request.model), frozen_weights=True, baked=Baked.AT_LOAD)


class Files:
    """Holds the weights of its build, as engines that come as files do; `compares`: it looks at their digest itself."""

    TRAITS = EngineTraits(version="1")

    def __init__(self, model: nn.Module, *, compares: bool) -> None:
        self.own, self.digest = copy.deepcopy(model), baked.weights_digest(model)
        self.compares = compares
        self.missing = False

    def load(self, request: LoadRequest) -> Loaded:
        if self.missing:
            raise baked.Infeasible("model.bin is missing next to the plan")
        if self.compares:
            baked.refuse_other_weights(request, self.digest)
        digest = self.digest if self.compares else None
        return Loaded(call=self.own, frozen_weights=True, needs_model=False, weights_sha256=digest)


KINDS: dict[str, Callable[[nn.Module], Copies | Files]] = {
    "copies": lambda model: Copies(),
    "files": lambda model: Files(model, compares=True),
    "files of an engine that compares nothing": lambda model: Files(model, compares=False),
}


@pytest.fixture
def bake() -> Iterator[Callable[..., Fast]]:
    """bake(model, kind, digest=...): the model behind an engine that holds its weights."""

    def make(model: nn.Module, kind: str = "files", x: torch.Tensor = X, digest: str | None = None) -> Fast:
        engine = KINDS[kind](model)
        registry.register("baked", None, engine)
        plan = plan_for(model, "baked", x)
        entry = msgspec.structs.replace(plan.entries[0], weights_sha256=digest)
        return apply_plan(model, msgspec.structs.replace(plan, entries=(entry,)), strict=True)

    yield make
    registry.unregister("baked")


@pytest.fixture
def model() -> Net:
    torch.manual_seed(0)
    return Net().eval()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", [*AT_ONCE, in_place, through_data, buffer_in_place])
def test_row_36_a_change_before_the_first_call_is_seen_by_it(bake, model, kind, change):
    fast = bake(model, kind)
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter("always")
        change(model)
        for _ in range(3):
            assert torch.equal(fast(X), model(X))
    assert [w.category for w in caught] == [FallbackWarning]
    assert fast.stats().fallbacks == {WEIGHTS_CHANGED if kind == "copies" else FILES_OUTDATED: 3}


@pytest.mark.usefixtures("no_grad")
@pytest.mark.parametrize("change", [load_state_dict, through_data])
def test_row_36_a_change_right_after_a_refresh_is_seen_too(bake, model, change):
    fast = bake(model, "copies")
    fast(X)
    fast.refresh()
    change(model)
    with pytest.warns(CompilotWarning, match=r"weights changed.*call refresh\(\)"):
        assert torch.equal(fast(X), model(X))


@pytest.mark.usefixtures("no_grad")
def test_unchanged_weights_are_served_from_the_first_call_on(bake, model):
    for kind in KINDS:
        fast = bake(model, kind)
        for _ in range(3):
            assert torch.equal(fast(X), model(X))
        assert fast.stats() == (3, 3, {}, 1, (), {}, {})


@pytest.mark.usefixtures("no_grad")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "copies"])
@pytest.mark.parametrize("change", [load_state_dict, through_data])
def test_row_36_files_cannot_be_refreshed_with_other_weights(bake, model, kind, change):
    fast, old = bake(model, kind), copy.deepcopy(model.state_dict())
    fast(X)
    change(model)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if change is load_state_dict:
            fast(X)
    said = [("compilot tune" in str(w.message), "refresh()" in str(w.message)) for w in caught]
    assert said == ([(True, False)] if change is load_state_dict else [])
    with pytest.raises(StalePlan, match=r"cannot be refreshed.*run 'compilot tune' again"):
        fast.refresh()
    for _ in range(3):
        assert torch.equal(fast(X), model(X))
    assert "compilot tune" in advice(max(fast.stats().fallbacks))
    if kind == "files":  # with a digest it is known when the old weights are back
        served = fast.stats().fast
        model.load_state_dict(old)
        fast.refresh()
        assert torch.equal(fast(X), model(X))
        assert fast.stats().fast == served + 1


@pytest.mark.usefixtures("no_grad")
def test_files_that_are_gone_are_a_typed_error_and_eager_answers(bake, model):
    fast = bake(model)
    fast(X)
    registry.load_half("baked").missing = True
    with pytest.raises(PlanError, match="missing next to the plan"):
        fast.refresh()
    assert torch.equal(fast(X), model(X))
    assert fast.stats().fast == 1


@pytest.mark.usefixtures("no_grad")
def test_the_plans_digest_stands_in_for_an_engine_that_compares_nothing(bake, model):
    built_with = baked.weights_digest(model)
    fast = bake(model, "files of an engine that compares nothing", digest=built_with)
    assert torch.equal(fast(X), model(X))
    other = Net().eval()
    with pytest.raises(StalePlan, match="weights are not those"):
        bake(other, "files of an engine that compares nothing", digest=built_with)
    entry = msgspec.structs.replace(plan_for(other, "baked", X).entries[0], weights_sha256=built_with)
    plan = msgspec.structs.replace(plan_for(other, "baked", X), entries=(entry,))
    with pytest.warns(StalePlanWarning, match="weights are not those"):
        fast = apply_plan(other, plan)
    assert torch.equal(fast(X), other(X))
    [reason] = fast.stats().fallbacks
    assert reason.startswith("plan out of date")


def test_weights_are_hashed_once_whoever_compares_them(bake, model, monkeypatch):
    built_with, hashed = baked.weights_digest(model), []
    real = baked.weights_digest
    for kind, expected in (("files", 1), ("files of an engine that compares nothing", 1), ("copies", 0)):
        engine = KINDS[kind](model)
        monkeypatch.setitem(KINDS, kind, lambda _, engine=engine: engine)
        monkeypatch.setattr(baked, "weights_digest", lambda model: hashed.append(1) or real(model))
        hashed.clear()
        bake(model, kind, digest=built_with)
        assert len(hashed) == expected, kind


# ---- attributes ------------------------------------------------------------------------------------------------------


SMALL = torch.rand(2, 3)  # the layer below makes numbers from 0.1 to 0.8 of it


class Scaled(nn.Module):
    """Computes with what it holds as plain attributes; between the limits for SMALL, so that every edit changes it."""

    offset = 0.0

    def __init__(self, std: float = 2.0) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        for parameter in self.linear.parameters():
            nn.init.uniform_(parameter, 0.1, 0.2)
        self.std = torch.full((3,), std)
        self.tables = {"rows": [torch.ones(3)], "name": "ones"}
        self.factor = 1.5
        self.limits = (-3.0, 3.0)
        self.bias = None
        self.mask = None

    def forward(self, x):
        if self.mask is None:  # made at the first call, like many a cache
            self.mask = torch.ones(3)
        y = self.linear(x) / self.std * self.factor + self.tables["rows"][0] + self.offset
        y = y if self.bias is None else y + self.bias
        return y.clamp(*self.limits) * self.mask


def assign_tensor(model: Scaled) -> None:
    model.std = torch.ones(3)


def write_tensor(model: Scaled) -> None:
    model.std.mul_(3)


def replace_in_list(model: Scaled) -> None:
    model.tables["rows"][0] = torch.zeros(3)


def assign_number(model: Scaled) -> None:
    model.factor = 4.0


def assign_tuple(model: Scaled) -> None:
    model.limits = (0.0, 0.5)


def give_what_was_none(model: Scaled) -> None:
    model.bias = torch.ones(3)


def cover_the_classes_own(model: Scaled) -> None:
    model.offset = 7.0


EDITS = [
    assign_tensor,
    write_tensor,
    replace_in_list,
    assign_number,
    assign_tuple,
    give_what_was_none,
    cover_the_classes_own,
]


@pytest.mark.usefixtures("no_grad")
@pytest.mark.parametrize("edit", EDITS)
def test_attributes_that_were_baked_in_are_watched_too(bake, edit):
    model = Scaled().eval()
    fast, expected = bake(model, "files"), copy.deepcopy(model)(SMALL)
    for _ in range(3):
        assert torch.equal(fast(SMALL), expected)
    assert fast.stats().fast == 3
    edit(model)
    with pytest.warns(CompilotWarning, match=r"(weights|code or attributes \(\w+\)) changed.*compilot tune"):
        _ = [fast(SMALL) for _ in range(INSPECT_EVERY)]
    assert not torch.equal(model(SMALL), expected)
    assert torch.equal(fast(SMALL), model(SMALL))


@pytest.mark.usefixtures("no_grad")
def test_attributes_alone_are_enough_to_be_watched(bake):
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = 0.5

        def forward(self, x):
            return x * self.factor

    model = Half().eval()
    fast = bake(model, "copies")
    assert torch.equal(fast(X), model(X))
    assert torch.equal(fast(X), model(X))
    assert fast.stats().fast == 2
    model.factor = 2.0
    with pytest.warns(CompilotWarning, match=r"attributes \(factor\) changed.*refresh\(\)"):
        _ = [fast(X) for _ in range(INSPECT_EVERY)]
    assert torch.equal(fast(X), model(X))


@pytest.mark.usefixtures("no_grad")
def test_what_the_model_itself_writes_down_is_no_change(bake):
    model = Scaled().eval()
    fast = bake(model, "files")
    fast(torch.randn(5, 3))  # eager's: makes the mask
    assert model.mask is not None
    for _ in range(INSPECT_EVERY + 5):
        fast(X)
    assert fast.stats().fast == INSPECT_EVERY + 5


def test_the_digest_knows_attribute_tensors_and_is_the_old_one_without_them():
    torch.manual_seed(0)
    model, same, other = Scaled(), Scaled(), Scaled(std=3.0)
    for one in (same, other):
        one.load_state_dict(model.state_dict())
    assert baked.weights_digest(model) == baked.weights_digest(same) != baked.weights_digest(other)
    lstm = nn.LSTM(2, 2)  # holds its parameters in a list as well
    assert baked.weights_digest(lstm) == baked.digest_of(sorted(lstm.named_parameters()))
    lstm.table = torch.ones(2).to_sparse()
    assert baked.weights_digest(lstm)
