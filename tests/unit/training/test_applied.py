"""A plan's parts in a loop of the user's own: all of what fits, or a clear sentence; and everything back afterwards."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from small_training import by_hand, loss_of
from torch import nn

import compilot
from compilot.errors import InputError, PlanNotUsedWarning, StalePlan
from compilot.records import CompiledWay, OptimizerWay, StepParts
from compilot.runtime.model_part import in_place
from compilot.training import apply_parts

BOTH = StepParts(compiled=CompiledWay.MODEL, optimizer=OptimizerWay.FUSED)


@pytest.mark.usefixtures("forgotten")
def test_an_optimizer_without_the_variant_leaves_the_model_part(model, batches, make_plan) -> None:
    optimizer = torch.optim.RMSprop(model.parameters())
    with pytest.warns(PlanNotUsedWarning, match="RMSprop has no fused form"):
        applied = apply_parts(model, optimizer, make_plan(BOTH))
    with applied:
        by_hand(model, optimizer, batches[:2])
        assert applied.stats().fast == 2
    assert not in_place(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        apply_parts(model, torch.optim.SGD(model.parameters()), make_plan(BOTH)).undo()


def test_a_plan_is_applied_once(model, make_plan) -> None:
    optimizer = torch.optim.SGD(model.parameters())
    with apply_parts(model, optimizer, make_plan(BOTH)), pytest.raises(InputError, match="undo it first"):
        apply_parts(model, optimizer, make_plan(BOTH))


def test_a_plan_of_another_model_raises_and_changes_nothing(model, make_plan) -> None:
    other = nn.Sequential(model)
    with pytest.raises(StalePlan):
        apply_parts(other, torch.optim.SGD(other.parameters()), make_plan(BOTH))
    assert not in_place(other)


def test_a_training_that_was_interrupted_is_no_hindrance_for_the_next_one(model, make_plan) -> None:
    pytest.importorskip("transformers")
    from compilot.training.huggingface import PlanCallback

    callback, arguments = PlanCallback(make_plan(BOTH)), SimpleNamespace(torch_compile=False)
    for _ in range(2):  # without on_train_end in between
        optimizer = torch.optim.SGD(model.parameters())
        callback.on_train_begin(arguments, None, None, model=model, optimizer=optimizer)
    callback.on_train_end(arguments, None, None)
    assert not in_place(model)
    assert not optimizer._optimizer_step_pre_hooks


def test_trainers_model_may_still_be_in_eval_mode(model, make_plan) -> None:
    """As `from_pretrained` returns it; Trainer calls model.train() after this."""
    pytest.importorskip("transformers")
    from compilot.training.huggingface import PlanCallback

    callback, arguments = PlanCallback(make_plan(BOTH)), SimpleNamespace(torch_compile=False)
    model.eval()
    callback.on_train_begin(arguments, None, None, model=model, optimizer=torch.optim.SGD(model.parameters()))
    assert not any(module.training for module in model.modules())
    assert in_place(model)
    callback.on_train_end(arguments, None, None)


@pytest.mark.parametrize("use", ["compile", "apply_parts", "train_step"])
def test_a_model_that_is_compiled_already_is_refused(model, make_plan, use: str) -> None:
    plan, optimizer = make_plan(BOTH), torch.optim.SGD(model.parameters())

    def used() -> Any:
        if use == "compile":
            return compilot.compile(model, plan, inplace=True)
        if use == "apply_parts":
            return apply_parts(model, optimizer, plan)
        return compilot.train_step(model, loss_of, optimizer, plan)

    model.blocks[0].compile(backend="eager")
    own = model.blocks[0]._compiled_call_impl
    with pytest.raises(InputError, match=r"compiled already \(blocks\.0\); pass the original"):
        used()
    assert model.blocks[0]._compiled_call_impl is own
    del model.blocks[0]._compiled_call_impl
    with apply_parts(model, optimizer, plan), pytest.raises(InputError, match="applied to this model already; undo"):
        used()


@pytest.fixture
def sharded(model: nn.Module, tmp_path: Any) -> Any:
    """The model in FSDP's hands, in one process."""
    from torch import distributed
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1)
    try:
        yield fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    finally:
        distributed.destroy_process_group()


USES: list[Callable[..., Any]] = [
    lambda model, optimizer, plan: compilot.train_step(model, loss_of, optimizer, plan),
    apply_parts,
    lambda model, _, plan: compilot.compile(model, plan, inplace=True),
]


@pytest.mark.parametrize("use", USES, ids=["train_step", "apply_parts", "compile"])
def test_a_sharded_model_is_refused_in_one_sentence(make_plan, request, use: Callable[..., Any]) -> None:
    plan = make_plan(BOTH)  # of the model as it was
    model = request.getfixturevalue("sharded")
    with pytest.raises(InputError, match=r"sharded \(FSDP\) is not served"):
        use(model, torch.optim.SGD(model.parameters()), plan)
