"""Real engines on values unlike the example: eager's numbers, or a refusal by name, or a call that goes to eager."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from compilot._tree import Call
from compilot.engines import registry
from compilot.engines.protocol import BuildRequest, Infeasible, LoadRequest, NotTaken
from compilot.measure.correctness import check, make_reference
from compilot.records import Candidate, Settings, Shapes
from compilot.runtime.guards import make_guard
from compilot.workload import Workload
from compilot.workload.variations import cases

ENGINES = ["onnxruntime", "openvino"]


class Model(nn.Module):
    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *given: Tensor) -> Any:
        return self.fn(*given)


def built(engine: str, fn: Callable[..., Any], given: tuple[Tensor, ...], folder: Path) -> Callable[..., Any]:
    folder.mkdir(exist_ok=True)
    model, call, settings = Model(fn).eval(), Call(given, {}), Settings(engine=engine, shapes=Shapes.STATIC)
    guard = make_guard(model, call, dynamic=(), shapes=Shapes.STATIC, grad=False)
    candidate = Candidate(settings=settings, label=engine, rationale="")
    with torch.no_grad():
        registry.build_half(engine).build(BuildRequest(model, call, guard, candidate, folder))
        return registry.load_half(engine).load(LoadRequest(model, guard, settings, folder)).call


def integers(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    wide = a.long() // b.long()
    modes = [torch.div(a, b, rounding_mode=mode) for mode in ("floor", "trunc")]
    mixed = (a.sum() - b.sum(), (a + b).cumsum(0), -a.abs(), a % 7, a // -3, torch.where(a > b, a, b))
    return (a // b, wide, *modes, a % b, torch.fmod(a, b), a == b, a < b, ~a, a.argmax(), *mixed)


def numbers(*limits: int) -> tuple[Tensor, Tensor]:
    """Every pair of small numbers and these, but no division that stops the machine."""
    values = torch.tensor([*limits, -8, -7, -3, -2, -1, 1, 2, 3, 7, 8])
    a, b = torch.cartesian_prod(values, values).unbind(1)
    kept = ~((a == -(2**63)) & (b == -1)) & ~((a == -(2**31)) & (b == -1))
    return a[kept][:130].contiguous(), b[kept][:130].contiguous()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_integers(engine: str, dtype: torch.dtype, tmp_path: Path) -> None:
    a, b = (values.to(dtype) for values in numbers(1000, -4096))
    call = built(engine, integers, (a.abs(), b.abs()), tmp_path)
    info, answered = torch.iinfo(dtype), 0
    for limits in ((1000, -4096), (2**24, -(2**24) - 1), (info.max, info.min), (info.max // 3, info.min + 1)):
        a, b = (values.to(dtype) for values in numbers(*limits))
        try:
            results = call(a, b)
        except NotTaken:
            continue
        answered += 1
        for at, (have, want) in enumerate(zip(results, integers(a, b), strict=True)):
            assert have.dtype == want.dtype
            assert have.tolist() == want.tolist(), (at, limits)
    assert answered == (4 if engine == "onnxruntime" else 1)  # OpenVINO leaves what needs more than 24 bits to eager


def ordered(x: Tensor) -> tuple[Tensor, ...]:
    ends = x.clamp(-50, 60), x.clamp(min=-50), x.clamp(max=60), torch.clamp(x, torch.tensor(-3), torch.tensor(9))
    pairs = torch.minimum(x, x.flip(0)), torch.maximum(x, torch.tensor(-50)), torch.min(x, torch.tensor(60))
    rows = x.reshape(-1, 16)
    return (*ends, *pairs, x.sign(), rows.argmax(-1), rows.sort(-1).values)


@pytest.mark.parametrize("name", ["amax", "amin", "max", "min"])
def test_the_largest_of_many_64_bit_integers_is_refused_by_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(Infeasible, match=rf"2\*\*31 .*'{name}' at .*test_operator_meaning\.py"):
        built("onnxruntime", lambda x: largest(x * 2, name), (torch.ones(4, 16).long(),), tmp_path)


def largest(x: Tensor, name: str) -> Tensor:
    found = getattr(x, name)(dim=-1)
    return found if isinstance(found, Tensor) else found.values


@pytest.mark.parametrize(
    ("engine", "dtype"), [("onnxruntime", torch.int64), ("openvino", torch.int64), ("openvino", torch.int32)]
)
def test_integers_around_every_power_of_two_are_put_in_order(engine: str, dtype: torch.dtype, tmp_path: Path) -> None:
    info = torch.iinfo(dtype)
    powers = [sign * 2**n + more for n in range(info.bits - 1) for sign in (1, -1) for more in (-1, 0, 1)]
    x = torch.tensor((powers * 8)[: 16 * (8 * len(powers) // 16)], dtype=dtype)
    call, answered = built(engine, ordered, (x.clamp(1, 9),), tmp_path), 0
    for given in (x, x.clamp(-(2**20), 2**20)):
        try:
            results = call(given)
        except NotTaken:
            continue
        answered += 1
        for at, (have, want) in enumerate(zip(results, ordered(given), strict=True)):
            assert have.tolist() == want.tolist(), at
    assert answered == (2 if engine == "onnxruntime" else 1)


def second_names(x: Tensor) -> tuple[Tensor, ...]:
    halves = torch.divide(x, 2, rounding_mode="floor"), torch.divide(x, 3, rounding_mode="trunc")
    return (*halves, x.clip(-50, 60), torch.clip(x, max=9), torch.negative(torch.absolute(x)), x.sgn())


@pytest.mark.parametrize("engine", ENGINES)
def test_an_operator_of_two_names_means_the_same_by_both(engine: str, tmp_path: Path) -> None:
    x = torch.tensor([-7, -3, -1, 0, 1, 5, 100, -100] * 8)
    call = built(engine, second_names, (x.clamp(1, 9),), tmp_path)
    large = [2**31, -(2**31) - 1] if engine == "onnxruntime" else []
    given = torch.tensor([*x.tolist()[: 64 - len(large)], *large])
    for have, want in zip(call(given), second_names(given), strict=True):
        assert have.tolist() == want.tolist()
    with pytest.raises(Infeasible, match=r"'atan2' at .*test_operator_meaning\.py"):
        built(engine, torch.arctan2, (torch.randn(4), torch.randn(4)), tmp_path)


def quotients(x: Tensor) -> tuple[Tensor, ...]:
    return x // 2, x // 3, torch.div(x, 2, rounding_mode="trunc"), torch.div(x, 5, rounding_mode="floor")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16])
def test_narrow_integers_are_divided_as_by_eager_at_every_value(
    engine: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    info = torch.iinfo(dtype)
    ends = torch.cat([torch.arange(info.min, info.min + 256), torch.arange(info.max - 255, info.max + 1)])
    x = torch.cat([ends, torch.arange(-128, 128)]).to(dtype)
    call = built(engine, quotients, (x.clamp(1, 9),), tmp_path)
    for have, want in zip(call(x), quotients(x), strict=True):
        assert have.dtype == want.dtype
        assert have.tolist() == want.tolist()


def attention(q: Tensor, keep: Tensor, added: Tensor) -> tuple[Tensor, ...]:
    by_hand = (q @ q.transpose(-1, -2)).masked_fill(~keep, -1e9).softmax(-1) @ q
    pooled = (q * keep[..., :1]).sum(2) / keep[..., :1].sum(2).clamp(min=1e-9)
    masks = (F.scaled_dot_product_attention(q, q, q, attn_mask=mask) for mask in (keep, added))
    return (*masks, by_hand, pooled)


@pytest.mark.parametrize("engine", ENGINES)
def test_rows_that_see_nothing(engine: str, tmp_path: Path) -> None:
    q, keep = torch.randn(2, 2, 4, 8), torch.ones(2, 1, 4, 4, dtype=torch.bool)
    call = built(engine, attention, (q, keep, torch.zeros(2, 1, 4, 4)), tmp_path)
    one_row = keep.clone()
    one_row[0, 0, 2] = False
    half = torch.ones_like(keep)
    half[..., 2:] = False
    for mask in (keep, half, one_row, torch.zeros_like(keep)):
        for low in (-math.inf, torch.finfo(torch.float32).min, -1e9):
            added = torch.zeros(mask.shape).masked_fill(~mask, low)
            for have, want in zip(call(q, mask, added), attention(q, mask, added), strict=True):
                torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
def test_logarithms_of_exponentials_far_from_zero(engine: str, tmp_path: Path) -> None:
    def fn(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        return F.logsigmoid(a), torch.logaddexp(a, b), F.softplus(a), a.logsumexp(-1)

    call = built(engine, fn, (torch.randn(4, 6), torch.randn(4, 6)), tmp_path)
    for scale in (1.0, 30.0, 100.0, 1000.0):
        a, b = torch.randn(4, 6) * scale, torch.randn(4, 6) * scale
        for have, want in zip(call(a, b), fn(a, b), strict=True):
            torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-5)


def test_remainders_of_large_floats_in_onnx_runtime(tmp_path: Path) -> None:
    def fn(x: Tensor) -> tuple[Tensor, ...]:
        return x % 3.0, x % -2.5, torch.fmod(x, 3.0)

    call = built("onnxruntime", fn, (torch.rand(6),), tmp_path)
    for values in ([1e10, 1e10 + 1024, -1e10, 3e12, 123456789.0, 0.1], [5.9999995, -6.0, 3.0, 0.0, -0.1, 2.0**24 + 2]):
        for have, want in zip(call(torch.tensor(values)), fn(torch.tensor(values)), strict=True):
            assert have.tolist() == want.tolist()


@pytest.mark.parametrize(
    ("engine", "fn", "operator"),
    [
        ("onnxruntime", lambda x: x.long().prod(), "prod"),
        ("onnxruntime", lambda x: x // 0.1, "floor_divide"),
        ("onnxruntime", lambda x: torch.div(x, 0.1, rounding_mode="floor"), "div"),
        ("onnxruntime", lambda x: torch.atan2(x, x - 1), "atan2"),
        ("onnxruntime", torch.signbit, "signbit"),
        ("openvino", lambda x: x % 3.0, "remainder"),
        ("openvino", lambda x: torch.fmod(x, 3.0), "fmod"),
        ("openvino", lambda x: x // 0.1, "floor_divide"),
        ("openvino", lambda x: torch.div(x, 0.1, rounding_mode="trunc"), "div"),
        ("openvino", lambda x: torch.atan2(x, x - 1), "atan2"),
        ("openvino", lambda x: x.to(torch.uint8) + 1, "add"),
        ("openvino", lambda x: x.to(torch.int8) * 2, "mul"),
    ],
)
def test_what_an_engine_computes_otherwise_is_infeasible_by_name(
    engine: str, fn: Callable[[Tensor], Tensor], operator: str, tmp_path: Path
) -> None:
    with pytest.raises(Infeasible, match=rf"'{operator}' at .*test_operator_meaning.py:\d+"):
        built(engine, fn, (torch.rand(4),), tmp_path)


SMALL = torch.tensor([1e-2, -1e-3, 1e-4, -1e-5, 1e-6, -1e-6, 1e-7, -1e-7] * 4)
LOW = torch.tensor([-8.0, -12.0, -16.0, -19.0, -21.0, -24.0, -27.0, -30.0] * 4)


SMALL_RESULTS: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
    "log1p": (lambda x: torch.log1p(x), SMALL),
    "expm1": (torch.expm1, SMALL),
    "elu": (F.elu, SMALL),
    "tanh": (torch.tanh, SMALL),
    "sigmoid": (torch.sigmoid, LOW),
    "erfc": (lambda x: torch.erfc(x.abs() / 4), LOW),
    "softplus": (F.softplus, LOW),
    "silu": (lambda x: x.sigmoid() * x, LOW),
}
RIGHT = {"onnxruntime": {"tanh", "softplus"}, "openvino": {"tanh", "sigmoid", "silu"}}  # the others are refused


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", SMALL_RESULTS)
def test_small_results_are_right_or_refused_by_the_gate(engine: str, name: str, tmp_path: Path) -> None:
    fn, values = SMALL_RESULTS[name]
    torch.manual_seed(0)
    load = Workload(Model(fn).eval(), torch.randn(32))
    found = cases(load)
    call = built(engine, fn, (torch.randn(32),), tmp_path / "engine")
    reference = make_reference(load, found, tmp_path / "reference")
    result = check(call, load, found, tmp_path / "reference", reference)
    assert result.passed == (name in RIGHT[engine]), result.why
    off = (call(values) - fn(values)).abs() > 0.01 * fn(values).abs()
    assert bool(off.any()) != result.passed, (values[off], call(values)[off], fn(values)[off])
    if not result.passed:
        assert f"(case {'small' if values is SMALL else 'negative'})" in result.why
