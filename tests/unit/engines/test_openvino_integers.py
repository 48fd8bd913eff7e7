"""OpenVINO's integers have 24 bits that count: which inputs need a limit, and what cannot be limited."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from compilot.engines.openvino.integers import LARGEST, limits
from compilot.engines.openvino.load import within
from compilot.engines.protocol import Infeasible, NotTaken


class Model(nn.Module):
    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__()
        self.fn = fn
        self.table = nn.Embedding(50, 4)
        self.register_buffer("positions", torch.arange(40))

    def forward(self, ids: torch.Tensor, x: torch.Tensor) -> Any:
        return self.fn(self, ids, x)


def limits_of(fn: Callable[..., Any]) -> dict[int, int]:
    """Of a model over ids (2, 8) and floats of the same shape."""
    ids, x = torch.randint(0, 50, (2, 8)), torch.randn(2, 8)
    with torch.no_grad():
        return limits(torch.export.export(Model(fn).eval(), (ids, x), strict=False))


def positions(m: Any, ids: torch.Tensor, x: torch.Tensor) -> Any:
    """As RoBERTa counts them: small numbers, however large the ids are."""
    mask = ids.ne(1).int()
    return m.table((torch.cumsum(mask, 1).type_as(mask) * mask).long() + 1)


def shifted(m: Any, ids: torch.Tensor, x: torch.Tensor) -> Any:
    """As BART shifts its labels: written into a tensor of zeros."""
    out = ids.new_zeros(ids.shape)
    out[:, 1:] = ids[:, :-1].clone()
    return out + 1


@pytest.mark.parametrize(
    ("fn", "found"),
    [
        (lambda m, ids, x: m.table(ids) + x[..., None], {}),
        (lambda m, ids, x: m.table(ids.view(-1)[:4].unsqueeze(0)) + m.positions[:4, None], {}),
        (lambda m, ids, x: x.argmax(1) + m.positions[:2] + torch.ones_like(x, dtype=torch.int64).sum(1), {}),
        (lambda m, ids, x: m.table(x.topk(2).indices + ids.shape[1]), {}),
        (lambda m, ids, x: x * (ids != 3), {0: LARGEST}),
        (lambda m, ids, x: (x + ids, m.table(ids)), {0: LARGEST}),
        (positions, {0: LARGEST}),
        (lambda m, ids, x: ids.flip(0), {0: LARGEST}),
        (lambda m, ids, x: torch.where(ids > 3, ids + 1, 0), {0: 2**23}),
        (shifted, {0: 2**23}),
        (lambda m, ids, x: ids.sum(1) - 1, {0: 2**16}),
        (lambda m, ids, x: ids * 20_000 % 50, {0: 2**8}),
        (lambda m, ids, x: ids.int() * 3 // 7, {0: 2**20}),
        (lambda m, ids, x: ids.to(torch.uint8), {0: LARGEST}),
        (lambda m, ids, x: ids.to(torch.int8).long() + 1, {0: LARGEST}),
        (lambda m, ids, x: -ids.abs() * ids.sign(), {0: LARGEST}),
        (lambda m, ids, x: ids.square(), {0: 2**12}),
    ],
)
def test_what_is_computed_with_an_input_limits_it(fn, found):
    assert limits_of(fn) == found


class TwoInputs(nn.Module):
    """The mask is counted and multiplied, the ids are only compared."""

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> Any:
        return torch.cumsum(mask, 1) * mask + (ids != 3), mask.new_ones(ids.shape)


def test_each_input_has_its_own_limit_and_its_shape_needs_none():
    dims = {1: torch.export.Dim("length", min=2, max=40)}
    ids, mask = torch.randint(0, 50, (2, 8)), torch.ones(2, 8, dtype=torch.int64)
    program = torch.export.export(TwoInputs().eval(), (ids, mask), dynamic_shapes=(dims, dims), strict=False)
    assert limits(program) == {0: LARGEST, 1: 2**8}


def of_dtype(dtype: torch.dtype, fn: Callable[..., Any]) -> dict[int, int]:
    ids, x = torch.randint(0, 50, (2, 8)).to(dtype), torch.randn(2, 8)
    with torch.no_grad():
        return limits(torch.export.export(Model(fn).eval(), (ids, x), strict=False))


def test_32_bit_inputs_have_limits_too_and_narrow_ones_need_none():
    assert of_dtype(torch.int32, lambda m, ids, x: ids + 1) == {0: 2**23}
    assert of_dtype(torch.int32, lambda m, ids, x: m.table(ids)) == {}
    for dtype in (torch.uint8, torch.int8, torch.int16):
        assert of_dtype(dtype, lambda m, ids, x: ids.float() / 255 - 0.5) == {}
        assert of_dtype(dtype, lambda m, ids, x: ids.long() * 100 + 1) == {}
        assert of_dtype(dtype, lambda m, ids, x: (ids > 3) & (ids.flip(0) == 5)) == {}
        assert of_dtype(dtype, lambda m, ids, x: (x * 5).clamp(0, 100).to(ids.dtype)) == {}


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16])
@pytest.mark.parametrize(
    "fn",
    [
        lambda ids: ids + 1,
        lambda ids: ids - 1,
        lambda ids: ids * 3,
        lambda ids: ids + ids,
        lambda ids: ids**2,
        lambda ids: torch.square(ids),
        lambda ids: ids.float() + (ids + ids),
        lambda ids: torch.stack([ids, ids * 2]).amax(0),
    ],
)
def test_narrow_integers_that_would_wrap_around_are_infeasible(dtype, fn):
    with pytest.raises(Infeasible, match=r"keeps 24 bits of an integer, and .* at .*test_openvino_integers\.py"):
        of_dtype(dtype, lambda m, ids, x: fn(ids))


def test_the_lowest_narrow_integer_has_no_opposite():
    for fn in (torch.neg, torch.abs):
        with pytest.raises(Infeasible, match="may not fit"):
            of_dtype(torch.int8, lambda m, ids, x, fn=fn: fn(ids))


@pytest.mark.parametrize(
    ("fn", "why"),
    [
        (lambda m, ids, x: ids - 1_700_000_000_000, "those of 'sub' at .*test_openvino_integers.py:.* may not fit"),
        (lambda m, ids, x: ids**3, "how large those of 'pow' at .* get is not known"),
        (lambda m, ids, x: (x * 1000).long(), "how large those of 'to' at .* get is not known"),
        (lambda m, ids, x: (x * 1000).int(), "how large those of 'to' at .* get is not known"),
        (lambda m, ids, x: x * (ids > 2**40), "what 'gt' at .* compares with has more"),
        (lambda m, ids, x: ids == torch.tensor(2**31), "what 'eq' at .* compares with has more"),
        (lambda m, ids, x: ids.prod(1), "how large those of 'prod' at .* get is not known"),
        (lambda m, ids, x: ids << 3, "how large those of '.*shift.*' at .* get is not known"),
        (lambda m, ids, x: ids @ ids.t(), "how large those of 'matmul' at .* get is not known"),
    ],
)
def test_what_may_not_fit_is_infeasible_with_its_line(fn, why):
    with pytest.raises(Infeasible, match=f"OpenVINO keeps 24 bits of an integer, and {why}"):
        limits_of(fn)


def test_a_call_beyond_the_limit_is_turned_down():
    within(torch.tensor([-5, 5]), 5, "args[0]")
    within(torch.tensor([], dtype=torch.int64), 5, "args[0]")
    for tensor in (torch.tensor([1, 6]), torch.tensor([-6, 1])):
        with pytest.raises(NotTaken, match=r"args\[0\] holds integers beyond 5"):
            within(tensor, 5, "args[0]")
