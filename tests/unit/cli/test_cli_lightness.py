"""Asking for help must not cost a torch import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from compilot import __version__

COUNT = """
import sys
sys.argv = ["compilot", *sys.argv[1:]]
from compilot.cli.main import run
try:
    run()
except SystemExit:
    pass
print("loaded:", sorted({"torch", "numpy", "cloudpickle"} & set(sys.modules)))
"""


def test_explaining_starts_nothing_and_imports_no_torch_either(tmp_path: Path) -> None:
    command = [sys.executable, "-c", COUNT, "tune", "net.py:net", "--explain", "--preset", "fleet", "--engines", "aoti"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert "--objective        preset   startup (" in shown
    assert shown.splitlines()[-1].startswith("loaded: ")
    assert "torch" not in shown.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["tune", "--help"],
        ["bench", "--help"],
        ["history", "--help"],
        ["reproduce", "--help"],
        ["status", "--help"],
        ["env", "--help"],
        ["why-cold", "--help"],
        ["pull", "--help"],
        ["doctor", "--help"],
        ["pack", "--help"],
        ["verify", "--help"],
        ["push", "--help"],
        ["store", "ls", "--help"],
        ["cache", "ls", "--help"],
        ["keys", "new", "--help"],
        ["trace", "show", "--help"],
    ],
)
def test_help_imports_neither_torch_nor_numpy(arguments: list[str]) -> None:
    shown = subprocess.run([sys.executable, "-c", COUNT, *arguments], capture_output=True, text=True, check=True).stdout
    assert "Usage:" in shown
    assert shown.splitlines()[-1] == "loaded: []"


def test_version() -> None:
    command = [sys.executable, "-m", "compilot", "--version"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == f"compilot {__version__}\n"
