"""May a call be answered in parts? Models whose rows are independent, and models in which they are not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from compilot.measure.padding import prove_padding
from compilot.workload import Workload


class Net(nn.Module):
    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.answer(self.layer(x))


def in_parts(answer: Any, low: int = 1, high: int = 9) -> bool | None:
    """Whether the proof allows parts; None: the batch may not even be padded."""
    workload = Workload(Net(answer).eval(), (torch.randn(3, 4),), dynamic={"x": {0: (low, high)}})
    padding = prove_padding(workload).padding
    return None if padding is None else padding.dims[0].in_parts


@pytest.mark.parametrize(
    "answer",
    [
        lambda x: x.relu(),
        lambda x: {"rows": x, "flat": x.reshape(-1), "turned": x.unsqueeze(1).transpose(0, 1)},
        lambda x: (x.T.contiguous().T, torch.ones(3)),
    ],
)
def test_independent_rows_may_come_in_parts(answer):
    assert in_parts(answer) is True


@pytest.mark.parametrize(
    "answer",
    [
        lambda x: x.softmax(0),
        lambda x: x - x.mean(0),
        lambda x: x * x.shape[0],
    ],
)
def test_rows_that_see_each_other_may_not(answer):
    assert in_parts(answer) is None


@pytest.mark.parametrize(
    "answer",
    [
        lambda x: x @ x.T,  # each row with each other one: a padded call can be cut back, parts do not have all of it
        lambda x: torch.cdist(x, x),
        lambda x: x * (1.0 if x.shape[0] < 9 else 2.0),  # another answer at the most rows
    ],
)
def test_what_parts_do_not_have_is_seen(answer):
    assert not in_parts(answer)


def test_where_single_rows_are_not_declared_nothing_is_known_of_them():
    assert in_parts(lambda x: x.relu(), low=2) is False
