"""OpenVINO starts from what its plugin made of the graph at the build, where this CPU takes it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from compilot._tree import Call
from compilot.engines.openvino import saving
from compilot.engines.openvino.build import build
from compilot.engines.openvino.load import BLOB_NAME, MODEL_NAME, WEIGHTS_NAME, load
from compilot.engines.protocol import BuildRequest, LoadRequest
from compilot.records import Candidate, Settings, Shapes
from compilot.runtime.guards import make_guard

pytest.importorskip("openvino", reason="openvino is not installed")
X = torch.randn(2, 3, 8, 8)


def made(folder: Path) -> LoadRequest:
    """A small net with a batch norm, whose weights are new ones once they are folded."""
    model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten(), nn.Linear(2304, 640)).eval()
    call, settings = Call((X,), {}), Settings(engine="openvino")
    guard = make_guard(model, call, dynamic=(), shapes=Shapes.STATIC, grad=False)
    candidate = Candidate(settings=settings, label="openvino", rationale="a test")
    files = build(BuildRequest(model, call, guard, candidate, folder))
    assert {file.name for file in files} == {path.name for path in folder.iterdir()}
    return LoadRequest(model, guard, settings, folder)


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> LoadRequest:
    with torch.no_grad():
        return made(tmp_path_factory.mktemp("openvino"))


@pytest.fixture
def request_of(built, tmp_path) -> LoadRequest:
    shutil.copytree(built.artifacts, tmp_path / "copy")
    return built._replace(artifacts=tmp_path / "copy")


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The graphs that were compiled anew."""
    from openvino import Core

    plain, seen = Core.compile_model, []
    monkeypatch.setattr(Core, "compile_model", lambda self, path, *rest: seen.append(path) or plain(self, path, *rest))
    return seen


def test_a_start_compiles_nothing_and_answers_as_the_compiled_graph_does_to_the_bit(request_of, compiled):
    answer = load(request_of).call(X)
    assert compiled == []
    (request_of.artifacts / BLOB_NAME).unlink()
    assert torch.equal(load(request_of).call(X), answer)
    assert compiled == [request_of.artifacts / MODEL_NAME]
    torch.testing.assert_close(answer, request_of.model(X), rtol=1e-4, atol=1e-5)


def test_the_blob_has_no_second_copy_of_the_weights(request_of):
    blob, weights = (request_of.artifacts / name for name in (BLOB_NAME, WEIGHTS_NAME))
    assert weights.stat().st_size > 2304 * 640 * 4
    assert blob.stat().st_size < weights.stat().st_size / 20


def test_no_file_names_the_folder_it_was_made_in(built):
    where = str(built.artifacts).encode()
    assert not [path.name for path in built.artifacts.iterdir() if where in path.read_bytes()]


def other(field: bytes, content: bytes) -> bytes:
    """The blob with another first letter in a field of its head."""
    at = content.index(field) + len(field)
    return content[:at] + b"?" + content[at + 1 :]


@pytest.mark.parametrize(
    "changed",
    [
        partial(other, b";isa="),
        partial(other, b";ov="),
        lambda content: b"",
        lambda content: content[: len(content) // 2],
    ],
    ids=["another CPU", "another version", "empty", "half"],
)
def test_where_the_blob_is_refused_the_graph_is_compiled(request_of, compiled, changed):
    blob = request_of.artifacts / BLOB_NAME
    blob.write_bytes(changed(blob.read_bytes()))
    answer = load(request_of).call(X)
    assert compiled == [request_of.artifacts / MODEL_NAME]
    torch.testing.assert_close(answer, request_of.model(X), rtol=1e-4, atol=1e-5)


def test_a_blob_with_weights_of_its_own_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "SMALL_BYTES", 0)
    monkeypatch.setattr(saving, "WEIGHTLESS", {})  # as with versions that always write them
    request = made(tmp_path)
    assert not (tmp_path / BLOB_NAME).exists()
    torch.testing.assert_close(load(request).call(X), request.model(X), rtol=1e-4, atol=1e-5)


def test_a_build_in_the_same_folder_forgets_the_blob_of_the_last_one(tmp_path, monkeypatch):
    made(tmp_path)
    monkeypatch.setattr(saving, "NAMES_ITS_CPU", b"no blob says this")  # as with versions whose blobs do not
    request = made(tmp_path)
    assert not (tmp_path / BLOB_NAME).exists()
    torch.testing.assert_close(load(request).call(X), request.model(X), rtol=1e-4, atol=1e-5)


def test_without_the_general_simplifications_the_answers_are_right_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino._offline_transformations", None)
    request = made(tmp_path)
    torch.testing.assert_close(load(request).call(X), request.model(X), rtol=1e-4, atol=1e-5)
