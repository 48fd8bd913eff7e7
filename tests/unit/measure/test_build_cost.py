"""What counts as a run of the C++ compiler, and as a build of a precompiled header."""

from __future__ import annotations

import subprocess
import sys

import pytest

from compilot.gate import arm
from compilot.measure import build_cost
from compilot.measure.build_cost import CompilerRuns, is_compiler_run

MIB = 2**20
LARGE = 600 * MIB


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


@pytest.mark.parametrize("code", [build_cost.__file__, arm.__file__], ids=["worker", "arm"])
def test_the_highest_memory_of_a_process_is_not_that_of_the_program_that_started_it(code: str) -> None:
    asked = f"""
import runpy
asked = runpy.run_path({code!r}, run_name="asked")["peak_rss_bytes"]
before = asked()
held = bytearray(200 * 2**20)
print(before, asked())
"""
    starter = f"""
import subprocess, sys
held = bytearray({LARGE})
sys.exit(subprocess.run([sys.executable, "-c", {asked!r}]).returncode)
"""
    done = subprocess.run([sys.executable, "-c", starter], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert before < LARGE / 2
    assert after - before > 150 * MIB  # its own is seen
