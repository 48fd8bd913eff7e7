"""Runs in a list of the test's own, and pages over them."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from page_runs import listed

from compilot.artifacts.rundir import RunDir
from compilot.pages.serving import Server
from compilot.records import SourceCommit

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tuning"))


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's state folder."""
    monkeypatch.setenv("COMPILOT_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def runs(small_run: Any, tmp_path: Path) -> list[RunDir]:
    """Three runs of one model: another commit, then another torch."""
    found = []
    for number, (commit, torch) in enumerate((("a" * 40, "2.13.0"), ("b" * 40, "2.13.0"), ("b" * 40, "2.13.1"))):
        machine = msgspec.structs.replace(small_run.header.fingerprint.machine, torch=torch)
        small_run.header = msgspec.structs.replace(
            small_run.header,
            created=f"2026-01-0{number + 2}T03:04:05+00:00",
            fingerprint=msgspec.structs.replace(small_run.header.fingerprint, machine=machine),
            source=SourceCommit(commit=commit),
        )
        found.append(listed(RunDir(small_run.write(tmp_path / "runs" / f"net-{number}"))))
    return found


@pytest.fixture
def server() -> Iterator[Server]:
    """Pages over loopback."""
    made = Server(0)
    thread = threading.Thread(target=made.run)
    thread.start()
    while not made.is_ready:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield made
    finally:
        made.stop()
        thread.join(30)
        assert not thread.is_alive()
