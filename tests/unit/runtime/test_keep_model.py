"""keep_model=False: the weights are really freed, and what eager would have answered is a typed error."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import pytest
import torch
from file_engine import FileEngine, plan_for
from torch import nn

from compilot.engines import registry
from compilot.errors import InputError, NoFallback, StalePlan
from compilot.modules.clone import skeleton
from compilot.records import Candidate, Settings
from compilot.runtime import compile as apply_plan
from compilot.runtime.fast import attach, attach_parts
from compilot.runtime.sources import ApplyOptions, EntryParts

X = torch.randn(2, 3)


@pytest.fixture
def files():
    engine = FileEngine()
    registry.register("files", None, engine)
    yield engine
    registry.unregister("files")


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).eval()


@pytest.mark.usefixtures("no_grad", "files")
def test_the_weights_are_freed_when_the_user_lets_go_of_the_model():
    model = net()
    expected = model(X)
    weights = [weakref.ref(t) for t in (*model.parameters(), *model.buffers())]
    fast = apply_plan(model, plan_for(model, "files", X), keep_model=False)
    fast(X)
    del model
    gc.collect()
    assert [ref() for ref in weights] == [None] * len(weights)
    torch.testing.assert_close(fast(X), expected)
    assert fast.stats().calls == fast.stats().fast == 2


class Without(nn.Linear):
    """As false as an empty list: whether there is a model is never asked by its truth."""

    def __len__(self) -> int:
        return 0


@pytest.mark.usefixtures("no_grad", "files")
def test_a_model_that_counts_as_false_is_a_model():
    model = Without(3, 3).eval()
    fast = apply_plan(model, plan_for(model, "files", X), keep_model=False)
    assert all(weight.is_meta for weight in fast.parameters())
    torch.testing.assert_close(fast(X), model(X))
    assert fast.stats().fast == 1


@pytest.mark.usefixtures("no_grad", "files")
def test_with_the_model_kept_they_stay():
    model = net()
    weight = weakref.ref(model[0].weight)
    fast = apply_plan(model, plan_for(model, "files", X))
    del model
    gc.collect()
    assert weight() is not None
    assert fast(torch.ones(5, 3)).shape == (5, 3)


@pytest.mark.usefixtures("no_grad")
def test_what_the_plan_does_not_take_says_why_and_what_to_do(files):
    model = net()
    fast = apply_plan(model, plan_for(model, "files", X), keep_model=False)
    with pytest.raises(NoFallback, match=r"shape of args\[0\]: 5x3.*dropped.*declared dynamic.*keep_model=True"):
        fast(torch.ones(5, 3))
    with pytest.raises(NoFallback) as told:
        fast(torch.ones(5, 3))
    assert "and the eager model was dropped by keep_model=False; pad to" in str(told.value)  # the one reason
    with pytest.raises(NoFallback, match="train mode"):
        fast.train()(X)
    fast.eval()
    with torch.enable_grad(), pytest.raises(NoFallback, match=r"gradients enabled.*torch\.no_grad"):
        fast(X)
    files.broken = RuntimeError("out of wings")
    with pytest.raises(NoFallback, match=r"out of wings.*keep_model=True"):
        fast(X)


@pytest.mark.usefixtures("no_grad", "files")
def test_without_a_model_from_the_start_that_is_the_one_reason():
    model = net()
    plan = plan_for(model, "files", X)
    entry = plan.entries[0]
    parts = (EntryParts(entry.candidate, entry.guard, None),)
    fast = attach_parts(model, parts, ApplyOptions(keep_model=False), stand_in=True)
    with pytest.raises(NoFallback) as told:
        fast(torch.ones(5, 3))
    assert "and there is no eager model: compilot.load takes none; pad to" in str(told.value)
    assert str(told.value).endswith("or use compilot.compile(model, bundle), which has the model to fall back on.")
    assert "keep_model" not in str(told.value)
    with pytest.raises(NoFallback, match=r"^there is no eager model: compilot\.load takes none, so there is nothing"):
        fast.refresh()


@pytest.mark.usefixtures("no_grad", "files")
def test_names_and_shapes_are_left_but_there_is_nothing_to_copy_or_refresh():
    model = net()
    fast = apply_plan(model, plan_for(model, "files", X), keep_model=False)
    assert {name: tuple(t.shape) for name, t in fast.state_dict().items()} == {
        name: tuple(t.shape) for name, t in model.state_dict().items()
    }
    assert {p.device.type for p in fast.parameters()} == {"meta"}
    assert {p.device.type for p in model.parameters()} == {"cpu"}
    for act in (fast.refresh, lambda: copy.deepcopy(fast), lambda: pickle.dumps(fast)):
        with pytest.raises(NoFallback, match="compile"):
            act()
    assert fast(X).shape == (2, 3)


@pytest.mark.usefixtures("engine")
def test_an_engine_that_runs_the_model_itself_refuses():
    model = net()
    for plan in (plan_for(model, "fake", X), plan_for(model, "inductor", X)):
        with pytest.raises(InputError, match=r"engine runs the model itself.*with onnxruntime, openvino, aoti only"):
            apply_plan(model, plan, keep_model=False)


@pytest.mark.usefixtures("files")
def test_a_plan_that_keeps_eager_is_stale_or_in_place_refuses():
    import msgspec

    model = net()
    plan = plan_for(model, "files", X)
    with pytest.raises(InputError, match="keeps the model eager"):
        apply_plan(model, msgspec.structs.replace(plan, entries=()), keep_model=False)
    with pytest.raises(InputError, match="keeps the model eager"):
        attach(
            model, Candidate(settings=Settings(), label="", rationale=""), plan.entries[0].guard, None, keep_model=False
        )
    with pytest.raises(StalePlan, match=r"class changed \(Sequential -> Linear\)"):
        apply_plan(nn.Linear(3, 3).eval(), plan, keep_model=False)
    with pytest.raises(InputError, match="choose one"):
        apply_plan(model, plan, keep_model=False, inplace=True)


def test_a_skeleton_keeps_ties_and_leaves_the_model_alone():
    model = net()
    model[2].weight = nn.Parameter(model[0].weight.detach().t().contiguous())
    model.again = model[2].weight
    bones = skeleton(model)
    assert bones[2].weight is bones.again
    assert bones[0].weight.is_meta
    assert not model[0].weight.is_meta
