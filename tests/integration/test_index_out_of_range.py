"""Indices out of range with real engines: eager raises, the process lives, and no engine answers in eager's place."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / "data" / "out_of_range.py"
ENGINES = [
    pytest.param("inductor", marks=pytest.mark.compiles),
    pytest.param("aoti", marks=pytest.mark.compiles),
    "onnxruntime",
    "openvino",
]


def outcomes(engine: str, folder: Path) -> Any:
    command = [sys.executable, str(SCRIPT), engine, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("engine", ENGINES)
def test_eager_raises_and_the_process_lives(engine: str, tmp_path: Path) -> None:
    if engine in ("onnxruntime", "openvino"):
        pytest.importorskip(engine)
    found = outcomes(engine, tmp_path)
    first, *bad, last = found["rows"]
    assert first == last
    assert _numbers(first[0]) == pytest.approx(_numbers(first[1]), abs=1e-2)
    assert len(bad) == 15
    for eager, compiled in bad:
        assert eager in ("IndexError", "RuntimeError")
        assert compiled == eager
    assert found["fast"] == 2


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.split()]
