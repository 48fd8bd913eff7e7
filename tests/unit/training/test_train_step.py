"""compilot.train_step: a plan in the user's loop, and eager wherever it does not fit."""

from __future__ import annotations

import copy
import itertools
import warnings
from typing import Any

import msgspec
import pytest
import torch
import torch.nn.functional as F
from small_training import AOT, Batch, backend_that_fails, by_hand, farthest, loss_of, make_batches, twin
from torch import nn

import compilot
from compilot._torch.compiling import graphs_built
from compilot.engines.protocol import Infeasible
from compilot.errors import (
    InputError,
    PlanNotUsedWarning,
    StalePlan,
    StalePlanWarning,
    UnprovenSpeedWarning,
)
from compilot.identity.functions import function_sha256
from compilot.records import CompiledWay, Kind, OptimizerWay, Precision, StepParts, StepRules
from compilot.runtime.model_part import put_in_place, take_out
from compilot.training import make_step

replace = msgspec.structs.replace
MODEL = StepParts(compiled=CompiledWay.MODEL)
FUSED = StepParts(optimizer=OptimizerWay.FUSED)


def test_the_rules_come_from_the_plan(model, batches, make_plan) -> None:
    other, optimizer = twin(model)
    wanted = by_hand(other, optimizer, batches, accumulate=2, clip=0.1)
    mine, own = twin(model)
    step = compilot.train_step(mine, loss_of, own, make_plan(StepParts(), rules=StepRules(accumulate=2, clip_norm=0.1)))
    assert [step(batch).item() for batch in batches] == wanted
    assert (step.stats().steps, farthest(mine, other)) == (3, 0)


def test_what_overrides_them_is_named(model, batches, make_plan) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plan = make_plan(FUSED, rules=StepRules(accumulate=2, clip_norm=0.5))
    with pytest.warns(
        UnprovenSpeedWarning, match=r"accumulate=1 \(the plan has 2\), clip_norm=None \(the plan has 0.5\)"
    ):
        step = compilot.train_step(model, loss_of, optimizer, plan, accumulate=1, clip_norm=None)
    assert (step.accumulate, step.clip_norm) == (1, None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compilot.train_step(model, loss_of, optimizer, plan, accumulate=2, clip_norm=0.5, autocast=None)


@pytest.mark.parametrize("wanted", [torch.bfloat16, "bf16", "bfloat16", Precision.BF16])
def test_autocast_has_several_names(model, batches, make_plan, wanted: Any) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plan = make_plan(FUSED, rules=StepRules(autocast=Precision.BF16))
    seen = []
    compilot.train_step(
        model,
        lambda m, b: seen.append(torch.is_autocast_enabled("cpu")) or loss_of(m, b),
        optimizer,
        plan,
        autocast=wanted,
    )(batches[0])
    assert seen == [True]
    with pytest.raises(InputError, match="autocast=int4 is not known"):
        compilot.train_step(model, loss_of, optimizer, plan, autocast="int4")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"autocast": torch.float16}, r"needs loss scaling \(GradScaler\).*inplace=True"),
        ({"autocast": "fp16"}, "needs loss scaling"),
        ({"clip_norm": 0.0}, "clip_norm=0.0 makes no sense"),
        ({"clip_norm": "1"}, "clip_norm='1' makes no sense"),
        ({"accumulate": 2.0}, "accumulate=2.0 makes no sense"),
    ],
)
def test_settings_that_make_no_sense_are_one_sentence(model, make_plan, wrong: dict[str, Any], told: str) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(InputError, match=told):
        compilot.train_step(model, loss_of, optimizer, make_plan(FUSED), **wrong)


def test_a_plan_in_half_precision_is_refused(model, make_plan) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(InputError, match="needs loss scaling"):
        compilot.train_step(model, loss_of, optimizer, make_plan(FUSED, rules=StepRules(autocast=Precision.FP16)))


def test_autocast_of_the_user_counts_before_the_candidates(model, batches, make_plan) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plan = make_plan(replace(FUSED, autocast=Precision.BF16))
    seen = []

    def loss(m: nn.Module, b: Any) -> Any:
        seen.append(torch.is_autocast_enabled("cpu"))
        return loss_of(m, b)

    with pytest.warns(UnprovenSpeedWarning, match=r"autocast=as-is \(the plan has bf16\)"):
        compilot.train_step(model, loss, optimizer, plan, autocast=None)(batches[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compilot.train_step(model, loss, optimizer, plan)(batches[0])
        compilot.train_step(model, loss, optimizer, plan, autocast="bf16")(batches[0])
    assert seen == [False, True, True]


def test_a_plan_for_calls_is_refused(model, make_plan) -> None:
    plan = make_plan(FUSED)
    calls = replace(plan, workload=replace(plan.workload, kind=Kind.INFERENCE, step=None))
    with pytest.raises(InputError, match=r"compilot\.compile"):
        compilot.train_step(model, loss_of, torch.optim.SGD(model.parameters()), calls)


def test_a_plan_of_another_model_leaves_eager(model, batches, make_plan) -> None:
    plan = make_plan(FUSED)
    changed = nn.Sequential(model)
    optimizer = torch.optim.SGD(changed.parameters(), lr=0.1)
    with pytest.warns(StalePlanWarning, match="Eager trains instead"):
        step = compilot.train_step(changed, loss_of, optimizer, plan)
    step(batches[0])
    assert step.stats().steps == 1
    with pytest.raises(StalePlan):
        compilot.train_step(changed, loss_of, optimizer, plan, strict=True)


def test_a_plan_that_keeps_eager_is_the_loop_by_hand(model, batches, make_plan) -> None:
    other, optimizer = twin(model)
    wanted = by_hand(other, optimizer, batches)
    mine, own = twin(model)
    step = compilot.train_step(mine, loss_of, own, make_plan(None))
    assert [step(batch).item() for batch in batches] == wanted


def test_a_part_that_cannot_work_leaves_eager(model, batches, make_plan) -> None:
    model.out.weight.register_hook(lambda gradient: gradient)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plan = make_plan(StepParts(compiled=CompiledWay.ONE_GRAPH))
    with pytest.warns(PlanNotUsedWarning, match="gradient hook of parameter out.weight"):
        compilot.train_step(model, loss_of, optimizer, plan)
    with pytest.raises(Infeasible):
        compilot.train_step(model, loss_of, optimizer, plan, strict=True)


def test_a_compiled_model_is_not_compiled_twice(model, make_plan) -> None:
    plan = make_plan(MODEL)
    model.compile(backend="eager")
    with pytest.raises(InputError, match="compiled already"):
        compilot.train_step(model, loss_of, torch.optim.SGD(model.parameters()), plan)


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("way", [way for way in CompiledWay if way is not CompiledWay.NOTHING])
def test_every_way_to_compile_trains_alike(model, batches, make_plan, way: CompiledWay) -> None:
    """With batches of another size, in eval mode, and a validation in between: eager's, and nothing is built for it."""
    small = make_batches(1, size=2)[0]
    given = [*batches[:4], small, *batches[4:]]
    other, optimizer = twin(model)
    wanted = by_hand(other, optimizer, given)
    mine, own = twin(model)
    keys = list(mine.state_dict())
    step = compilot.train_step(mine, loss_of, own, make_plan(StepParts(compiled=way)))
    losses = [step(batch).item() for batch in given[:4]]
    built = step.stats().compiles
    with torch.no_grad():
        mine.eval()(small[0])
        mine.train()
    losses += [step(batch).item() for batch in given[4:]]
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(wanted), rtol=1e-4, atol=1e-5)
    assert list(mine.state_dict()) == keys
    stats = step.stats()
    assert stats.batches == 7
    assert stats.compiles == built > 0
    assert stats.fallbacks == {"shape of args[0][0]: 2x2x5x5, plan has 4x2x5x5": 1}
    assert (stats.fast, stats.recompiles) == (6, 0)
    mine.eval()
    step(batches[0])
    assert step.stats().fallbacks["eval mode"] == 1


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("when", ["forward", "backward"])
def test_a_failing_compile_is_eagers_step_from_the_same_state(model, batches, when: str) -> None:
    with backend_that_fails(f"failing-{when}", lambda now: now == when) as settings:
        other, optimizer = twin(model)
        wanted = by_hand(other, optimizer, batches, accumulate=2)
        mine, own = twin(model)
        step = make_step(mine, loss_of, own, MODEL, settings=settings, accumulate=2)
        with pytest.warns(PlanNotUsedWarning, match="no compiler here; eager trains instead"):
            losses = [step(batches[0]).item()]
        losses += [step(batch).item() for batch in batches[1:]]
    assert losses == wanted
    assert farthest(mine, other) == 0  # statistics of the batch norm included: no batch counted twice
    assert (step.stats().fast, sum(step.stats().fallbacks.values())) == (0, 6)


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize(("kept_from", "programs"), [(0, 1), (1, 2), (4, 1)])
def test_a_loss_that_keeps_its_graph(model, batches, kept_from: int, programs: int) -> None:
    """Buffers are not donated where the first batches keep it; later on torch's own error is the user's to see."""
    taken = itertools.count()

    def keeps(model: nn.Module, batch: Any) -> Any:
        value = loss_of(model, batch)
        if next(taken) >= kept_from:
            torch.autograd.grad(value, list(model.parameters()), retain_graph=True)
        return value

    step = make_step(model, keeps, torch.optim.SGD(model.parameters(), lr=0.1), MODEL, settings=AOT)
    for batch in batches[:4]:
        step(batch)
    assert step.stats().fast == 4
    assert (step.stats().compiles, step.stats().recompiles) == (programs, 0)  # two: with donated buffers, and without
    if kept_from == 4:
        with pytest.raises(RuntimeError, match="donated buffers"):
            step(batches[4])
    else:
        step(batches[4])
        assert step.stats().fast == 5


@pytest.mark.usefixtures("forgotten")
def test_the_model_part_alone_in_place(model, batches, make_plan) -> None:
    other, optimizer = twin(model)
    wanted = by_hand(other, optimizer, batches)
    mine, own = twin(model)
    keys = list(mine.state_dict())
    with pytest.warns(compilot.CompilotWarning, match=r"not the optimizer's \(fused\)"):
        same = compilot.compile(
            mine, make_plan(StepParts(compiled=CompiledWay.MODEL, optimizer=OptimizerWay.FUSED)), inplace=True
        )
    assert same is mine
    before = graphs_built()
    losses = by_hand(mine, own, batches)
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(wanted), rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        mine.eval()(batches[0][0])
    mine.train()(make_batches(1, size=2)[0][0])
    from compilot.runtime.model_part import in_place

    (door,) = in_place(mine).values()
    assert (door.stats().fast, door.stats().compiles) == (6, 1)
    assert graphs_built() - before == 1  # by whomever: eval mode and other sizes have built none
    assert set(door.stats().fallbacks) == {"eval mode", "sizes other than those of the first call"}
    assert list(mine.state_dict()) == keys
    assert not in_place(copy.deepcopy(mine))
    compilot.runtime.restore(mine)
    assert not in_place(mine)


def test_without_inplace_the_plan_names_train_step(model, make_plan) -> None:
    with pytest.raises(InputError, match="train_step"):
        compilot.compile(model, make_plan(MODEL))


def test_only_a_fitting_plan_is_put_in_place(model, make_plan) -> None:
    changed = nn.Sequential(model)
    with pytest.warns(StalePlanWarning, match="stays eager"):
        assert compilot.compile(changed, make_plan(MODEL), inplace=True) is changed
    assert all(module._compiled_call_impl is None for module in changed.modules())


def _half(model: nn.Module, batch: Batch) -> torch.Tensor:
    return 0.5 * loss_of(model, batch)


def test_a_plan_knows_the_loss_it_was_made_with(model, batches, make_plan) -> None:
    plan = make_plan(FUSED)
    ref = replace(plan.workload, loss_sha256=function_sha256(loss_of, model))
    plan, optimizer = replace(plan, workload=ref), twin(model)[1]

    def renamed(model: nn.Module, batch: Batch) -> torch.Tensor:
        return F.cross_entropy(model(batch[0]), batch[1])

    compilot.train_step(model, renamed, optimizer, plan, strict=True)
    with pytest.warns(StalePlanWarning, match="loss function of other code; tune again"):
        step = compilot.train_step(model, _half, optimizer, plan)
    step(batches[0])
    with pytest.raises(StalePlan, match="other code"):
        compilot.train_step(model, _half, optimizer, plan, strict=True)
    with pytest.warns(UnprovenSpeedWarning, match="were not checked"):
        compilot.train_step(model, _half, optimizer, plan, allow_stale=True)


class Exact(nn.Module):
    """Its own product is exact, whatever autocast it is called under."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.out = nn.Linear(16, 16), nn.Parameter(torch.randn(16, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inner(x).float()
        with torch.autocast("cpu", enabled=False):
            return x @ self.out


@pytest.mark.usefixtures("forgotten")
def test_in_place_under_autocast_the_backward_is_eagers() -> None:
    x, model = torch.randn(8, 16), Exact()

    def gradient() -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(x).square().mean()
        (found,) = torch.autograd.grad(loss, [model.out])
        return found

    wanted = gradient()
    put_in_place(model, CompiledWay.MODEL, AOT, (), None)
    torch.testing.assert_close(gradient(), wanted, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradient(), wanted, rtol=1e-5, atol=1e-6)
    take_out(model)
