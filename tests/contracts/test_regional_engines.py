"""Engines of regions against hostile calls: the model's own guard, and each region's behind it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hostile import HOSTILE, HostileCalls, assert_equal, close, outcome, sink
from torch import nn

from compilot._tree import Call
from compilot.boundary.build import build
from compilot.engines.protocol import BuildRequest
from compilot.records import Candidate, Region, Settings, Shapes
from compilot.runtime.fast import Fast, attach
from compilot.runtime.guards import make_guard
from compilot.testing import contract_models as models


class Around(nn.Module):
    """A model whose one region takes and gives everything at once, between layers of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.inner, self.after = nn.Linear(4, 4), models.Sink(), nn.Linear(4, 4)

    def forward(self, batch: dict[str, Any], scale: float, *, mask: torch.Tensor, shout: bool = False) -> Any:
        x = self.before(batch["x"])
        answer = self.inner({**batch, "x": x}, scale, mask=mask, shout=shout)
        return {**answer, "y": self.after(answer["y"])}


class RegionalCalls(HostileCalls):
    """Hostile calls of a model of which a part runs with this engine."""

    engine: str

    @pytest.fixture(autouse=True)
    def _no_grad(self) -> Iterator[None]:
        with torch.no_grad():
            yield

    @pytest.fixture(scope="class")
    @classmethod
    def guarded(cls, tmp_path_factory: pytest.TempPathFactory) -> Fast:
        return cls.attached(tmp_path_factory.mktemp("regions"))

    @classmethod
    def attached(cls, folder: Path) -> Fast:
        torch.manual_seed(0)
        model, call = Around().eval(), sink(0)
        region = Region(selector="inner", settings=Settings(engine=cls.engine))
        candidate = Candidate(settings=Settings(), label="", rationale="", regions=(region,))
        guard = make_guard(model, call, dynamic=(), shapes=Shapes.STATIC, grad=False)
        build(BuildRequest(model, call, guard, candidate, folder))
        return attach(model, candidate, guard, folder)

    def test_the_region_serves_what_the_models_guard_takes(self, guarded: Fast) -> None:
        before = guarded.stats().regions["inner"]
        for seed in range(5):
            close(guarded, guarded._compilot_plain, sink(seed))
        after = guarded.stats().regions["inner"]
        assert (after.fast - before.fast, after.fallbacks) == (5, before.fallbacks)

    def test_the_outputs_are_the_callers(self, guarded: Fast) -> None:
        first = guarded(*sink(0).args, **sink(0).kwargs)
        kept = first["pair"][0].clone()
        guarded(*sink(1).args, **sink(1).kwargs)
        assert torch.equal(first["pair"][0], kept)

    def test_another_call_of_the_region_alone_is_its_own_eagers(self, guarded: Fast) -> None:
        """As when the code around it, which runs as it is, decides so."""
        whole: Any = type(guarded)._compilot_core.loaded.call  # type: ignore[attr-defined]
        call, before = Call(({**sink().args[0], "x": torch.randn(3, 4)}, 1.5), sink().kwargs), guarded.stats()
        larger = Call(*torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: torch.cat([t, t]), tuple(call)))
        model: Any = guarded._compilot_plain
        torch.testing.assert_close(
            whole.inner(*larger.args, **larger.kwargs)["y"], model.inner(*larger.args, **larger.kwargs)["y"]
        )
        after = guarded.stats()
        assert after.regions["inner"].fast == before.regions["inner"].fast
        assert any(reason.startswith("shape of") for reason in after.regions["inner"].fallbacks)
        assert isinstance(whole.inner, models.Sink)
        assert whole.inner.table is model.inner.table

    @pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
    @pytest.mark.parametrize("kind", list(HOSTILE))
    def test_a_hostile_call_of_the_region_alone_is_eagers(self, guarded: Fast, kind: str) -> None:
        """As if the code around it had made it so."""
        hostile, model = HOSTILE[kind], guarded._compilot_plain
        hostile = hostile._replace(call=sink) if kind == "other strides" else hostile  # the model's, not the region's
        whole: Any = type(guarded)._compilot_core.loaded.call  # type: ignore[attr-defined]
        with hostile.around():
            expected = outcome(hostile.through(model.inner), hostile.call())  # type: ignore[union-attr]
            before = guarded.stats().regions["inner"]
            answer = outcome(hostile.through(whole.inner), hostile.call())
        assert_equal(answer, expected)
        assert guarded.stats().regions["inner"].fast == before.fast
        close(guarded, model, sink(2))


class TestRegionOfDynamo(RegionalCalls):
    engine = "dynamo:eager"


@pytest.mark.compiles
@pytest.mark.filterwarnings("ignore:bf16 and fp16 are mixed")  # as they are in this model
class TestRegionOfInductor(RegionalCalls):
    engine = "inductor"


@pytest.mark.compiles
@pytest.mark.filterwarnings("ignore:bf16 and fp16 are mixed")
class TestRegionOfAoti(RegionalCalls):
    engine = "aoti"


class TestRegionOfOnnxRuntime(RegionalCalls):
    engine = "onnxruntime"

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _installed(cls) -> None:
        pytest.importorskip("onnxruntime")
        pytest.importorskip("onnxscript")


class TestRegionOfOpenVino(RegionalCalls):
    engine = "openvino"

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _installed(cls) -> None:
        pytest.importorskip("openvino")
