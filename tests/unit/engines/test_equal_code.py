"""Equal C++ code is compiled once in a process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from compilot._torch import aoti, compiling, objects


class Builder:
    """What torch's builder tells of itself; "compiles" by writing what it was given."""

    def __init__(self, folder: Path, source: str | None = "int one;", flags: str = "-O3", end: str = ".o") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._target, self._flags = folder / f"chash{end}", flags
        self._source = folder / "chash.cpp"
        if source is not None:
            self._source.write_text(source)

    def get_target_file_path(self) -> str:
        return str(self._target)

    def get_command_line(self) -> str:
        return f"g++ {self._source} {self._flags} -o {self._target}"

    def output(self) -> bytes:
        return self._target.read_bytes()


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The compiler's runs; nothing is known from other tests."""
    from torch._inductor.cpp_builder import CppBuilder

    found: list[str] = []

    def build(builder: Builder) -> None:
        found.append(builder.get_command_line())
        Path(builder.get_target_file_path()).write_bytes(f"object {len(found)}".encode())

    monkeypatch.setattr(CppBuilder, "build", build)
    objects._kept.clear()
    yield found
    objects._kept.clear()


def build(builder: Builder) -> bytes:
    from torch._inductor.cpp_builder import CppBuilder

    with objects.equal_code_once():
        CppBuilder.build(builder)  # type: ignore[arg-type]
    return builder.output()


def test_equal_code_in_another_folder_is_compiled_once(tmp_path: Path, runs: list[str]) -> None:
    assert build(Builder(tmp_path / "first")) == build(Builder(tmp_path / "second")) == b"object 1"
    assert len(runs) == 1


@pytest.mark.parametrize(
    "other",
    [
        lambda folder: Builder(folder, source="int two;"),
        lambda folder: Builder(folder, flags="-O3 -mavx2"),
    ],
    ids=["source", "flags"],
)
def test_other_code_and_other_flags_are_compiled(
    tmp_path: Path, runs: list[str], other: Callable[[Path], Builder]
) -> None:
    assert build(Builder(tmp_path / "first")) == b"object 1"
    assert build(other(tmp_path / "second")) == b"object 2"
    assert len(runs) == 2


def test_torchs_comments_around_the_code_do_not_count_and_those_inside_do(tmp_path: Path, runs: list[str]) -> None:
    code = "int one;\n// inside\nint two;"
    build(Builder(tmp_path / "first", source=f"// of /a/wrapper.cpp\n{code}"))
    build(Builder(tmp_path / "second", source=f"// of /b/wrapper.cpp\n{code}\n\n// Compile cmd\n// g++ -O3\n"))
    assert len(runs) == 1
    build(Builder(tmp_path / "third", source=code.replace("inside", "another")))
    assert len(runs) == 2


@pytest.mark.parametrize("end", [".so", ".gch"])
def test_links_and_headers_are_made_each_time(tmp_path: Path, runs: list[str], end: str) -> None:
    build(Builder(tmp_path / "first", end=end))
    build(Builder(tmp_path / "second", end=end))
    assert len(runs) == 2


def test_what_is_no_cpp_is_made_each_time(tmp_path: Path, runs: list[str]) -> None:
    build(Builder(tmp_path / "first", source=None))
    build(Builder(tmp_path / "second", source=None))
    assert len(runs) == 2


def test_the_oldest_is_forgotten_and_large_ones_are_not_kept(
    tmp_path: Path, runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(objects.MOST + 1):
        build(Builder(tmp_path / str(number), source=f"int n{number};"))
    assert build(Builder(tmp_path / "again", source=f"int n{objects.MOST};")) == f"object {objects.MOST + 1}".encode()
    build(Builder(tmp_path / "oldest", source="int n0;"))
    assert len(runs) == objects.MOST + 2
    monkeypatch.setattr(objects, "LARGEST", 3)
    build(Builder(tmp_path / "large", source="int large;"))
    build(Builder(tmp_path / "large again", source="int large;"))
    assert len(runs) == objects.MOST + 4


def test_a_failed_compile_is_not_kept(tmp_path: Path, runs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.cpp_builder import CppBuilder

    def fail(builder: Builder) -> None:
        raise RuntimeError("g++ failed")

    with monkeypatch.context() as broken:
        broken.setattr(CppBuilder, "build", fail)
        with pytest.raises(RuntimeError, match=r"g\+\+ failed"):
            build(Builder(tmp_path / "first"))
        assert CppBuilder.build is fail  # put back
    assert build(Builder(tmp_path / "second")) == b"object 1"


@pytest.mark.compiles
def test_blocks_that_are_alike_are_compiled_once_and_keep_their_weights(tmp_path: Path) -> None:
    from torch._inductor import cpp_builder

    objects._kept.clear()
    compiled: list[str] = []
    run = cpp_builder.run_compile_cmd

    def counted(command: str, cwd: str) -> None:
        if ".cpp" in command and ".o" in command:
            compiled.append(command)
        run(command, cwd)

    torch.manual_seed(0)
    blocks = [
        nn.Sequential(nn.Linear(64, 64), nn.GELU()).eval() for _ in range(3)
    ]  # few weights are numbers in the code
    x = torch.randn(4, 64)
    runs = []
    with torch.no_grad(), pytest.MonkeyPatch.context() as patched:
        patched.setattr(cpp_builder, "run_compile_cmd", counted)
        for number, block in enumerate(blocks):
            place = tmp_path / str(number)
            place.mkdir()
            with compiling.cache_directory(tmp_path / "cache"):
                library, *_ = aoti.compile_library(
                    torch.export.export(block, (x,)), place, {"freezing": True, "cpp.vec_isa_ok": True}
                )
            torch.testing.assert_close(aoti.load_library(place / library)([x])[0], block(x))
            runs.append(len(compiled))
            compiled.clear()
    assert runs[0] >= 2  # its kernels and what calls them
    assert runs[1:] == [0, 0]
