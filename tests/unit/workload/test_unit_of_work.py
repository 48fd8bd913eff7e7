import random

import numpy as np
import pytest
import torch
from torch import nn

from compilot._tree import Call
from compilot.workload import Workload


class Counter(nn.Module):
    """Stateful in every way that restore() covers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(1))
        self.register_buffer("history", torch.zeros(0))
        self.inner = nn.BatchNorm1d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        self.history = torch.cat([self.history, torch.rand(1)])
        x.add_(1)
        return self.inner(x)


def test_one_call_runs_every_example() -> None:
    seen = []
    workload = Workload(nn.Identity().eval(), examples=[torch.ones(1), torch.zeros(1)])
    unit = workload.unit(lambda x: seen.append(x.item()))
    assert unit.call() is None  # type: ignore[func-returns-value]
    assert seen == [1.0, 0.0]
    assert unit.calls == 2


@pytest.mark.parametrize("grad", [True, False])
def test_the_grad_mode_is_the_workloads(grad: bool) -> None:
    modes = []
    unit = Workload(nn.Identity().eval(), torch.ones(1), grad=grad).unit(
        lambda x: modes.append(torch.is_grad_enabled())
    )
    unit.call()
    assert modes == [grad]
    assert torch.is_grad_enabled()


def test_restore_puts_buffers_inputs_and_random_state_back() -> None:
    model = Counter()
    x = torch.randn(4, 2)
    before = x.clone()
    unit = Workload(model, x).unit(model)
    saved = unit.save()
    unit.call()
    random.random(), np.random.rand()
    assert model.steps.item() == 1
    unit.restore(saved)
    assert model.steps.item() == 0
    assert model.history.numel() == 0
    assert model.inner.num_batches_tracked.item() == 0
    assert torch.equal(x, before)
    assert torch.equal(torch.get_rng_state(), saved.random.torch)
    assert random.getstate() == saved.random.python
    assert np.array_equal(np.random.get_state()[1], saved.random.numpy[1])


def test_restore_does_not_touch_what_did_not_change() -> None:
    model = nn.BatchNorm1d(2).eval()
    model.running_mean[0] = float("nan")
    unit = Workload(model, torch.ones(3, 2)).unit(model)
    versions = [buffer._version for buffer in model.buffers()]
    saved = unit.save()
    unit.call()
    unit.restore(saved)
    assert [buffer._version for buffer in model.buffers()] == versions


class Rebinds(nn.Module):
    """Puts other tensors in the place of its buffers, and resizes one."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(1))
        self.register_buffer("history", torch.zeros(0))
        self.register_buffer("room", torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps = self.steps + 1
        self.history = torch.cat([self.history, self.steps])
        self.room.resize_(5).fill_(3)
        return x + self.steps


class Steps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps = self.steps + 1
        return x + self.steps


def test_the_very_tensors_are_put_back() -> None:
    model = Rebinds()
    before = dict(model.named_buffers())
    unit = Workload(model, torch.ones(1)).unit(model)
    assert unit.run(Call((torch.ones(1),), {})).state.keys() == {"steps", "history", "room"}
    with unit.restored():
        unit.call()
        assert model.steps is not before["steps"]
    now = dict(model.named_buffers())
    assert all(now[name] is tensor for name, tensor in before.items())
    assert [tensor.tolist() for tensor in now.values()] == [[0.0], [], [1.0, 1.0]]


@pytest.mark.filterwarnings("ignore:`torch.jit.script")
def test_a_scripted_model_is_put_back_too() -> None:
    model = torch.jit.script(nn.Sequential(Steps()))
    unit = Workload(model, torch.ones(1)).unit(model)
    assert unit.run(Call((torch.ones(1),), {})).values["output"] == 2
    assert unit.run(Call((torch.ones(1),), {})).values["output"] == 2


def test_a_run_notes_what_changed_and_leaves_nothing_behind() -> None:
    model, x = Counter(), torch.randn(4, 2)
    before = x.clone()
    seen = Workload(model, x).unit(model).run(Call((x,), {}))
    assert torch.equal(seen.mutated["args[0]"], before + 1)
    assert seen.state["steps"] == 1
    assert seen.state["history"].shape == (1,)
    assert torch.equal(x, before)
    assert model.steps == 0
    assert model.history.numel() == 0


def test_work_that_raises_leaves_nothing_behind_either() -> None:
    model = Counter()
    with pytest.raises(RuntimeError):
        Workload(model, torch.ones(4, 2)).unit(model).run(Call((torch.ones(4, 3),), {}))
    assert model.steps == 0


def test_an_answer_owns_its_memory() -> None:
    model = nn.BatchNorm1d(2).eval()
    unit = Workload(model, torch.ones(3, 2)).unit(lambda x: {"mean": model.running_mean.add_(1), "x": x})
    answer = unit.answer(Call((torch.ones(3, 2),), {}))
    assert answer["mean"].tolist() == [1.0, 1.0]
    assert model.running_mean.tolist() == [0.0, 0.0]


def test_a_seed_gives_the_same_numbers_and_the_processs_own_go_on() -> None:
    model, call = nn.Dropout(0.5).train(), Call((torch.ones(64),), {})
    unit = Workload(model, torch.ones(64)).unit(model)
    before = torch.get_rng_state()
    first, again, other = (unit.answer(call, seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(unit.answer(call), unit.answer(call))


def test_in_double_is_the_same_work_on_a_copy() -> None:
    model = nn.BatchNorm1d(2).train()
    unit = Workload(model, torch.randn(4, 2), grad=True).unit(lambda x: x)
    double = unit.in_double()
    call = Call((torch.randn(4, 2),), {})
    found = double.run(call)
    assert found.values["output"].dtype is torch.float64
    assert torch.allclose(found.values["output"].float(), model(*call.args))
    assert found.state["running_mean"].dtype is torch.float64
    model.running_mean.zero_()
    double.call()
    assert double.model.running_mean.any()
    assert not model.running_mean.any()
