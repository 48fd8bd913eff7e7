"""AOTInductor's package, taken apart: the library and what it reads beside itself, under a name of their own."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from compilot._torch.aoti import _take_apart
from compilot.engines.aoti.load import LIBRARY, load
from compilot.engines.protocol import Infeasible, LoadRequest

CODE = "model/data/aotinductor/model/"
USUAL = {f"{CODE}cab.wrapper.cpp": b"cpp", f"{CODE}cab.wrapper_metadata.json": b"{}", "model/byteorder": b"little"}


def package(folder: Path, **members: bytes) -> Path:
    path = folder / "model.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {
            **USUAL,
            **{f"{CODE}cab.wrapper.{suffix}": data for suffix, data in members.items()},
        }.items():
            archive.writestr(name, data)
    return path


def test_the_library_is_named_after_its_content(tmp_path: Path) -> None:
    (name,) = _take_apart(package(tmp_path, so=b"native code"), tmp_path)
    assert name == f"model-{hashlib.sha256(b'native code').hexdigest()[:16]}.so"
    assert (tmp_path / name).read_bytes() == b"native code"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "model.pt2"])


def test_operators_without_a_native_shim_are_listed_beside_it(tmp_path: Path) -> None:
    names = _take_apart(package(tmp_path, so=b"native code", json=b"[]"), tmp_path)
    assert {Path(name).suffix for name in names} == {".so", ".json"}
    assert len({Path(name).stem for name in names}) == 1  # where the library looks for it


@pytest.mark.parametrize("members", [{}, {"json": b"[]"}, {"so": b"code", "bin": b"weights"}])
def test_a_package_of_another_kind_is_refused_by_its_files(tmp_path: Path, members: dict[str, bytes]) -> None:
    with pytest.raises(RuntimeError, match="files that are not understood"):
        _take_apart(package(tmp_path, **members), tmp_path)


def test_no_library_and_two_libraries_are_told(tmp_path: Path) -> None:
    request = LoadRequest(None, None, None, tmp_path)  # type: ignore[arg-type]  # refused before the others are used
    with pytest.raises(Infeasible, match=r"model-\*\.so is missing beside the plan"):
        load(request)
    for digest in ("a", "b"):
        (tmp_path / LIBRARY.replace("*", digest)).touch()
    with pytest.raises(Infeasible, match="holds 2 libraries instead of one"):
        load(request)
