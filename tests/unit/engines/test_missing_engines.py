"""An engine whose package is missing says so, with the command that installs it."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest

from compilot.engines import registry
from compilot.engines.files import artifact_path
from compilot.engines.needs import installed, unknown_options
from compilot.engines.protocol import Infeasible
from compilot.records import Settings


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_a_missing_package_is_named_with_its_install_command(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = metadata.version

    def version(package: str) -> str:
        if package == name:
            raise metadata.PackageNotFoundError(package)
        return real(package)

    monkeypatch.setattr(metadata, "version", version)
    found = registry.build_half(name).available()
    assert not found.ok
    assert found.why == f"{name} not installed"
    packages = {"onnxruntime": "onnxruntime onnx onnxscript", "openvino": "openvino"}
    assert found.install == f"pip install {packages[name]}"


def test_all_missing_packages_are_named() -> None:
    found = installed("no-such-a", "torch", "no-such-b")
    assert found.why == "no-such-a and no-such-b not installed"


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_loading_without_the_package_is_infeasible(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    half = registry.load_half(name)
    start = half._session if name == "onnxruntime" else half._program  # type: ignore[attr-defined]
    with pytest.raises(Infeasible, match="not installed; pip install"):
        start(tmp_path / "model", Settings(engine=name))


def test_a_plan_without_its_files_is_infeasible(tmp_path: Path) -> None:
    with pytest.raises(Infeasible, match="run 'compilot tune' again"):
        artifact_path(tmp_path, "model.onnx")


def test_options_are_checked_by_name_value_and_type() -> None:
    known: dict[str, tuple[str, ...] | type] = {"hint": ("latency",), "threads": int}
    assert unknown_options("x", Settings(options={"hint": "latency", "threads": 2}), known) is None
    assert "choose from latency" in str(unknown_options("x", Settings(options={"hint": "fast"}), known))
    assert "of type int" in str(unknown_options("x", Settings(options={"threads": True}), known))
