"""Traits: what the rest of compilot knows of an engine, and that it knows it from nowhere else."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

import compilot
from compilot.engines import registry
from compilot.engines.inductor import load as inductor_load
from compilot.engines.protocol import Loaded, LoadRequest
from compilot.engines.registry import Halves
from compilot.engines.traits import BuildCost, EngineTraits

ROOT = Path(compilot.__file__).parent
NAMES = {*registry.BUILT_IN} - {"eager"}
OWN = EngineTraits(version="7", build_cost=BuildCost.RECORDING)


class Own:
    TRAITS = OWN

    def load(self, request: LoadRequest) -> Loaded:
        raise AssertionError("traits are known without loading")


@pytest.fixture
def own() -> Iterator[None]:
    registry.register("own", None, Own())
    yield
    registry.unregister("own")


def literals(path: Path) -> list[str]:
    """Strings in a module that are an engine's name, with their lines."""
    nodes = ast.walk(ast.parse(path.read_text()))
    found = [node for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [f"{path.relative_to(ROOT)}:{node.lineno}: {node.value}" for node in found if node.value in NAMES]


def test_no_engine_but_eager_is_named_outside_of_engines() -> None:
    modules = [path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] != "engines"]
    assert len(modules) > 150
    assert [line for path in modules for line in literals(path)] == []


def test_the_look_for_names_finds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    (tmp_path / "some.py").write_text('ORDER = ("eager", "aoti")\n')
    assert literals(tmp_path / "some.py") == ["some.py:1: aoti"]


def test_the_engines_of_torch_go_by_its_version() -> None:
    asked = [*registry.BUILT_IN, "dynamo:eager", "dynamo:aot_eager", "dynamo:other", "unknown"]
    found = [name for name in asked if registry.goes_by_torch(name)]
    assert found == ["eager", "inductor", "aoti", "cudagraphs", "dynamo:eager", "dynamo:aot_eager"]


def test_another_backend_of_torch_compile_is_neither_the_yardstick_nor_has_a_twin() -> None:
    ours, others = registry.traits("inductor"), registry.traits("dynamo:other")
    assert (ours.plain_compile, ours.ahead_of_time, ours.compiler_at_build) == (True, "aoti", True)
    assert (others.plain_compile, others.ahead_of_time, others.compiler_at_build) == (False, "", False)
    assert ours.through_dynamo is others.through_dynamo is True
    assert ours.cache_folder == others.cache_folder == "inductor"
    assert ours.compiler_at_start is others.compiler_at_start is True


def test_what_is_known_of_built_in_engines() -> None:
    def having(trait: str) -> list[str]:
        return [name for name in registry.BUILT_IN if getattr(registry.traits(name), trait)]

    assert having("whole_graph") == ["onnxruntime", "openvino", "aoti", "tensorrt"]
    assert having("standalone") == ["onnxruntime", "openvino", "aoti"] == [*registry.standalone()]
    assert having("compiler_at_build") == ["inductor", "aoti"]
    assert having("compiler_at_start") == having("through_dynamo") == having("cache_folder") == ["inductor"]
    assert having("keeps_checks") == ["eager", "inductor", "aoti"]
    assert [registry.traits(name).instruction_sets for name in ("eager", "onnxruntime", "openvino", "aoti")] == [
        "at-run-time",
        "exact",
        "at-run-time",
        "as-compiled",
    ]
    assert {name: registry.traits(name).warm_share for name in ("inductor", "aoti", "dynamo:eager")} == {
        "inductor": 0.3,
        "aoti": 0.12,
        "dynamo:eager": 0.12,
    }


def test_a_registered_engine_declares_its_own(own: None) -> None:
    assert registry.traits("own") is OWN
    assert registry.version("own") == "7"
    registry.register("own", None, Own(), EngineTraits(version="8"))
    assert registry.version("own") == "8"


def test_a_replaced_built_in_engine_that_declares_nothing_keeps_its_traits() -> None:
    registry.register("aoti", None, inductor_load)
    try:
        assert registry.traits("aoti").standalone
    finally:
        registry.unregister("aoti")


def test_an_installed_engine_declares_its_own_and_is_not_imported_for_its_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    point = metadata.EntryPoint("theirs", "compilot.engines.openvino", registry.GROUP)
    monkeypatch.setattr(registry, "_installed", lambda: {"theirs": point, "pair": point})
    imported: list[str] = []

    def load(name: str) -> Halves:
        imported.append(name)
        return Halves(None, Own())

    monkeypatch.setattr(registry, "_load_installed", load)
    assert not registry.goes_by_torch("theirs")
    assert registry.version("theirs") is None
    assert imported == []
    assert registry.traits("theirs") is OWN
    assert imported == ["theirs"]


def test_an_entry_point_may_be_a_module_with_traits(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(load=SimpleNamespace(), TRAITS=OWN)
    monkeypatch.setattr(registry, "_installed", lambda: {"module": SimpleNamespace(load=lambda: module)})
    registry._load_installed.cache_clear()
    try:
        assert registry.traits("module") is OWN
    finally:
        registry._load_installed.cache_clear()


def test_an_engine_nobody_knows_has_the_defaults() -> None:
    assert registry.traits("unknown") == EngineTraits()


def test_traits_are_light() -> None:
    """No engine's package and no torch is imported for them."""
    code = (
        "import sys\nfrom compilot.engines import registry\n"
        "for name in (*registry.BUILT_IN, 'dynamo:other'): registry.traits(name)\n"
        "print(sorted({'torch', 'onnxruntime', 'openvino', 'numpy'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
