"""Runs in a list of the test's own, written by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compilot.artifacts import state
from compilot.artifacts.rundir import RunDir
from compilot.artifacts.state import Ending

MakeRun = Callable[..., RunDir]


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's state folder."""
    monkeypatch.setenv("COMPILOT_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def make_run(small_run: Any, tmp_path: Path) -> MakeRun:
    """The small run in a directory: make_run("a", budget_s=5.0); in the list unless told otherwise."""

    def make(name: str, *, listed: bool = True, finished: bool = True, label: str = "Net", **header: Any) -> RunDir:
        workload = header.pop("workload", msgspec.structs.replace(small_run.header.workload, label=label))
        before = small_run.header
        small_run.header = msgspec.structs.replace(before, workload=workload, **header)
        try:
            run_dir = RunDir(small_run.write(tmp_path / name, finished=finished))
        finally:
            small_run.header = before
        if listed:
            state.begun(run_dir, label)
            if finished:
                state.ended(run_dir, Ending.PLAN)
        return run_dir

    return make
