"""Examples that an export is traced with: small sizes are made larger, and lie in memory as the guard says."""

from __future__ import annotations

import pytest
import torch

from compilot.engines.exporting import _traced
from compilot.inputs.layouts import order_of, strides_of
from compilot.records import DimRange, Guard, TensorGuard

ROWS = DimRange(min=1, max=8)


def traced(example: torch.Tensor, shape: tuple[int | DimRange, ...], order: tuple[int, ...] | None) -> torch.Tensor:
    tensor = TensorGuard(path="args[0]", dtype="torch.float32", device="cpu", shape=shape, stride=None, order=order)
    guard = Guard(positional=1, keywords=(), tensors=(tensor,))
    return _traced(guard, [example], keep_strides=True)[0]


@pytest.mark.parametrize(
    ("example", "order", "strides"),
    [
        (torch.randn(1, 4), None, (4, 1)),
        (torch.randn(4, 1).t(), (1, 0), (1, 3)),  # transposed
        (torch.randn(1, 4), (1,), (0, 1)),  # expanded
    ],
)
def test_a_row_that_becomes_several_lies_as_the_guard_says(
    example: torch.Tensor, order: tuple[int, ...] | None, strides: tuple[int, ...]
) -> None:
    made = traced(example, (ROWS, 4), order)
    assert (tuple(made.shape), made.stride()) == ((3, 4), strides)
    assert torch.equal(made, example.expand(3, 4))


@pytest.mark.parametrize(
    ("tensor", "order"),
    [
        (torch.empty(2, 3, 4), (0, 1, 2)),
        (torch.empty(2, 3, 4).transpose(1, 2), (0, 2, 1)),
        (torch.empty(2, 3, 4, 5).contiguous(memory_format=torch.channels_last), (0, 2, 3, 1)),
        (torch.empty(4).expand(3, 4), (1,)),
        (torch.empty(2, 6)[:, :3], None),
        (torch.tensor(1.0), ()),
    ],
)
def test_the_order_of_dimensions_gives_the_strides_again(tensor: torch.Tensor, order: tuple[int, ...] | None) -> None:
    found = order_of([(tensor.shape, tensor.stride())])
    assert found == order
    if found is not None:
        assert strides_of(tensor.shape, found) == tensor.stride()


def test_sizes_of_one_say_nothing_and_another_call_decides() -> None:
    one, many = torch.empty(1, 4), torch.empty(4, 3).t()
    assert order_of([(t.shape, t.stride()) for t in (one, many)]) == (1, 0)
    assert order_of([(t.shape, t.stride()) for t in (torch.empty(2, 4), many)]) is None
