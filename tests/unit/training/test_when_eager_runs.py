"""What comes up while a plan is in use: modes, hooks, programs that cannot be built. Eager runs, or nothing changes."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from small_training import AOT, backend_that_fails, by_hand, farthest, loss_of, twin
from torch import Tensor, nn

import compilot
from compilot._torch.compiling import graphs_built
from compilot.engines.protocol import Infeasible
from compilot.errors import FallbackWarning, PlanNotUsedWarning, StalePlan
from compilot.records import CompiledWay, MemoryFormat, OptimizerWay, Region, Settings, StepParts
from compilot.runtime.model_part import put_in_place, take_out
from compilot.training import make_step

MODEL = StepParts(compiled=CompiledWay.MODEL)
ONE_GRAPH = StepParts(compiled=CompiledWay.ONE_GRAPH)


@pytest.mark.usefixtures("forgotten")
def test_a_model_that_is_still_in_eval_mode_is_the_tuned_one(model, batches, make_plan) -> None:
    plan, optimizer = make_plan(MODEL), torch.optim.SGD(model.parameters(), lr=0.1)
    model.eval()
    model.out.train()
    before = [module.training for module in model.modules()]
    step = compilot.train_step(model, loss_of, optimizer, plan, strict=True)
    assert [module.training for module in model.modules()] == before
    step(batches[0])
    assert step.stats().fallbacks == {"eval mode": 1}
    model.train()
    step(batches[1])
    assert step.stats().fast == 1


def test_a_part_with_a_mode_of_its_own_is_another_training(model, make_plan) -> None:
    plan = make_plan(MODEL)
    model.norm.eval()
    with pytest.raises(StalePlan, match="structure"):
        compilot.train_step(model, loss_of, torch.optim.SGD(model.parameters()), plan, strict=True)


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("kind", ["tensor", "gradient is there", "module"])
def test_a_gradient_hook_that_comes_later_is_run(model, batches, make_plan, kind: str) -> None:
    step = compilot.train_step(model, loss_of, torch.optim.SGD(model.parameters(), lr=0.1), make_plan(ONE_GRAPH))
    for batch in batches[:3]:
        step(batch)
    assert (step.stats().fast, step.stats().fallbacks) == (3, {})
    seen: list[Any] = []
    add = {
        "tensor": model.out.weight.register_hook,
        "gradient is there": model.out.weight.register_post_accumulate_grad_hook,
        "module": model.out.register_full_backward_hook,
    }[kind]
    hook = add(lambda *given: seen.append(given) and None)
    step(batches[3])
    assert len(seen) == 1
    (reason,) = step.stats().fallbacks
    assert "gradient hook of" in reason
    hook.remove()
    step(batches[4])
    assert len(seen) == 1
    assert (step.stats().fast, sum(step.stats().fallbacks.values())) == (4, 1)


@pytest.mark.parametrize("place", ["parameter out.weight", "module out"])
def test_a_gradient_hook_that_is_there_refuses_one_graph_in_a_sentence(model, place: str) -> None:
    if place.startswith("module"):
        model.out.register_full_backward_hook(lambda *given: None)
    else:
        model.out.weight.register_hook(lambda gradient: None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(Infeasible, match=f"would leave out the gradient hook of {place}"):
        make_step(model, loss_of, optimizer, ONE_GRAPH, settings=AOT)
    assert make_step(model, loss_of, optimizer, MODEL, settings=AOT) is not None


class Switched(nn.Module):
    """With a setting that is compiled in: another one is another program."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.out, self.doubled = nn.Linear(4, 8), nn.Linear(8, 1), False

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x).tanh()
        return self.out(2 * x if self.doubled else x)


def mean_of(model: nn.Module, batch: Tensor) -> Tensor:
    return model(batch).square().mean()


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("when", ["forward", "backward"])
def test_a_later_program_that_cannot_be_built_is_eagers_batch(when: str) -> None:
    model, data, broken = Switched(), [torch.randn(3, 4) for _ in range(6)], [False]
    other, mine = copy.deepcopy(model), copy.deepcopy(model)
    loop = make_step(other, mean_of, torch.optim.SGD(other.parameters(), lr=0.1))
    with backend_that_fails(f"later-{when}", lambda now: broken[0] and now == when) as settings:
        step = make_step(mine, mean_of, torch.optim.SGD(mine.parameters(), lr=0.1), MODEL, settings=settings)
        for batch in data[:4]:
            loop(batch), step(batch)
        assert step.stats().fast == 4
        broken[0] = other.doubled = mine.doubled = True
        if when == "forward":
            with pytest.warns(PlanNotUsedWarning, match="no compiler here; eager trains instead"):
                assert step(data[4]).item() == pytest.approx(loop(data[4]).item(), rel=1e-5)
            step(data[5]), loop(data[5])
            assert (step.stats().fast, sum(step.stats().fallbacks.values())) == (4, 2)
            assert farthest(mine, other) < 1e-6
        else:  # torch does not say that this was the compiler: the user sees it, and nothing has moved
            before = copy.deepcopy(mine.state_dict())
            with pytest.raises(RuntimeError, match="no compiler here"):
                step(data[4])
            assert all(torch.equal(before[name], value) for name, value in mine.state_dict().items())


def test_what_cannot_be_built_leaves_the_layout_alone(model) -> None:
    settings = Settings(engine=AOT.engine, memory_format=MemoryFormat.CHANNELS_LAST)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(Infeasible, match="needs regions"):
        make_step(model, loss_of, optimizer, StepParts(compiled=CompiledWay.REGIONS), settings=settings)
    assert model.conv.weight.is_contiguous()
    make_step(model, loss_of, optimizer, StepParts(optimizer=OptimizerWay.FUSED), settings=settings)
    assert model.conv.weight.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("when", ["forward", "backward"])
def test_in_place_too_a_failing_compile_leaves_eager(model, batches, when: str) -> None:
    (other, user), (mine, own) = twin(model), twin(model)
    wanted = by_hand(other, user, batches)
    with backend_that_fails(f"in-place-{when}", lambda now: now == when) as settings:
        (door,) = put_in_place(mine, CompiledWay.MODEL, settings, (), None).values()
        with pytest.warns(PlanNotUsedWarning, match="no compiler here; the model stays eager"):
            losses = by_hand(mine, own, batches)
    assert losses == wanted
    assert farthest(mine, other) == 0  # statistics of the batch norm included: no batch counted twice
    assert (door.stats().fast, sum(door.stats().fallbacks.values())) == (0, 6)


@pytest.mark.usefixtures("forgotten")
def test_in_place_a_later_program_that_cannot_be_built_leaves_eager() -> None:
    model, data, broken = Switched(), torch.randn(3, 4), [False]
    with backend_that_fails("later-in-place", lambda now: broken[0]) as settings:
        (door,) = put_in_place(model, CompiledWay.MODEL, settings, (), None).values()
        mean_of(model, data).backward()
        broken[0] = model.doubled = True
        with pytest.warns(PlanNotUsedWarning, match="the model stays eager"):
            model(data)
        model(data)
    assert (door.stats().fast, sum(door.stats().fallbacks.values())) == (1, 2)
    take_out(model)


class Named(Switched):
    """The name of what it does is compiled in."""

    does = "a"

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (1 + "abcde".index(self.does))


@pytest.mark.usefixtures("forgotten")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # torch's own look at a region
@pytest.mark.parametrize("regions", [False, True])
def test_in_place_programs_of_later_calls_are_counted_and_said_once(regions: bool) -> None:
    model, data = nn.Sequential(Named(), nn.Linear(1, 4), Named()), torch.randn(3, 4)
    chosen = (Region(selector="*", settings=AOT),) if regions else ()
    way = CompiledWay.REGIONS if regions else CompiledWay.MODEL
    doors = put_in_place(model, way, AOT, chosen, None)

    def built() -> int:
        return sum(door.stats().compiles for door in doors.values())

    mean_of(model, data).backward()
    begin, before = built(), graphs_built()
    for _ in range(3):
        mean_of(model, data).backward()
    assert (built(), graphs_built()) == (begin, before)
    for number, now in ((0, "b"), (2, "c")):
        model[number].does = now
        mean_of(model, data).backward()
    assert built() == begin + 2
    for now, said in (("d", True), ("e", False)):
        model[0].does = now
        with pytest.warns(FallbackWarning, match="built 3 programs after the warm-up") if said else nullcontext():
            mean_of(model, data).backward()
    assert built() - begin == graphs_built() - before == 4
    assert all(not door.stats().fallbacks for door in doors.values())
    take_out(model)
