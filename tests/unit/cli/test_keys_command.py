"""`compilot keys`: from a new key to a trusted one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from compilot.artifacts.signing import sign, verify
from compilot.artifacts.trust import trusted_keys
from compilot.cli.main import app

run = CliRunner()


@pytest.fixture(autouse=True)
def _own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPILOT_CONFIG", str(tmp_path / "config"))
    monkeypatch.delenv("COMPILOT_TRUSTED_KEYS", raising=False)


def test_a_new_key_can_be_trusted_and_is_then_listed(tmp_path: Path) -> None:
    made = json.loads(run.invoke(app, ["keys", "new", str(tmp_path / "release"), "--json"]).stdout)
    assert json.loads(run.invoke(app, ["keys", "ls", "--json"]).stdout) == []
    assert "no trusted keys" in run.invoke(app, ["keys", "ls"]).stdout
    for _ in range(2):  # twice is once
        trusted = run.invoke(app, ["keys", "trust", made["public"]])
        assert made["key_id"] in trusted.stdout
    listed = json.loads(run.invoke(app, ["keys", "ls", "--json"]).stdout)
    assert [key["key_id"] for key in listed] == [made["key_id"]]
    assert verify(b"data", sign(b"data", tmp_path / "release"), trusted_keys()) == made["key_id"]


def test_a_private_key_is_not_copied_anywhere(tmp_path: Path) -> None:
    run.invoke(app, ["keys", "new", str(tmp_path / "release")])
    refused = run.invoke(app, ["keys", "trust", str(tmp_path / "release")])
    assert refused.exit_code == 2
    assert "give the public one (release.pub)" in refused.stderr
    assert not (tmp_path / "config").exists()
