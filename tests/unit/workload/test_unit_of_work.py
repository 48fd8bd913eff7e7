import random

import numpy as np
import pytest
import torch
from torch import nn

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
