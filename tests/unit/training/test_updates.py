"""The optimizer's variants: the same update, and the user's own object afterwards."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from small_training import Batch, by_hand, farthest, loss_of, twin
from torch import nn
from torch.optim import Optimizer

from compilot.engines.protocol import Infeasible
from compilot.records import OptimizerWay, StepParts
from compilot.training import compiled_updates, make_step
from compilot.training.applied import flag_steps
from compilot.training.updates import FLAGS, make_update


def seen_flags(optimizer: Optimizer, name: str) -> list[Any]:
    """What the groups hold while the optimizer steps."""
    seen: list[Any] = []
    optimizer.register_step_pre_hook(lambda own, *_: seen.extend(group[name] for group in own.param_groups))
    return seen


@pytest.mark.parametrize("way", FLAGS)
def test_every_variant_trains_alike(model: nn.Module, batches: list[Batch], way: OptimizerWay) -> None:
    (plain, first), (other, second) = twin(model), twin(model)
    expected = [make_step(plain, loss_of, first)(batch).item() for batch in batches[:1]]
    step = make_step(other, loss_of, second, StepParts(optimizer=way))
    assert [step(batch).item() for batch in batches[:1]] == expected
    moved = {name: own for name, own in other.named_parameters() if name != "conv.bias"}  # which has no true gradient
    for name, own in plain.named_parameters():
        if name in moved:
            torch.testing.assert_close(moved[name], own, rtol=1e-4, atol=1e-6)
    assert step.stats().optimizer_fallbacks == {}


def test_the_flags_are_there_for_the_step_only(model: nn.Module, batches: list[Batch]) -> None:
    mine, optimizer = twin(model)
    seen, before = seen_flags(optimizer, "fused"), copy.deepcopy(optimizer.state_dict()["param_groups"])
    make_step(mine, loss_of, optimizer, StepParts(optimizer=OptimizerWay.FUSED))(batches[0])
    assert seen == [True]
    assert optimizer.state_dict()["param_groups"] == before


def test_an_error_in_the_step_puts_them_back(model: nn.Module, batches: list[Batch]) -> None:
    mine, optimizer = twin(model)

    def fail(*_: Any) -> None:
        raise ValueError("a hook")

    optimizer.register_step_pre_hook(fail)
    with pytest.raises(ValueError, match="a hook"):
        make_step(mine, loss_of, optimizer, StepParts(optimizer=OptimizerWay.FUSED))(batches[0])
    assert not optimizer.param_groups[0]["fused"]


def test_load_state_dict_does_not_undo_the_plan(model: nn.Module, batches: list[Batch]) -> None:
    (plain, user), (mine, optimizer) = twin(model), twin(model)
    make_step(plain, loss_of, user)(batches[0])
    step = make_step(mine, loss_of, optimizer, StepParts(optimizer=OptimizerWay.FUSED))
    step(batches[1])
    mine.load_state_dict(plain.state_dict())
    optimizer.load_state_dict(user.state_dict())
    seen = seen_flags(optimizer, "fused")
    after = make_step(plain, loss_of, user)
    assert step(batches[2]).item() == after(batches[2]).item()
    assert seen == [True]
    assert optimizer.state_dict()["param_groups"] == user.state_dict()["param_groups"]


def test_a_state_in_another_layout_is_brought_to_its_parameters(model: nn.Module, batches: list[Batch]) -> None:
    """torch's fused kernel would read it as it lies in memory, and move the weights anywhere."""
    (plain, user), (mine, optimizer) = twin(model), twin(model)
    loop = make_step(plain, loss_of, user)
    step = make_step(mine, loss_of, optimizer, StepParts(optimizer=OptimizerWay.FUSED))
    loop(batches[0]), step(batches[0])
    state = optimizer.state[mine.conv.weight]
    state["exp_avg"] = state["exp_avg"].contiguous(memory_format=torch.channels_last)
    assert state["exp_avg"].stride() != mine.conv.weight.stride()
    loop(batches[1]), step(batches[1])
    torch.testing.assert_close(mine.conv.weight, plain.conv.weight, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("way", "settings", "said"),
    [
        (OptimizerWay.FUSED, {"differentiable": True}, "differentiable"),
        (OptimizerWay.FOREACH, {"lr": torch.tensor(0.01)}, "tensor"),
    ],
)
def test_what_a_variant_cannot_do_the_own_step_does(
    model: nn.Module, batches: list[Batch], way: OptimizerWay, settings: dict[str, Any], said: str
) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), **settings)
    step = make_step(model, loss_of, optimizer, StepParts(optimizer=way))
    if "differentiable" in settings:
        optimizer.step = lambda: None  # type: ignore[method-assign]  # as torch's own wants other tensors
    step(batches[0])
    (reason,) = step.stats().optimizer_fallbacks
    assert said in reason


def test_sparse_gradients_are_the_own_steps(batches: list[Batch]) -> None:
    table = nn.Embedding(4, 2, sparse=True)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    step = make_step(table, lambda m, b: m(b).sum(), optimizer, StepParts(optimizer=OptimizerWay.FUSED))
    step(torch.tensor([1, 2]))
    assert step.stats().optimizer_fallbacks == {"sparse gradients": 1}


@pytest.mark.parametrize("loop", ["train_step", "own"])
def test_a_fused_momentum_that_begins_for_some_is_the_own_steps(
    model: nn.Module, batches: list[Batch], loop: str
) -> None:
    """Gradual unfreezing: torch's fused SGD raises where some parameters of a group have no momentum yet."""
    sides: list[tuple[nn.Module, Any]] = []
    for way in (OptimizerWay.AS_IS, OptimizerWay.FUSED):
        own = copy.deepcopy(model)
        own.conv.requires_grad_(False)
        groups = [[*own.conv.parameters(), *own.norm.parameters()], [*own.blocks.parameters(), *own.out.parameters()]]
        optimizer = torch.optim.SGD([{"params": group} for group in groups], lr=0.1, momentum=0.9)
        if loop == "own" and way is OptimizerWay.FUSED:
            flag_steps(optimizer, way)
            way = OptimizerWay.AS_IS
        sides.append((own, make_step(own, loss_of, optimizer, StepParts(optimizer=way))))
    for number, batch in enumerate(batches[:4]):
        for own, step in sides:
            own.conv.requires_grad_(number >= 2)
            step(batch)
    assert farthest(sides[0][0], sides[1][0]) < 1e-4
    if loop == "train_step":
        assert sides[1][1].stats().optimizer_fallbacks == {"a momentum that some parameters do not have yet": 1}


@pytest.mark.parametrize("named", [False, True])
def test_a_closure_makes_the_gradients_that_a_variant_is_chosen_by(named: bool) -> None:
    """As Lightning steps: there are no gradients yet when the step begins."""
    table = nn.Embedding(4, 2, sparse=True)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    undo = flag_steps(optimizer, OptimizerWay.FUSED)
    before = table.weight.detach().clone()

    def closure() -> Any:
        optimizer.zero_grad()
        loss = table(torch.tensor([1, 2])).sum()
        loss.backward()
        return loss

    loss = optimizer.step(closure=closure) if named else optimizer.step(closure)  # torch's fused form would raise
    assert loss is not None
    assert (table.weight != before).any(dim=1).tolist() == [False, True, True, False]
    undo()


class Watched(torch.optim.SGD):
    """Keeps what its groups hold when it updates the parameters."""

    def step(self, closure: Any = None) -> Any:
        loss = closure()
        self.seen = [group["fused"] for group in self.param_groups]
        return loss


def test_after_a_closure_the_variant_is_in_force_until_the_step_ends() -> None:
    layer = nn.Linear(2, 2)
    optimizer = Watched(layer.parameters(), lr=0.1)
    undo = flag_steps(optimizer, OptimizerWay.FUSED)
    optimizer.step(lambda: layer(torch.ones(1, 2)).sum().backward())
    assert optimizer.seen == [True]
    assert not optimizer.param_groups[0]["fused"]
    undo()


def test_a_gradient_with_other_strides_is_brought_to_its_parameters() -> None:
    """torch's fused kernel would read four numbers where there is one."""
    one, other = (nn.Parameter(torch.ones(4)) for _ in range(2))
    for parameter, way in ((one, OptimizerWay.LOOP), (other, OptimizerWay.FUSED)):
        update = make_update(torch.optim.SGD([parameter], lr=0.1), way)
        parameter.grad = torch.tensor([2.0]).expand(4)
        assert update() is None
    assert torch.equal(one, other)


def test_a_variant_that_an_optimizer_lacks_is_infeasible(model: nn.Module) -> None:
    with pytest.raises(Infeasible, match="Rprop has no fused form"):
        make_step(model, loss_of, torch.optim.Rprop(model.parameters()), StepParts(optimizer=OptimizerWay.FUSED))
    with pytest.raises(Infeasible, match="not for RMSprop"):
        make_step(model, loss_of, torch.optim.RMSprop(model.parameters()), StepParts(optimizer=OptimizerWay.COMPILED))


def test_hooks_do_the_same_for_a_loop_of_ones_own(model: nn.Module, batches: list[Batch]) -> None:
    (plain, user), (mine, optimizer) = twin(model), twin(model)
    undo = flag_steps(optimizer, OptimizerWay.FUSED)
    seen, before = seen_flags(optimizer, "fused"), copy.deepcopy(optimizer.state_dict()["param_groups"])
    make_step(plain, loss_of, user, StepParts(optimizer=OptimizerWay.FUSED))(batches[0])
    make_step(mine, loss_of, optimizer)(batches[0])
    assert seen == [True]
    assert optimizer.state_dict()["param_groups"] == before
    assert farthest(mine, plain) == 0
    undo()
    make_step(mine, loss_of, optimizer)(batches[1])
    assert seen == [True, None]


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch, forgotten: None) -> None:
    """Compiled updates are traced as usual, and run by eager."""
    plain = compiled_updates.compiled_function
    monkeypatch.setattr(
        compiled_updates,
        "compiled_function",
        lambda function, **given: plain(function, **{**given, "backend": "eager"}),
    )


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("way", [OptimizerWay.COMPILED, OptimizerWay.KERNEL])
def test_the_first_step_of_a_momentum_is_no_fallback(model: nn.Module, batches: list[Batch], way: OptimizerWay) -> None:
    other, mine = copy.deepcopy(model), copy.deepcopy(model)
    user, optimizer = (torch.optim.SGD(one.parameters(), lr=0.1, momentum=0.9) for one in (other, mine))
    wanted = by_hand(other, user, batches)
    step = make_step(mine, loss_of, optimizer, StepParts(optimizer=way), strict=True)
    losses = [step(batch).item() for batch in batches]
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(wanted), rtol=1e-4, atol=1e-5)
    assert farthest(mine, other) < 1e-4
    assert step.stats().optimizer_fallbacks == {}
    assert step.stats().compiles > 0


@pytest.mark.usefixtures("traced")
def test_programs_of_the_optimizer_after_the_warm_up_are_recompiles(model: nn.Module, batches: list[Batch]) -> None:
    model.conv.requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    step = make_step(model, loss_of, optimizer, StepParts(optimizer=OptimizerWay.COMPILED), strict=True)
    for batch in batches[:2]:
        step(batch)
    assert step.stats().compiles > 0
    assert step.stats().recompiles == 0
    model.conv.requires_grad_(True)
    for batch in batches[2:4]:
        step(batch)
    assert 0 < step.stats().recompiles < step.stats().compiles


@pytest.mark.usefixtures("traced")
def test_a_parameter_with_gaps_in_memory_is_the_own_steps() -> None:
    """One after the other, its elements are not those that lie beside each other."""
    whole = torch.arange(12.0).reshape(3, 4)

    def side(way: OptimizerWay) -> tuple[nn.Module, Any]:
        model = nn.Module()
        model.gaps, model.dense = nn.Parameter(whole.clone()[:, ::2]), nn.Parameter(whole.clone().t())
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        loss = lambda own, batch: (own.gaps * batch).sum() + own.dense.square().sum()  # noqa: E731
        return model, make_step(model, loss, optimizer, StepParts(optimizer=way))

    (plain, loop), (mine, step) = side(OptimizerWay.AS_IS), side(OptimizerWay.KERNEL)
    loop(torch.tensor(2.0)), step(torch.tensor(2.0))
    assert step.stats().optimizer_fallbacks == {"parameters that are not dense in memory": 1}
    assert farthest(mine, plain) == 0
    mine.gaps.requires_grad_(False)
    step(torch.tensor(2.0))  # the transposed one is dense
    assert sum(step.stats().optimizer_fallbacks.values()) == 1


@pytest.mark.usefixtures("traced")
def test_a_plan_with_baked_in_weights_hears_of_a_compiled_update(model: nn.Module, batches: list[Batch]) -> None:
    """Its hook around all steps is no reason to leave the update to the user's own step."""
    from compilot.runtime import weight_watch

    class Watch:
        tensor_ids = frozenset(id(parameter) for parameter in model.parameters())
        told = 0

        def tell(self) -> None:
            self.told += 1

    watch: Any = Watch()
    weight_watch._watch(watch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    step = make_step(model, loss_of, optimizer, StepParts(optimizer=OptimizerWay.KERNEL), strict=True)
    for batch in batches[:2]:
        step(batch)
    assert step.stats().optimizer_fallbacks == {}
    assert watch.told == 2
