"""Matrix products by oneDNN: answers and gradients are eager's, whatever lies in memory, and only where it can."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from compilot._torch import compiling, products, trace
from compilot._torch.training import compiled_function
from compilot.engines.compiler_options import ONEDNN_PRODUCTS, torchs_own
from compilot.engines.protocol import Infeasible
from compilot.records import CompiledWay, Settings, StepParts
from compilot.training import make_step

pytestmark = pytest.mark.skipif(not products.can_use_onednn(), reason="this torch has no oneDNN")
ROWS, COLUMNS, BIAS = torch.randn(24, 32), torch.randn(32, 40), torch.randn(40)
BY_ONEDNN = "mkldnn._linear_pointwise"


def replaced(function: Callable[..., Any], *inputs: Tensor) -> int:
    """How many products of the function's graph the pass takes."""
    return products.replace_products(make_fx(function, tracing_mode="fake")(*inputs).graph)


@pytest.mark.parametrize("bias", [None, BIAS])
@pytest.mark.parametrize("lie", [lambda t: t, lambda t: t.t().contiguous().t()], ids=["rows", "columns"])
def test_a_product_by_onednn_is_the_product(bias: Tensor | None, lie: Callable[[Tensor], Tensor]) -> None:
    exact = ROWS.double() @ COLUMNS.double() + (0.0 if bias is None else bias.double())
    found = products.by_onednn(lie(ROWS), lie(COLUMNS), bias)
    torch.testing.assert_close(found.double(), exact, atol=1e-5, rtol=1e-5)


def test_the_gain_is_a_ratio_and_leaves_the_random_numbers_alone() -> None:
    before = torch.get_rng_state()
    gain = products.onednn_gain()
    assert gain is not None
    assert 0.05 < gain < 50.0
    assert torch.equal(torch.get_rng_state(), before)


def test_without_onednn_there_is_no_gain_to_speak_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "can_use_onednn", lambda: False)
    assert products.onednn_gain() is None


@pytest.mark.parametrize(
    ("function", "inputs", "count"),
    [
        (lambda a, b: a @ b, (ROWS, COLUMNS), 1),
        (lambda a, b, c: torch.addmm(c, a, b), (ROWS, COLUMNS, BIAS), 1),
        (lambda a, b, c: torch.addmm(c, a, b, alpha=2), (ROWS, COLUMNS, BIAS), 0),
        (lambda a, b, c: torch.addmm(c, a, b), (ROWS, COLUMNS, torch.randn(24, 40)), 0),  # no bias: another matrix
        (lambda a, b, c: torch.addmm(c, a, b), (ROWS, COLUMNS, torch.randn(1)), 0),
        (lambda a, b: a @ b, (ROWS.double(), COLUMNS.double()), 0),
        (lambda a, b: a @ b, (ROWS.bfloat16(), COLUMNS.bfloat16()), 0),
        (lambda a, b: a @ b, (ROWS[:0], COLUMNS), 0),
        (lambda a, b: a @ b, (ROWS[:, :0], COLUMNS[:0]), 0),
        (lambda a, b: torch.bmm(a[None], b[None]), (ROWS, COLUMNS), 0),
    ],
)
def test_what_the_pass_takes(function: Callable[..., Any], inputs: tuple[Tensor, ...], count: int) -> None:
    assert replaced(function, *inputs) == count


# --------------------------------------------------------------------------------------------------- through Inductor


def compiled(function: Callable[..., Any], *, cpp_wrapper: bool = False) -> Callable[..., Any]:
    options = torchs_own({ONEDNN_PRODUCTS: True, "cpp_wrapper": cpp_wrapper})
    return compiled_function(function, backend="inductor", options=options, dynamic=False, recompile_limit=8)


def operands() -> list[tuple[Tensor, Tensor]]:
    """Matrices as programs make them: rows, columns, slices, one row over and over, windows that overlap."""
    long = torch.randn(4096)
    return [
        (ROWS, COLUMNS),
        (ROWS.t().contiguous().t(), COLUMNS.t().contiguous().t()),
        (torch.randn(48, 64)[::2, ::2], torch.randn(64, 80)[::2, ::2]),
        (torch.randn(24, 64)[:, :32], torch.randn(64, 40)[:32]),
        (torch.randn(1, 32).expand(24, 32), torch.randn(1, 40).expand(32, 40)),
        (torch.randn(24, 1).expand(24, 32), torch.randn(32, 1).expand(32, 40)),
        (torch.randn(1, 1).expand(24, 32), COLUMNS),
        (long.as_strided((24, 32), (1, 1)), long.as_strided((32, 40), (2, 1))),
        (torch.randn(1, 32), COLUMNS),
        (torch.randn(24, 1), torch.randn(1, 40)),
    ]


@pytest.mark.compiles
@pytest.mark.parametrize("cpp_wrapper", [False, True])
def test_operands_of_any_form_are_multiplied_right(cpp_wrapper: bool, compile_cache: Path) -> None:
    def every(pairs: list[tuple[Tensor, Tensor]], bias: Tensor) -> list[Tensor]:
        return [torch.mm(a, b) for a, b in pairs] + [torch.addmm(bias, a, b) for a, b in pairs]

    pairs, codes = operands(), list[str]()
    with torch.no_grad(), compiling.cache_directory(compile_cache), trace.generated_code(codes.append):
        found = compiled(every, cpp_wrapper=cpp_wrapper)(pairs, BIAS)
    torch.testing.assert_close(found, every(pairs, BIAS), atol=1e-4, rtol=1e-4)
    name = "aoti_torch_cpu__linear_pointwise(" if cpp_wrapper else f"{BY_ONEDNN}.default("
    assert sum(code.count(name) for code in codes) >= 2 * len(pairs)


@pytest.mark.compiles
def test_gradients_are_eagers(compile_cache: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 48), nn.GELU(), nn.Linear(48, 40, bias=False), nn.LayerNorm(40))
    other, codes = copy.deepcopy(model), list[str]()
    with compiling.cache_directory(compile_cache), trace.generated_code(codes.append):
        compiled(lambda x: other(x).square().mean())(ROWS).backward()
    model(ROWS).square().mean().backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(other.get_parameter(name).grad, parameter.grad, atol=1e-6, rtol=1e-4)
    forward, backward = (code.count(f"{BY_ONEDNN}.default(") for code in codes)
    assert (forward, backward) == (2, 3)  # the input has no gradient
    assert not any("extern_kernels.mm(" in code or "extern_kernels.addmm(" in code for code in codes)


@pytest.mark.compiles
def test_kept_code_runs_without_the_pass(compile_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def program(a: Tensor, b: Tensor) -> Tensor:
        return torch.mm(a, b).tanh().sum(1)

    with torch.no_grad(), compiling.cache_directory(compile_cache):
        first = compiled(program)(ROWS, COLUMNS)
        torch.compiler.reset()

        def never(graph: torch.fx.Graph) -> int:
            raise AssertionError("compiled again")

        monkeypatch.setattr(products, "replace_products", never)
        second = compiled(program)(ROWS, COLUMNS)
    assert torch.equal(first, second)


@pytest.mark.compiles
@pytest.mark.parametrize(
    ("way", "cpp_wrapper"), [(CompiledWay.MODEL, False), (CompiledWay.MODEL, True), (CompiledWay.ONE_GRAPH, False)]
)
def test_a_training_step_with_them_trains_as_eager_does(way: CompiledWay, cpp_wrapper: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 48), nn.Tanh(), nn.Linear(48, 4))
    other = copy.deepcopy(model)
    options = {ONEDNN_PRODUCTS: True, **({"cpp_wrapper": True} if cpp_wrapper else {})}
    settings, parts = Settings(engine="inductor", options=options), StepParts(compiled=way)

    def loss(net: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return F.cross_entropy(net(batch[0]), batch[1])

    batch, codes = (ROWS, torch.arange(24) % 4), list[str]()
    optimizers = [torch.optim.AdamW(net.parameters(), lr=1e-2) for net in (model, other)]
    plain = make_step(model, loss, optimizers[0])
    step = make_step(other, loss, optimizers[1], parts, settings=settings, artifacts=tmp_path, strict=True)
    with trace.generated_code(codes.append):
        losses = [(float(plain(batch)), float(step(batch))) for _ in range(4)]
    for eager, found in losses:
        assert found == pytest.approx(eager, rel=1e-4)
    assert step.stats().fast == 4
    name = "aoti_torch_cpu__linear_pointwise(" if cpp_wrapper else f"{BY_ONEDNN}.default("
    assert sum(code.count(name) for code in codes) == 5


@pytest.mark.compiles
def test_products_of_sizes_that_vary_stay_the_math_librarys(compile_cache: Path) -> None:
    """A column of a sequence of any length has a stride that nobody knows."""
    layer = nn.Linear(32, 40)
    program = compiled_function(
        lambda x: layer(x[:, 0]) + layer(x).sum(1),
        backend="inductor",
        options=torchs_own({ONEDNN_PRODUCTS: True}),
        dynamic=True,
        recompile_limit=8,
    )
    with torch.no_grad(), compiling.cache_directory(compile_cache):
        for length in (7, 9):
            x = torch.randn(3, length, 32)
            torch.testing.assert_close(program(x), layer(x[:, 0]) + layer(x).sum(1), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("usual", [torch.float64, torch.bfloat16])
def test_the_look_does_not_depend_on_torchs_usual_dtype(usual: torch.dtype) -> None:
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(usual)
        assert products.onednn_gain() is not None
    finally:
        torch.set_default_dtype(before)


def test_the_look_does_not_depend_on_torchs_usual_device() -> None:
    with torch.device("meta"):
        assert products.onednn_gain() is not None


def test_without_onednn_the_option_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert torchs_own({ONEDNN_PRODUCTS: False}) == {}
    with pytest.raises(Infeasible, match="needs oneDNN"):
        torchs_own({ONEDNN_PRODUCTS: True})
