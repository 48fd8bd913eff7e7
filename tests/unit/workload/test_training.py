"""A training as a workload: what it takes, what it refuses, one step as the unit, everything put back in place."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import compilot
from compilot import Training
from compilot.errors import InputError
from compilot.records import Kind, Precision
from compilot.training import make_step
from compilot.workload.loop import Loop, read, write
from compilot.workload.shipping import ship, unship
from compilot.workload.steps import AT_MOST, Steps
from compilot.workload.target import load_target


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm, self.drop, self.out = (
            nn.Linear(4, 8),
            nn.BatchNorm1d(8),
            nn.Dropout(0.2),
            nn.Linear(8, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.drop(self.norm(self.inner(x))))


def loss(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def batch_of(seed: int) -> tuple[Tensor, Tensor]:
    made = torch.Generator().manual_seed(seed)
    return torch.randn(6, 4, generator=made), torch.randint(0, 3, (6,), generator=made)


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-2)


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, dampening=0.1)


def one_cycle(optimizer: torch.optim.Optimizer) -> Any:
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, 4)


def made(**more: Any) -> Training:
    return Training(Net(), loss, more.pop("optimizer", adam), more.pop("batches", batch_of), **more)


def everything(loop: Loop) -> dict[str, Any]:
    """All that a step may change, by value."""
    tensors = {name: tensor.clone() for name, tensor in loop.tensors().items()}
    rates = [float(group["lr"]) for group in loop.optimizer.param_groups]
    return {**tensors, "rates": rates, "modes": [module.training for module in loop.model.modules()]}


def assert_equal(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]) if isinstance(value, Tensor) else value == other[name], name


def test_its_record_says_what_a_step_is() -> None:
    ref = made(accumulate=2, clip_norm=1, autocast="bf16").ref
    assert ref.kind is Kind.TRAINING
    assert ref.grad
    assert ref.step is not None
    assert (ref.step.accumulate, ref.step.clip_norm, ref.step.autocast) == (2, 1.0, Precision.BF16)


def test_the_example_is_the_call_that_the_loss_makes_and_nothing_moves() -> None:
    net = Net()
    before, random = copy.deepcopy(net.state_dict()), torch.get_rng_state()
    load = Training(net, loss, adam, batch_of)
    assert torch.equal(load.call.args[0], batch_of(0)[0])
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    assert torch.equal(random, torch.get_rng_state())


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"optimizer": torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1.0)}, "live SGD"),
        ({"optimizer": 3}, "must be a function"),
        ({"optimizer": lambda parameters: None}, "returned a NoneType"),
        ({"optimizer": lambda parameters: torch.optim.LBFGS(parameters)}, "LBFGS"),
        ({"optimizer": lambda parameters: torch.optim.SGD(parameters, lr=-1.0)}, "fix the factory"),
        ({"batches": []}, "at least one batch"),
        ({"batches": None}, "at least one batch"),
        ({"loader": 3}, "loader must be a DataLoader"),
        ({"batches": None, "loader": []}, "at least one batch"),
        ({"accumulate": 0}, "at least 1"),
        ({"clip_norm": 0.0}, "above 0"),
        ({"autocast": torch.int8}, "bfloat16"),
        ({"autocast": torch.float16}, "needs loss scaling (GradScaler)"),
        ({"autocast": "fp16"}, "needs loss scaling (GradScaler)"),
        ({"scheduler": 3}, "scheduler must be a function"),
        ({"scheduler": lambda optimizer: None}, "no step()"),
        ({"scheduler": lambda own: torch.optim.lr_scheduler.ReduceLROnPlateau(own)}, "moves by a metric"),
    ],
)
def test_wrong_arguments_are_one_sentence(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as error:
        made(**wrong)
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (lambda model, batch: model(batch[0]), "scalar"),
        (lambda model, batch: batch[0].sum(), "nothing to train"),
        (lambda model, batch: model.inner(batch[0]).sum(), "never calls the model"),
        (lambda model, batch: model(batch["x"]), "failed with"),
        (nn.CrossEntropyLoss(), "is a module"),
    ],
)
def test_a_wrong_loss_is_one_sentence(bad: Any, told: str) -> None:
    with pytest.raises(InputError) as error:
        Training(Net(), bad, adam, batch_of)
    assert told in str(error.value)


@pytest.mark.parametrize("optimizer", [adam, sgd])
def test_a_step_is_put_back_in_place(optimizer: Any) -> None:
    load = made(optimizer=optimizer, accumulate=2, clip_norm=0.5, scheduler=one_cycle)
    unit = Steps(load.model, load)
    unit.call()
    unit.begin_here()
    before, objects = everything(unit.loop), {name: id(t) for name, t in unit.loop.optimizer.state.items()}
    random = torch.get_rng_state()
    for _ in range(6):  # past the end of the schedule, too
        unit.call()
    unit.loop.model.eval()
    unit.loop.change_rate(0.1)
    changed = everything(unit.loop)
    assert not torch.equal(before["parameter inner.weight"], changed["parameter inner.weight"])
    unit.begin_again()
    assert_equal(before, everything(unit.loop))
    assert objects == {name: id(t) for name, t in unit.loop.optimizer.state.items()}
    assert torch.equal(random, torch.get_rng_state())
    assert all(parameter.grad is None for parameter in load.model.parameters())


def test_the_same_steps_follow_after_going_back() -> None:
    load = made(scheduler=one_cycle)
    loop = Loop(load)
    loop.window([batch_of(0)])
    state = loop.save()
    first = [float(loop.window([batch_of(n)])[0]) for n in range(3)]
    loop.restore(state)
    assert [float(loop.window([batch_of(n)])[0]) for n in range(3)] == first


def test_a_state_travels_to_another_process_as_plain_data(tmp_path: Path) -> None:
    load = made(scheduler=one_cycle, optimizer=sgd)
    loop = Loop(load)
    for number in range(2):
        loop.window([batch_of(number)])
    write(loop.save(), tmp_path / "state.pt")
    expected = everything(loop)
    other = Loop(made(scheduler=one_cycle, optimizer=sgd))
    other.restore(read(tmp_path / "state.pt"))
    assert_equal(expected, everything(other))
    torch.manual_seed(0)
    following = float(loop.window([batch_of(5)])[0])
    torch.manual_seed(0)
    assert float(other.window([batch_of(5)])[0]) == following
    assert_equal(everything(loop), everything(other))


def test_a_long_row_of_steps_goes_back_by_itself() -> None:
    load = made()
    unit = Steps(load.model, load)
    unit.call()
    unit.begin_here()
    before = everything(unit.loop)
    for _ in range(AT_MOST):
        unit.call()
        unit.between()
    assert_equal(before, everything(unit.loop))


def test_a_loader_is_part_of_the_step() -> None:
    load = made(batches=None, loader=[batch_of(n) for n in range(3)])
    assert len(load.batches) == 3
    unit = Steps(load.model, load)
    for _ in range(7):  # it ends and begins again
        unit.call()
    share = unit.model_share()
    assert share is not None
    assert 0.0 < share.model_s <= share.request_s
    plain = made()
    assert Steps(plain.model, plain).model_share() is None


def test_live_objects_reach_a_child(tmp_path: Path) -> None:
    scale = 2.0
    load = Training(Net(), lambda model, batch: scale * loss(model, batch), adam, batch_of, accumulate=2)
    there = unship(ship(load, tmp_path))
    assert isinstance(there, Training)
    assert there.rules == load.rules
    torch.manual_seed(0)
    here = Loop(load).window(load.batches[:2])
    torch.manual_seed(0)
    assert [float(a) for a in Loop(there).window(there.batches[:2])] == [float(a) for a in here]


def test_a_target_may_return_it(tmp_path: Path) -> None:
    source = Path(__file__).read_text().partition("def everything")[0]
    (tmp_path / "trains.py").write_text(source + "\n\ndef factory():\n    return made(seed=3)\n")
    found = load_target(f"{tmp_path / 'trains.py'}:factory")
    assert isinstance(found, Training)
    assert found.seed == 3
    assert compilot.Training is Training


def test_another_seed_gives_other_batches() -> None:
    load = made()
    assert not torch.equal(load.batches[0][0], load.replaced(seed=5).batches[0][0])


def test_eval_mode_is_said() -> None:
    net = Net().eval()
    assert any("eval mode" in note for note in Training(net, loss, adam, batch_of).notes)
    assert not made().notes


def sized(*sizes: int) -> list[tuple[Tensor, Tensor]]:
    return [(torch.randn(size, 4), torch.randint(0, 3, (size,))) for size in sizes]


def test_batches_of_other_sizes_are_left_out_and_that_is_said() -> None:
    load = made(batches=sized(6, 6, 2))
    assert [len(x) for x, _ in load.batches] == [6, 6]
    assert any("other sizes" in note for note in load.notes)
    assert not made(batches=sized(6, 6)).notes


@pytest.mark.parametrize("rows", [8, 3 * 12 + 2])  # with the smaller batch among those that are looked at, or later
def test_the_last_smaller_batch_of_a_loader_is_passed_over(rows: int) -> None:
    data = torch.utils.data.TensorDataset(torch.randn(rows, 4), torch.randint(0, 3, (rows,)))
    load = made(batches=None, loader=torch.utils.data.DataLoader(data, batch_size=3))
    assert {len(x) for x, _ in load.batches} == {3}
    assert any("other sizes" in note for note in load.notes)
    unit, seen = Steps(load.model, load), []
    unit.loop.step = lambda batch: seen.append(len(batch[0]))  # type: ignore[assignment, return-value]
    for _ in range(2 * rows // 3 + 2):  # through all of it more than twice
        unit.call()
    assert set(seen) == {3}


def test_of_a_loader_whose_sizes_always_change_nothing_is_passed_over() -> None:
    load = made(batches=None, loader=sized(3, 4, 5, 6))
    unit, seen = Steps(load.model, load), []
    unit.loop.step = lambda batch: seen.append(len(batch[0]))  # type: ignore[assignment, return-value]
    for _ in range(4):
        unit.call()
    assert seen == [3, 4, 5, 6]
    assert len(load.batches) == 1


def test_the_baseline_clips_and_zeroes_what_a_step_of_a_plan_does() -> None:
    """All of the model's gradients, also of parameters that the optimizer does not move."""
    load = made(optimizer=lambda parameters: torch.optim.SGD(list(parameters)[-2:], lr=0.1), clip_norm=0.1)
    plain = Loop(load)
    planned = Loop(load, lambda model, own, optimizer: make_step(model, own, optimizer, clip_norm=0.1))
    found, begin = [], plain.save()
    for loop in (plain, planned):
        loop.restore(begin)
        torch.manual_seed(0)
        for number in range(2):
            loop.window([batch_of(number)])
        found.append({name: (p.detach().clone(), p.grad) for name, p in load.model.named_parameters()})
    for name, (value, gradient) in found[0].items():
        assert torch.equal(value, found[1][name][0]), name
        assert torch.equal(gradient, found[1][name][1]), name
