"""`%` of floats: Inductor's loses its digits where the quotient is large, so it is refused or written otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from compilot._torch.remainders import remainder_of_floats
from compilot._tree import Call
from compilot.engines import registry
from compilot.engines.protocol import BuildRequest, Infeasible, LoadRequest
from compilot.records import Candidate, Settings, Shapes
from compilot.runtime.guards import make_guard


class Wrapped(nn.Module):
    """A phase that is wrapped, as vocoders do it."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x % 3.0, torch.remainder(x, y), (x.abs() + 1) % -y


def request(model: nn.Module, engine: str, folder: Path, *args: Tensor) -> BuildRequest:
    call = Call(args, {})
    guard = make_guard(model, call, dynamic=(), shapes=Shapes.STATIC, grad=False)
    return BuildRequest(model, call, guard, Candidate(settings=Settings(engine=engine), label="", rationale=""), folder)


def test_where_it_is_computed() -> None:
    x = torch.ones(3)
    assert remainder_of_floats(lambda: x.add(1) % 2).startswith(__file__)
    assert remainder_of_floats(lambda: x.clone().remainder_(2)).startswith(__file__)
    assert remainder_of_floats(lambda: torch.arange(3) % 2) == ""
    assert remainder_of_floats(lambda: torch.fmod(x, 2) + x.floor_divide(2)) == ""


def test_torch_compile_is_refused_by_name_and_line(tmp_path: Path) -> None:
    given = torch.randn(4), torch.rand(4) + 0.5
    kept = [t.clone() for t in given]
    with pytest.raises(Infeasible, match=r"'%' of floats .*test_remainders\.py:\d+"):
        registry.build_half("inductor").build(request(Wrapped().eval(), "inductor", tmp_path, *given))
    assert all(torch.equal(a, b) for a, b in zip(given, kept, strict=True))
    assert registry.build_half("inductor").build(request(nn.ReLU().eval(), "inductor", tmp_path, given[0])) == ()


@pytest.mark.compiles
def test_aotinductor_keeps_every_digit(tmp_path: Path) -> None:
    model = Wrapped().eval()
    wanted = request(model, "aoti", tmp_path, torch.randn(64), torch.rand(64) + 0.5)
    registry.build_half("aoti").build(wanted)
    loaded = registry.load_half("aoti").load(LoadRequest(model, wanted.guard, wanted.candidate.settings, tmp_path))
    with torch.no_grad():
        for size in (1.0, 1e3, 1e6, 1e10, 1e20):
            x, y = torch.randn(64) * size, torch.rand(64) + 0.5
            for got, want in zip(loaded.call(x, y), model(x, y), strict=True):
                torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)
