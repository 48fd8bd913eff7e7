"""Regions of a model with declared sizes, by real engines: which sizes vary inside of it is found out by running it."""

from __future__ import annotations

from pathlib import Path

import pytest
import six_blocks
import torch
from regional_runs import TARGET, make_run, regional
from torch import nn

import compilot
from compilot._tree import Call
from compilot.artifacts.rundir import RunDir
from compilot.boundary.build import build
from compilot.engines.protocol import BuildRequest, Infeasible
from compilot.packing import PackOptions, pack
from compilot.progress import Observer
from compilot.records import DimRange, DynamicDim, Settings, Shapes, State
from compilot.runtime.fast import Fast, attach
from compilot.runtime.guards import make_guard
from compilot.runtime.regions import read_parts
from compilot.trials.limits import Limits
from compilot.trials.local import LocalRunner
from compilot.tuning.comparing import try_eager, try_one
from compilot.workload.dispatch import ship_target

BATCH, LENGTH = DynamicDim(input="x", dim=0, min=1, max=4), DynamicDim(input="x", dim=1, min=2, max=9)


@pytest.fixture(autouse=True)
def _no_grad():
    with torch.no_grad():
        yield


def started(
    model: nn.Module, x: torch.Tensor, folder: Path, *regions: tuple[str, Settings], dims: tuple[DynamicDim, ...]
) -> Fast:
    candidate, call = regional(*regions, shapes=Shapes.DYNAMIC), Call((x,), {})
    guard = make_guard(model, call, dynamic=dims, shapes=Shapes.DYNAMIC, grad=False)
    build(BuildRequest(model, call, guard, candidate, folder))
    return attach(model, candidate, guard, folder)


def files(engine: str) -> Settings:
    return Settings(engine=engine, shapes=Shapes.DYNAMIC)


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino", "dynamo:eager"])
def test_blocks_are_built_for_the_sizes_inside_of_the_model(engine: str, tmp_path: Path) -> None:
    """A mask made inside of the model, and a row of positions that is expanded, vary with the declared length."""
    model, x = six_blocks.sized().model, six_blocks.batch()
    fast = started(model, x, tmp_path, ("layers.*", files(engine)), dims=(BATCH, LENGTH))
    by_path = {tensor.path: tensor for tensor in read_parts(tmp_path)[0].guard.tensors}
    batch, length = DimRange(min=1, max=4), DimRange(min=2, max=9)
    assert by_path["args[0]"].shape == (batch, length, 16)
    assert by_path["kwargs['mask']"].shape == (length, length)
    assert (by_path["kwargs['position'][0]"].shape, by_path["kwargs['position'][0]"].order) == ((length, 16), (1,))
    sizes = [(2, 5), (1, 2), (4, 9), (3, 7), (1, 9)]
    for rows, columns in sizes:
        other = torch.randn(rows, columns, 16)
        torch.testing.assert_close(fast(other), model(other), rtol=1e-4, atol=1e-5)
    stats = fast.stats()
    assert (stats.fast, stats.fallbacks) == (len(sizes), {})
    assert (stats.regions["layers.0"].fast, stats.regions["layers.0"].fallbacks) == (len(sizes), {})
    outside = torch.randn(5, 5, 16)
    assert torch.equal(fast(outside)["logits"], model(outside)["logits"])
    assert fast.stats().fast == len(sizes)


@pytest.mark.slow
def test_a_bundle_serves_the_declared_sizes_and_leaves_others_to_eager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One region for each engine of files; started from the packed bundle."""
    monkeypatch.setenv("COMPILOT_CACHE", str(tmp_path / "cache"))
    sized = six_blocks.sized()
    candidate = regional(("layers.0", files("onnxruntime")), ("last", files("openvino")), shapes=Shapes.DYNAMIC)
    target = TARGET.replace(":six", ":sized")
    make_run(tmp_path / "run", candidate, target, (sized.model, (six_blocks.batch(),), {}), (BATCH, LENGTH))
    bundle = pack([tmp_path / "run"], tmp_path / "sized.cpbundle", PackOptions(twin=False), Observer()).path
    fast = compilot.compile(sized.model, bundle, strict=True)
    sizes = [(2, 5), (1, 2), (4, 9), (1, 9)]
    for rows, columns in sizes:
        x = torch.randn(rows, columns, 16)
        torch.testing.assert_close(fast(x), sized.model(x), rtol=1e-4, atol=1e-5)
    for rows, columns in [(5, 5), (2, 10), (2, 1)]:
        x = torch.randn(rows, columns, 16)
        assert torch.equal(fast(x)["logits"], sized.model(x)["logits"])
    stats = fast.stats()
    assert (stats.fast, stats.calls) == (len(sizes), len(sizes) + 3)
    assert {path: (one.fast, one.fallbacks) for path, one in stats.regions.items()} == {
        "layers.0": (len(sizes), {}),
        "last": (len(sizes), {}),
    }


class Pooled(nn.Module):
    """The head sees one size whatever the length is; the middle may be told the length as a number."""

    def __init__(self, middle: nn.Module, told: bool) -> None:
        super().__init__()
        self.told = told
        self.body, self.middle, self.head = Body(), middle, nn.Sequential(nn.Linear(8, 8), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.middle(self.body(x), *([x.shape[1]] if self.told else []))
        return self.head(hidden.mean(1))


class Body(nn.Module):
    """Halves the length, and gives its result transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(8, 8, 3, stride=2, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x.transpose(1, 2)).transpose(1, 2)


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, length: int) -> torch.Tensor:
        return self.linear(x) / length


def pooled(middle: nn.Module | None = None) -> nn.Module:
    torch.manual_seed(5)
    return Pooled(middle or Scaled(), told=middle is None).eval()


def test_a_number_that_follows_a_size_is_said_before_anything_is_exported(tmp_path: Path) -> None:
    with pytest.raises(Infeasible, match=r"^in middle: it is called in another way at other sizes.*value of args\[1\]"):
        started(pooled(), torch.randn(2, 6, 8), tmp_path, ("middle", files("onnxruntime")), dims=(LENGTH,))


def test_sizes_that_do_not_vary_inside_are_fixed_and_transposed_inputs_are_taken(tmp_path: Path) -> None:
    model = pooled(middle=nn.Sequential(nn.Linear(8, 8), nn.Tanh()))
    regions = [(path, files(engine)) for path, engine in (("middle", "openvino"), ("head", "onnxruntime"))]
    fast = started(model, torch.randn(2, 6, 8), tmp_path, *regions, dims=(LENGTH,))
    middle, head = (part.guard.tensors[0] for part in read_parts(tmp_path))
    assert (middle.shape, middle.order) == ((2, DimRange(min=1, max=5), 8), (0, 2, 1))
    assert (head.shape, head.stride) == ((2, 8), (8, 1))
    for length in (2, 3, 6, 9):
        x = torch.randn(2, length, 8)
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
    assert {path: (one.fast, one.fallbacks) for path, one in fast.stats().regions.items()} == {
        "middle": (4, {}),
        "head": (4, {}),
    }


def test_one_region_is_static_and_another_dynamic(tmp_path: Path) -> None:
    """The head sees one size only, so that static code serves it at every length; a static body would not."""
    model = pooled()
    static, dynamic = (Settings(engine="dynamo:eager", shapes=shapes) for shapes in (Shapes.STATIC, Shapes.DYNAMIC))
    regions = [("head", static), ("body", dynamic)]
    fast = started(model, torch.randn(2, 6, 8), tmp_path, *regions, dims=(LENGTH,))
    head, body = (part.guard.tensors[0].shape for part in read_parts(tmp_path))
    assert (head, body) == ((2, 8), (2, DimRange(min=2, max=9), 8))
    for length in (6, 2, 3, 9):
        x = torch.randn(2, length, 8)
        torch.testing.assert_close(fast(x), model(x))
    stats = fast.stats()
    assert (stats.fast, {path: (one.fast, one.fallbacks) for path, one in stats.regions.items()}) == (
        4,
        {"head": (4, {}), "body": (4, {})},
    )


@pytest.mark.slow
def test_a_trial_is_judged_at_the_declared_sizes(tmp_path: Path) -> None:
    """Every size that eager answers is answered by the regions: the check counts what they leave to eager."""
    candidate = regional(("layers.*", files("onnxruntime")), shapes=Shapes.DYNAMIC)
    with LocalRunner(RunDir(tmp_path), limits=Limits(warm_s=0.3), observer=Observer()) as runner:
        runner.open(ship_target(TARGET.replace(":six", ":sized")))
        assert runner.inspect().diagnosis.unfit == ()
        try_eager(runner, 60.0)
        trial = try_one(runner, candidate, 60.0)
    assert trial.state is State.OK, trial.reason
    assert trial.check is not None
    assert {"smallest", "largest"} <= {one.case for one in trial.check.worst}
