"""Every engine against the contract."""

from __future__ import annotations

import fake_engine
import pytest
from engine_contract import EngineContract

from compilot.engines.aoti import build as aoti_build
from compilot.engines.aoti import load as aoti_load
from compilot.engines.onnxruntime import build as onnxruntime_build
from compilot.engines.onnxruntime import load as onnxruntime_load
from compilot.engines.openvino import build as openvino_build
from compilot.engines.openvino import load as openvino_load


class TestFake(EngineContract):
    name, build, load = "fake", fake_engine, fake_engine
    knows_custom_operators = True

    def test_loads_in_a_fresh_process_without_compiler_or_exporter(self) -> None:
        pytest.skip("the fake keeps its graphs in this process")

    def test_four_threads_at_once(self) -> None:
        pytest.skip("torch's own interpreter of graphs is not for several threads")


class TestOnnxRuntime(EngineContract):
    name, build, load = "onnxruntime", onnxruntime_build, onnxruntime_load

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _installed(cls) -> None:
        pytest.importorskip("onnxruntime")
        pytest.importorskip("onnxscript")


class TestOpenVino(EngineContract):
    name, build, load = "openvino", openvino_build, openvino_load

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _installed(cls) -> None:
        pytest.importorskip("openvino")


@pytest.mark.compiles
class TestAoti(EngineContract):
    name, build, load = "aoti", aoti_build, aoti_load
    quick = False
    knows_custom_operators = True
