"""Every engine against the contract."""

from __future__ import annotations

from collections.abc import Iterator

import contract_models as models
import fake_engine
import pytest
import torch
from engine_contract import EngineContract, Made, OfferContract, same
from hostile import HostileCalls

from compilot._tree import Call
from compilot.engines.aoti import build as aoti_build
from compilot.engines.aoti import load as aoti_load
from compilot.engines.onnxruntime import build as onnxruntime_build
from compilot.engines.onnxruntime import load as onnxruntime_load
from compilot.engines.openvino import build as openvino_build
from compilot.engines.openvino import load as openvino_load
from compilot.engines.protocol import NotTaken
from compilot.records import Candidate, Diagnosis, MemoryFormat, Settings, Shapes
from compilot.runtime.fast import Fast, attach
from compilot.runtime.guards import make_guard


class OverTheModel(HostileCalls):
    """Engines that run the model itself: no files, the same guards."""

    settings: Settings

    @pytest.fixture(autouse=True)
    def _no_grad(self) -> Iterator[None]:
        with torch.no_grad():
            yield

    @pytest.fixture(scope="class")
    @classmethod
    def guarded(cls, tmp_path_factory: pytest.TempPathFactory) -> Fast:
        torch.manual_seed(0)
        model, call = models.Sink().eval(), Call(*models.sink_call(0))
        guard = make_guard(model, call, dynamic=(), shapes=Shapes.STATIC, grad=False)
        candidate = Candidate(settings=cls.settings, label="", rationale="")
        return attach(model, candidate, guard, tmp_path_factory.mktemp("model"))


class TestEager(OverTheModel):
    settings = Settings(memory_format=MemoryFormat.CHANNELS_LAST)


class TestDynamo(OverTheModel):
    """Inductor's own path with a backend that compiles nothing."""

    settings = Settings(engine="dynamo:eager")


@pytest.mark.compiles
@pytest.mark.filterwarnings("ignore:bf16 and fp16 are mixed")  # as they are in this model
class TestInductor(OverTheModel):
    """Plain torch.compile, behind the same guards."""

    settings = Settings(engine="inductor")


class TestFake(EngineContract):
    name, build, load = "fake", fake_engine, fake_engine
    knows_custom_operators = True

    def test_loads_in_a_fresh_process_without_compiler_or_exporter(self) -> None:
        pytest.skip("the fake keeps its graphs in this process")

    def test_four_threads_at_once(self) -> None:
        pytest.skip("torch's own interpreter of graphs is not for several threads")

    def test_planned_and_hostile_calls_from_several_threads(self) -> None:
        pytest.skip("torch's own interpreter of graphs is not for several threads")


class OnnxRuntime:
    name, build, load = "onnxruntime", onnxruntime_build, onnxruntime_load

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _installed(cls) -> None:
        pytest.importorskip("onnxruntime")
        pytest.importorskip("onnxscript")


class OpenVino:
    name, build, load = "openvino", openvino_build, openvino_load
    spare = (openvino_load.BLOB_NAME, openvino_load.MODEL_NAME)  # either is enough, with the weights

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _installed(cls) -> None:
        pytest.importorskip("openvino")


class TestOnnxRuntime(OnnxRuntime, EngineContract):
    pass


class TestOnnxRuntimeThatSleeps(OnnxRuntime, OfferContract):
    """The offer whose threads do not spin between calls."""

    offered = "onnxruntime no spinning"


class TestOpenVino(OpenVino, EngineContract):
    def test_integers_that_do_not_fit_into_its_32_bits_are_eagers(self, sink: Made, guarded: Fast) -> None:
        args, kwargs = models.sink_call(1)
        args[0]["ids"][1] = 2**40
        with pytest.raises(NotTaken, match=r"args\[0\]\['ids'\] holds integers beyond"):
            sink.call(*args, **kwargs)
        assert guarded(*args, **kwargs)["pair"][2][1].tolist() == (args[0]["ids"] + 1).tolist()
        args[0]["ids"][1] = 2**29
        same(sink.call(*args, **kwargs), sink.model(*args, **kwargs))


class TestOpenVinoInStreams(OpenVino, OfferContract):
    """The offer with several streams."""

    offered = "openvino throughput"


@pytest.mark.compiles
class TestAoti(EngineContract):
    """Its first offer where sizes vary, its plainest where they do not: two compiles see both."""

    name, build, load = "aoti", aoti_build, aoti_load
    quick = False
    knows_custom_operators = True

    @classmethod
    def settings(cls, shapes: Shapes) -> Settings:
        offers = cls.build.offer(Diagnosis(dynamic=shapes is Shapes.DYNAMIC))
        return offers[0 if shapes is Shapes.DYNAMIC else -1].settings
