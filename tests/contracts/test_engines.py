"""Every engine against the contract."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import fake_engine
import msgspec
import pytest
import torch
from failing import FailingCalls, FailingShapes, exchanged, watched
from hostile import HostileCalls, HostileSizes, from_nothing_to_nine
from neighbours import Neighbours
from torch import nn

from compilot._torch.compiling import graphs_built
from compilot._tree import Call
from compilot.engines import registry
from compilot.engines.openvino import load as openvino_load
from compilot.engines.protocol import NotTaken
from compilot.records import Candidate, Diagnosis, DynamicDim, Guard, MemoryFormat, Settings, Shapes
from compilot.runtime.fast import Fast, attach
from compilot.runtime.guards import make_guard
from compilot.testing import EngineContract, OfferContract
from compilot.testing import contract_models as models
from compilot.testing.made import Made, same
from compilot.testing.strange_numbers import NANS, StrangeNumbers


class GuardedOffer(HostileCalls, HostileSizes, OfferContract):
    """The contract of one offer, and what stands around an engine: guards that send hostile calls to eager."""

    @pytest.fixture(scope="class")
    @classmethod
    def guarded(cls, sink: Made) -> Fast:
        return cls.behind_the_guard(sink)

    @pytest.fixture(scope="class")
    @classmethod
    def ranged(cls, bert: Made) -> Fast:
        return cls.behind_the_guard(bert)

    @pytest.fixture
    @classmethod
    def fresh(cls, sink: Made) -> Fast:
        return cls.behind_the_guard(sink)

    @pytest.fixture
    @classmethod
    def fresh_ranged(cls, bert: Made) -> Fast:
        return cls.behind_the_guard(bert)

    @classmethod
    def behind_the_guard(cls, made: Made) -> Fast:
        """The model as `compilot.compile` would give it to a user."""
        candidate = Candidate(settings=made.settings, label=cls.engine, rationale="")
        return attach(made.model, candidate, made.guard, made.workspace)


class GuardedEngine(FailingCalls, FailingShapes, Neighbours, EngineContract, GuardedOffer):
    """The whole contract, and what stands around an engine: also when it fails, and beside other users of torch."""

    def test_nothing_and_one_are_served_behind_the_guard(self, apart: Made) -> None:
        from_nothing_to_nine(self.behind_the_guard(apart), apart.model)


class OverTheModel(HostileCalls):
    """Engines that run the model itself: no files, the same guards."""

    settings: Settings

    @pytest.fixture(autouse=True)
    def _no_grad(self) -> Iterator[None]:
        with torch.no_grad():
            yield

    @pytest.fixture(scope="class")
    @classmethod
    def guarded(cls, artifacts: Path) -> Fast:
        return cls.attached(artifacts)

    @pytest.fixture(scope="class")
    @classmethod
    def artifacts(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        return tmp_path_factory.mktemp("model")

    @classmethod
    def attached(cls, artifacts: Path) -> Fast:
        torch.manual_seed(0)
        return cls.attached_to(models.Sink().eval(), Call(*models.sink_call(0)), artifacts)

    @classmethod
    def attached_to(cls, model: nn.Module, call: Call, artifacts: Path, dynamic: Sequence[DynamicDim] = ()) -> Fast:
        shapes = Shapes.DYNAMIC if dynamic else Shapes.STATIC
        guard = make_guard(model, call, dynamic=dynamic, shapes=shapes, grad=False)
        settings = msgspec.structs.replace(cls.settings, shapes=shapes)
        return attach(model, Candidate(settings=settings, label="", rationale=""), guard, artifacts)


class OverDynamo(FailingCalls, Neighbours, StrangeNumbers, OverTheModel):
    """Those that compile at the first call and again when dynamo's own guards fail."""

    @pytest.fixture(scope="class")
    @classmethod
    def values(cls, artifacts: Path) -> Made:
        model = models.Values().eval()
        fast = cls.attached_to(model, Call((torch.randn(3, 4),), {}), artifacts)
        return Made(model, Guard(positional=1, keywords=(), tensors=()), cls.settings, artifacts, (), fast)

    def load_again(self, made: Made) -> Fast:
        return self.attached_to(made.model, Call((torch.randn(3, 4),), {}), made.workspace)

    def test_nothing_and_one_are_served_behind_the_guard(self, artifacts: Path) -> None:
        model = models.Apart().eval()
        dims = [DynamicDim(input=name, dim=0, min=0, max=9) for name in ("x", "other", "mask")]
        from_nothing_to_nine(self.attached_to(model, Call(models.apart_call(2, 5, 3), {}), artifacts, dims), model)

    @pytest.fixture
    @classmethod
    def fresh(cls, artifacts: Path) -> Fast:
        return cls.attached(artifacts)

    @contextlib.contextmanager
    def failing(self, fast: Fast) -> Iterator[list[int]]:
        """Another number of threads: our guard takes the call, dynamo's does not, and compiling again is forbidden."""
        threads, built = torch.get_num_threads(), graphs_built()
        torch.set_num_threads(threads + 1)
        try:
            with torch.compiler.set_stance("fail_on_recompile"), watched(fast) as tries:
                yield tries
        finally:
            torch.set_num_threads(threads)
        assert graphs_built() == built


class TestEager(OverTheModel):
    settings = Settings(memory_format=MemoryFormat.CHANNELS_LAST)


class TestDynamo(OverDynamo):
    """Inductor's own path with a backend that compiles nothing."""

    settings = Settings(engine="dynamo:eager")


@pytest.mark.compiles
@pytest.mark.filterwarnings("ignore:bf16 and fp16 are mixed")  # as they are in this model
class TestInductor(OverDynamo):
    """Plain torch.compile, behind the same guards."""

    settings = Settings(engine="inductor")


class TestFake(GuardedEngine):
    engine = "fake"
    knows_custom_operators = True

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _registered(cls) -> Iterator[None]:
        registry.register(cls.engine, fake_engine, fake_engine)
        yield
        registry.unregister(cls.engine)

    def failing(self, fast: Fast) -> AbstractContextManager[list[int]]:
        return exchanged(fast, "_run", lambda run: lambda *tensors: run())  # the graph's module misses its inputs

    def test_loads_in_a_fresh_process_without_compiler_or_exporter(self) -> None:
        pytest.skip("the fake keeps its graphs in this process")

    def test_four_threads_at_once(self) -> None:
        pytest.skip("torch's own interpreter of graphs is not for several threads")

    def test_planned_and_hostile_calls_from_several_threads(self) -> None:
        pytest.skip("torch's own interpreter of graphs is not for several threads")

    def test_it_fails_under_several_threads(self) -> None:
        pytest.skip("torch's own interpreter of graphs is not for several threads")


class OnnxRuntime:
    engine = "onnxruntime"

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _installed(cls) -> None:
        pytest.importorskip("onnxruntime")
        pytest.importorskip("onnxscript")

    def failing(self, fast: Fast) -> AbstractContextManager[list[int]]:
        """Every run is told to end at once."""
        import onnxruntime

        ended = onnxruntime.RunOptions()
        ended.terminate = True
        return exchanged(fast, "_run", lambda run: lambda binding, _: run(binding, ended))


class OpenVino:
    engine = "openvino"
    spare = (openvino_load.BLOB_NAME, openvino_load.MODEL_NAME)  # either is enough, with the weights

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _installed(cls) -> None:
        pytest.importorskip("openvino")

    def failing(self, fast: Fast) -> AbstractContextManager[list[int]]:
        """Every request gets an input that the model does not have."""
        from openvino import Tensor

        foreign: dict[int, Any] = {99: Tensor(torch.zeros(3, 4).numpy())}
        return exchanged(fast, "_infer", lambda infer: lambda request, _, *flags: infer(request, foreign, *flags))


class TestOnnxRuntime(OnnxRuntime, GuardedEngine):
    strange = dict.fromkeys(NANS, ("most",))


class TestOnnxRuntimeThatSleeps(OnnxRuntime, GuardedOffer):
    """The offer whose threads do not spin between calls."""

    offered = "onnxruntime no spinning"


class TestOpenVino(OpenVino, GuardedEngine):
    strange = {
        "infinity": ("softmax",),
        "both infinities": ("softmax",),
        "only minus infinity": ("most",),
        **dict.fromkeys(NANS, ("relu", "clamped", "exp", "softmax", "most")),
    }

    def test_integers_that_do_not_fit_into_its_24_bits_are_eagers(self, sink: Made, guarded: Fast) -> None:
        args, kwargs = models.sink_call(1)
        for large in (2**40, -(2**30), 2**24 + 1):
            args[0]["ids"][1] = large
            with pytest.raises(NotTaken, match=r"args\[0\]\['ids'\] holds integers beyond"):
                sink.call(*args, **kwargs)
            assert guarded(*args, **kwargs)["pair"][2][1].tolist() == (args[0]["ids"] + 1).tolist()
        args[0]["ids"][1] = 2**23
        same(sink.call(*args, **kwargs), sink.model(*args, **kwargs))


class TestOpenVinoInStreams(OpenVino, GuardedOffer):
    """The offer with several streams."""

    offered = "openvino throughput"


@pytest.mark.compiles
class TestAoti(GuardedEngine):
    """Its first offer where sizes vary, its plainest where they do not: two compiles see both."""

    engine = "aoti"
    quick = False
    knows_custom_operators = True
    calls_back = True

    def failing(self, fast: Fast) -> AbstractContextManager[list[int]]:
        """Tensors without memory: the library asks torch for their address."""
        return exchanged(fast, "_run", lambda run: lambda tensors: run([tensor.to_sparse() for tensor in tensors]))

    @classmethod
    def settings(cls, shapes: Shapes) -> Settings:
        offers = cls.offers(Diagnosis(dynamic=shapes is Shapes.DYNAMIC))
        return offers[0 if shapes is Shapes.DYNAMIC else -1].settings
