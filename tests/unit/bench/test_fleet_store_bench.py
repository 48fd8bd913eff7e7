"""bench/fleet_store.py on a store of a few hundred entries."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "bench"))
import fleet_store


def test_machines_choose_in_every_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fleet_store.write(tmp_path, 700, 10) == 670  # 70 of one model, 3 models with 200
    fleet_store.measure(tmp_path, 700, 10, machines=50, asked=3)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "a model by its fingerprint",
        "a model by its name",
        "the model with most bundles, by name",
        "the same, on a machine like no other",
        "the same, on a machine that nothing fits",
        "a model by its id",
    ]
    assert ["at most 1 entries read" in line for line in lines] == [True, True, True, False, False, True]
    assert "at most 10 entries read" in lines[3]  # one of each kind, with the newest weights
    assert "at most 10 entries read" in lines[4]  # one of each kind, and no more
