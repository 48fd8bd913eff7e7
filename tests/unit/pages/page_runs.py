"""Runs for the tests of pages."""

from __future__ import annotations

from compilot.artifacts import state
from compilot.artifacts.rundir import RunDir
from compilot.artifacts.state import Ending


def listed(run_dir: RunDir, label: str = "Net", *, ended: bool = True) -> RunDir:
    """In the list of runs."""
    assert not state.begun(run_dir, label)
    if ended:
        assert not state.ended(run_dir, Ending.PLAN)
    return run_dir
