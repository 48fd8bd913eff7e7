"""AOTInductor's package, taken apart: the library and what it reads beside itself, under a name of their own."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from compilot._torch.aoti import calls_back, compile_library, take_apart
from compilot.engines.aoti import load as aoti_load
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
    (library,) = take_apart(package(tmp_path, so=b"native code"), tmp_path)
    assert library.name == f"model-{hashlib.sha256(b'native code').hexdigest()[:16]}.so"
    assert library.read_bytes() == b"native code"
    assert not calls_back(library)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([library.name, "model.pt2"])


def test_operators_without_a_native_shim_are_listed_beside_it(tmp_path: Path) -> None:
    operators, library = take_apart(package(tmp_path, so=b"native code", json=b"[1]"), tmp_path)
    assert (operators.stem, operators.suffix, library.suffix) == (library.stem, ".json", ".so")  # where it looks for it
    assert operators.read_bytes() == b"[1]"
    assert calls_back(library)


def test_what_torch_notes_for_readers_is_left_out(tmp_path: Path) -> None:
    path = package(tmp_path, so=b"native code", json=b"[1]")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(f"{CODE}kernel_information.json", b"stack traces")
    assert [made.read_bytes() for made in take_apart(path, tmp_path)] == [b"[1]", b"native code"]


@pytest.mark.parametrize("members", [{}, {"json": b"[]"}, {"so": b"code", "bin": b"weights"}])
def test_a_package_of_another_kind_is_refused_by_its_files(tmp_path: Path, members: dict[str, bytes]) -> None:
    with pytest.raises(RuntimeError, match="files that are not understood"):
        take_apart(package(tmp_path, **members), tmp_path)


@pytest.mark.parametrize("other", ["custom_objs_config.json", "second.wrapper.so", "second.wrapper.json"])
def test_a_file_of_unknown_use_refuses_the_package(tmp_path: Path, other: str) -> None:
    path = package(tmp_path, so=b"code", json=b"[]")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(f"{CODE}{other}", b"other")
    with pytest.raises(RuntimeError, match="not understood"):
        take_apart(path, tmp_path)


def test_a_build_replaces_what_an_interrupted_one_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(program: object, *, package_path: str, inductor_configs: object) -> None:
        package(Path(package_path).parent, so=b"code of the second build")

    (tmp_path / "model-0123456789abcdef.so").write_bytes(b"code of the first build")
    monkeypatch.setattr("torch._inductor.aoti_compile_and_package", compiled)
    (name,) = compile_library(None, tmp_path, {})  # type: ignore[arg-type]  # the compiler is a fake
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes() == b"code of the second build"


def test_no_library_and_two_libraries_are_told(tmp_path: Path) -> None:
    request = LoadRequest(None, None, None, tmp_path)  # type: ignore[arg-type]  # refused before the others are used
    with pytest.raises(Infeasible, match=r"model-\*\.so is missing next to the plan"):
        load(request)
    for digest in ("a", "b"):
        (tmp_path / LIBRARY.replace("*", digest)).touch()
    with pytest.raises(Infeasible, match="holds 2 libraries instead of one"):
        load(request)


@pytest.mark.parametrize("calls_back", [True, False])
def test_a_library_that_calls_back_into_python_gets_one_call_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls_back: bool
) -> None:
    (tmp_path / LIBRARY.replace("*", "a")).touch()
    if calls_back:
        (tmp_path / LIBRARY.replace("*", "a")).with_suffix(".json").touch()
    structure = SimpleNamespace(weights_sha256=None)
    monkeypatch.setattr(aoti_load, "opened", lambda request, name: (tmp_path / name, structure))
    monkeypatch.setattr(aoti_load, "names_of", lambda structure: SimpleNamespace(inputs=["_i0"], outputs=["_o0"]))
    monkeypatch.setattr("compilot._torch.aoti.load_library", lambda path: list)
    monkeypatch.setattr("compilot.engines.artifacts.make_call", lambda *_: list)
    loaded = load(LoadRequest(None, None, None, tmp_path))  # type: ignore[arg-type]  # what stands around it is a fake
    assert loaded.concurrent is not calls_back


def test_a_library_where_nothing_may_run_is_told_with_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_programs_here(path: Path) -> None:
        raise RuntimeError(f"Error in dlopen: {path}: failed to map segment from shared object")

    (tmp_path / LIBRARY.replace("*", "a")).touch()
    monkeypatch.setattr(aoti_load, "opened", lambda request, name: (tmp_path / name, None))
    monkeypatch.setattr("compilot._torch.aoti.load_library", no_programs_here)
    with pytest.raises(Infeasible, match=r"noexec.*COMPILOT_CACHE"):
        load(LoadRequest(None, None, None, tmp_path))  # type: ignore[arg-type]
