"""The bench of padded calls: a tiny BERT on a real engine, and an engine that leaks is not let in."""

from __future__ import annotations

from pathlib import Path

import pytest

import padding as bench
from compilot.errors import FallbackWarning


@pytest.mark.slow
def test_random_padded_calls_of_a_real_engine_are_eagers(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    case = next(case for case in bench.cases() if case.name == "BERT with mask")
    with pytest.warns(FallbackWarning, match="masks everything in a row"):
        row = bench.measure(case._replace(buckets=[(1, 48), (4, 48)]), "onnxruntime", 200, tmp_path)
    assert row["wrong_answers"] == 0, row["wrong"]
    masked = sum(row["fallbacks"].values())
    assert row["fast"] + masked == 200
    assert 0 < masked < 30  # rows that mask everything: eager answers them
    assert all("masks everything in a row" in reason for reason in row["fallbacks"])
    assert all(row["by_entry"].values())
    assert row["compiles"] == 0
