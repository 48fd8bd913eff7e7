"""The child that builds for a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compilot.records import Shipment
from compilot.serve.builder import built
from compilot.serve.records import BuildJob
from compilot.testing.runner import fake_fingerprint
from compilot.trials import local


class Asked(Exception):
    """Ends the build where its runner would begin."""


def test_it_judges_no_speed_so_it_never_takes_the_machine_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    how: dict[str, Any] = {}

    def asked(*_: Any, **named: Any) -> None:
        how.update(named)
        raise Asked

    monkeypatch.setattr(local, "LocalRunner", asked)
    job = BuildJob(
        folder=str(tmp_path / "run"),
        out=str(tmp_path / "out"),
        result=str(tmp_path / "result"),
        machine=fake_fingerprint().machine,
        threads=1,
        shipment=Shipment(sys_path=(), cwd="", target="nowhere.py:nothing"),
    )
    with pytest.raises(Asked):
        built(job)
    assert how["judges_speed"] is False
