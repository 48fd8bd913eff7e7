"""What counts as a run of the C++ compiler, and as a build of a precompiled header."""

from __future__ import annotations

import pytest

from compilot.measure.build_cost import CompilerRuns, is_compiler_run


@pytest.mark.parametrize(
    ("command", "counts"),
    [
        (["g++", "a.cpp", "-shared", "-o", "a.so"], True),
        (["/usr/bin/clang++-17", "a.cpp", "-o", "a.so"], True),
        (["g++", "--version"], False),
        (["g++", "-E", "-P", "-o", "header.i"], False),
        (["openssl", "sha512", "-o", "x"], False),
        ([], False),
    ],
)
def test_only_commands_that_compile_count_as_compiler_runs(command: list[str], counts: bool) -> None:
    assert is_compiler_run(command) is counts


def test_headers_are_counted_among_the_runs() -> None:
    runs = CompilerRuns()  # not installed: an audit hook stays for the life of the process
    commands = (["g++", "x.h", "-o", "x.h.gch"], "g++ a.cpp -o a.so", ["g++", "a.cpp", "-o"], ["ls", "-o", "x.pch"])
    for command in commands:
        runs._heard("subprocess.Popen", ("", command, None, None))
    runs._heard("open", ("g++ a.cpp -o a.so", "r", 0))
    assert (runs.count, runs.headers) == (3, 1)
