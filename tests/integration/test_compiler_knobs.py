"""Every option of torch's compiler that the search can turn: answers stay right, and the code shows that it arrived."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from compilot._torch import trace
from compilot._tree import Call
from compilot.engines.inductor import build as inductor
from compilot.records import Candidate, OptionValue, Settings, Shapes
from compilot.runtime.fast import Fast, attach
from compilot.runtime.gate import CODE_CHANGED, WEIGHTS_CHANGED
from compilot.runtime.guards import make_guard
from compilot.runtime.notices import CompilotWarning
from compilot.runtime.weight_watch import INSPECT_EVERY

pytestmark = pytest.mark.compiles
Options = dict[str, OptionValue]
NEEDS_AVX512 = pytest.mark.skipif(
    "AVX512" not in torch.backends.cpu.get_cpu_capability(), reason="this CPU has no vectors of 512 bits"
)


class Mixed(nn.Module):
    """Something for each option: a chain of loops, two that share nothing, a convolution, products with a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.linear = nn.Conv2d(3, 16, 3), nn.Linear(64, 64)

    def forward(self, image: torch.Tensor, x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> Any:
        steps = []
        for i in range(70):
            x = torch.sin(x + i)
            steps.append(x)
        hidden = self.linear(x).relu()
        return steps, a.exp(), b.cos(), self.conv(image).relu(), torch.mm(hidden, hidden.t()) + hidden.sum()


class Product(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.factor = nn.Linear(64, 64), 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).relu() * self.factor


MIXED = (torch.randn(2, 3, 16, 16), torch.randn(32, 64), torch.randn(8, 8), torch.randn(8, 8))
TEMPLATES: Options = {"freezing": True, "max_autotune": True, "max_autotune_gemm_backends": "CPP"}


class Turn(NamedTuple):
    knob: str
    value: OptionValue
    arrived: Callable[[str, str], bool]  # the code without it, the code with it
    base: Options = {}
    model: type[nn.Module] = Mixed
    inputs: tuple[torch.Tensor, ...] = MIXED


def kernels(code: str) -> int:
    return len(set(re.findall(r"^(cpp_\w+) = async_compile", code, re.MULTILINE)))


def loops(code: str) -> int:
    """Outer loops: one function of C++ holds several."""
    return code.count("for(int64_t x0=")


def count(text: str) -> Callable[[str], int]:
    return lambda code: code.count(text)


LAST = "(3136, 1, 224, 16), 'torch.ops.aten.convolution"  # strides of an answer in channels-last memory
PARALLEL, SIZES, ADDMM = count("#pragma omp parallel"), count("assert_size_stride("), count("addmm(")
MM, BY_ONEDNN = count("mm("), count("mkldnn._linear_pointwise")
TURNS = [
    Turn("cpp_wrapper", True, lambda plain, code: "inductor_entry_impl" in code and "inductor_entry_impl" not in plain),
    Turn("epilogue_fusion", False, lambda plain, code: kernels(code) > kernels(plain), TEMPLATES, Product, MIXED[1:2]),
    Turn("aggressive_fusion", True, lambda plain, code: loops(code) < loops(plain)),
    Turn("max_fusion_size", 16, lambda plain, code: loops(code) > loops(plain)),
    Turn("max_fusion_size", 128, lambda plain, code: loops(code) < loops(plain)),
    Turn("layout_optimization", False, lambda plain, code: LAST in plain and LAST not in code),
    Turn("pattern_matcher", False, lambda plain, code: ADDMM(code) < ADDMM(plain)),
    Turn("cpp.simdlen", 256, lambda plain, code: "int64_t>(16)" in plain and "int64_t>(16)" not in code),
    Turn("cpp.min_chunk_size", 4096, lambda plain, code: PARALLEL(code) < PARALLEL(plain)),
    Turn("cpp.threads", 1, lambda plain, code: PARALLEL(plain) > 0 and PARALLEL(code) == 0),
    Turn("onednn_products", True, lambda plain, code: MM(plain) > MM(code) and BY_ONEDNN(plain) < BY_ONEDNN(code)),
    Turn("asserts", False, lambda plain, code: SIZES(plain) > 0 and SIZES(code) == 0),
    Turn("light_guards", True, lambda plain, code: trace.normalised(plain) == trace.normalised(code)),
]


def made(turn: Turn, options: Options, cache: Path) -> tuple[Fast, Any, str]:
    """The model behind torch.compile, the model itself, and the code that was generated for it."""
    torch.manual_seed(0)
    model, call, codes = turn.model().eval(), Call(turn.inputs, {}), list[str]()
    candidate = Candidate(settings=Settings(engine="inductor", options=options), label="", rationale="")
    assert inductor.validate(candidate.settings) is None
    guard = make_guard(model, call, dynamic=(), shapes=Shapes.STATIC, grad=False)
    fast = attach(model, candidate, guard, cache)
    with trace.generated_code(codes.append):
        fast.prepare(call)
    torch.testing.assert_close(fast(*turn.inputs), model(*turn.inputs))
    assert fast.stats().fast_share == 1.0
    return fast, model, "\n".join(codes)


_plain: dict[str, str] = {}  # the code without a knob turned, by what it starts from


@torch.no_grad()
@pytest.mark.parametrize(
    "turn",
    [pytest.param(t, marks=NEEDS_AVX512) if t.knob == "cpp.simdlen" else t for t in TURNS],
    ids=lambda t: f"{t.knob}={t.value}",
)
def test_a_turned_knob_arrives_and_the_answers_are_right(turn: Turn, compile_cache: Path) -> None:
    if turn.knob in ("cpp.min_chunk_size", "cpp.threads") and torch.get_num_threads() == 1:
        pytest.skip("one thread")
    name = f"{turn.model.__name__} {turn.base}"
    if name not in _plain:
        _plain[name] = made(turn, turn.base, compile_cache)[2]
    *_, code = made(turn, {**turn.base, turn.knob: turn.value}, compile_cache)
    assert turn.arrived(_plain[name], code)


@torch.no_grad()
@pytest.mark.parametrize("change", ["weight", "attribute", "train mode"])
def test_with_constants_and_light_guards_the_model_is_watched_as_for_files(change: str, compile_cache: Path) -> None:
    turn = Turn("light_guards", True, lambda plain, code: True, {"freezing": True}, Product, MIXED[1:2])
    fast, model, _ = made(turn, {**turn.base, turn.knob: turn.value}, compile_cache)
    x, old = turn.inputs[0], fast(*turn.inputs)
    if change == "weight":
        model.linear.weight.mul_(3)
    elif change == "attribute":
        model.factor = 5
    else:
        model.linear.train()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CompilotWarning)
        answers = [fast(x) for _ in range(INSPECT_EVERY + 1)]
    torch.testing.assert_close(answers[-1], model(x))
    assert torch.allclose(answers[-1], old, atol=1e-5) is (change == "train mode")
    [reason] = fast.stats().fallbacks
    assert reason == (CODE_CHANGED if change == "attribute" else WEIGHTS_CHANGED)


def test_every_option_that_the_search_turns_by_itself_is_compiled_here() -> None:
    varied = {(knob.name, v.value) for knob in inductor.KNOBS if knob.acts == "options" for v in knob.variations or ()}
    elsewhere = {("freezing", True), ("max_autotune", True)}  # test_runtime_compiles.py
    assert varied - elsewhere == {(turn.knob, turn.value) for turn in TURNS}
