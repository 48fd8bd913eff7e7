"""What is written otherwise for an engine computes the same to the bit; what has no such form is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from compilot.engines.meaning import refuse
from compilot.engines.onnxruntime import means as onnx_means
from compilot.engines.openvino import means as openvino_means
from compilot.engines.protocol import Infeasible
from compilot.engines.quiet import quiet
from compilot.engines.rewriting import Rule, remainder_from_fmod, rewrite
from compilot.engines.whereabouts import operator_name

INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)


class Two(nn.Module):
    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *given: Tensor) -> Any:
        return self.fn(*given)


def rewritten(fn: Callable[..., Any], rules: dict[str, Rule], *given: Tensor) -> Any:
    """The graph of fn after the rules, as a callable; its operators' names beside it."""
    with torch.no_grad(), quiet():
        program = rewrite(torch.export.export(Two(fn).eval(), given, strict=False), rules)
    names = [operator_name(node) for node in program.graph.nodes if node.op == "call_function"]
    return program.module(), names


def floor_and_rest(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    modes = [torch.div(a, b, rounding_mode=mode) for mode in ("floor", "trunc")]
    return (a // b, *modes, torch.fmod(a, b))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data(), dtype=st.sampled_from(INTEGERS))
@pytest.mark.parametrize("rules", [onnx_means.REWRITTEN, openvino_means.REWRITTEN], ids=["onnxruntime", "openvino"])
def test_division_of_integers_is_eagers_over_their_whole_range(rules: dict[str, Rule], data: Any, dtype: Any) -> None:
    info = torch.iinfo(dtype)
    number = st.one_of(st.integers(info.min, info.max), st.integers(max(info.min, -9), 9), st.just(info.min))
    pairs = data.draw(st.lists(st.tuples(number, number.filter(bool)), min_size=5, max_size=5))
    pairs = [(a, b) for a, b in pairs if not (a == info.min and b == -1)] or [(7, 2)]  # the machine stops there
    a, b = (torch.tensor(column, dtype=dtype) for column in zip(*pairs, strict=True))
    call = CACHE.setdefault((id(rules), dtype, len(a)), rewritten(floor_and_rest, rules, a, b)[0])
    for have, want in zip(call(a, b), floor_and_rest(a, b), strict=True):
        assert have.dtype == want.dtype
        assert have.tolist() == want.tolist(), (a, b)
    for x, y, floor in zip(a.tolist(), b.tolist(), call(a, b)[0].tolist(), strict=True):
        assert floor == x // y  # Python's integers have no width


CACHE: dict[Any, Any] = {}


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=6, max_size=6),
    st.sampled_from([None, 0, 1, (0, 1)]),
    st.booleans(),
)
def test_sums_of_64_bit_integers_wrap_around_as_eagers_do(numbers: list[int], dim: Any, keep: bool) -> None:
    x = torch.tensor(numbers).reshape(2, 3)
    add = (lambda x: x.sum()) if dim is None else (lambda x: x.sum(dim, keepdim=keep))
    if (key := ("sum", dim, keep)) not in CACHE:
        CACHE[key] = rewritten(add, onnx_means.REWRITTEN, x)[0]
    assert CACHE[key](x).tolist() == add(x).tolist()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(st.floats(-(2.0**40), 2.0**40, width=32), st.floats(-1024, 1024, width=32)), min_size=4, max_size=4
    )
)
def test_a_remainder_of_floats_is_eagers(pairs: list[tuple[float, float]]) -> None:
    pairs = [(a, b if abs(b) > 1e-3 else 3.0) for a, b in pairs]
    a, b = (torch.tensor(column) for column in zip(*pairs, strict=True))
    if "remainder" not in CACHE:
        CACHE["remainder"] = rewritten(lambda a, b: a % b, {"remainder": remainder_from_fmod}, a, b)[0]
    torch.testing.assert_close(CACHE["remainder"](a, b), a % b, rtol=0, atol=0)


def test_numbers_in_place_forms_and_mixed_dtypes_are_rewritten_too() -> None:
    def fn(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        own = a.clone()
        own //= 3
        own.div_(b, rounding_mode="floor")
        return own, a // -2, a // b, b // a.long(), torch.div(a, 5, rounding_mode="floor"), a / b, a.float() // 3

    a, b = torch.tensor([-7, 8, -9, 5], dtype=torch.int32), torch.tensor([2, -3, 4, -5])
    call, names = rewritten(fn, openvino_means.REWRITTEN, a, b.int())
    for have, want in zip(call(a, b.int()), fn(a, b.int()), strict=True):
        assert have.dtype == want.dtype
        assert have.tolist() == want.tolist()
    assert names.count("floor_divide") == 1  # of floats: that one is left alone
    assert "floor_divide_" not in names


def test_what_needs_no_other_form_stays_as_it_is() -> None:
    def fn(x: Tensor) -> tuple[Tensor, ...]:
        return x.sum(), (x > 0).sum(), x.int().sum(), x / 2, torch.div(x, 3.0, rounding_mode="floor")

    x = torch.randn(5)
    with torch.no_grad():
        program = torch.export.export(Two(fn).eval(), (x,), strict=False)
    before = str(program.graph)
    assert str(rewrite(program, onnx_means.REWRITTEN).graph) == before


def test_graphs_within_the_graph_are_rewritten() -> None:
    def fn(a: Tensor) -> Tensor:
        return torch.cond(a.sum() > 0, lambda x: x // 2, lambda x: x // 3, (a,))

    call, _ = rewritten(fn, openvino_means.REWRITTEN, torch.tensor([1, 2]))
    for values in ([-7, 20], [-7, -20]):
        assert call(torch.tensor(values)).tolist() == fn(torch.tensor(values)).tolist()


@pytest.mark.parametrize("fn", [lambda x: x.prod(), lambda x: x.prod(0), lambda x: x.int().prod(0)])
def test_what_has_no_equal_form_is_infeasible_with_its_line(fn: Callable[[Tensor], Tensor]) -> None:
    program = torch.export.export(Two(fn).eval(), (torch.tensor([1, 2]),), strict=False)
    with pytest.raises(Infeasible, match=r"multiplies integers up as 64-bit floats: 'prod' at .*test_rewriting.py:\d+"):
        refuse(program, onnx_means.REFUSED)


def test_products_of_floats_are_not_refused() -> None:
    program = torch.export.export(Two(lambda x: x.prod()).eval(), (torch.tensor([1.0, 2.0]),), strict=False)
    refuse(program, onnx_means.REFUSED)
