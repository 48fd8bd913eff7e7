"""The doctor's report on disk: which one is the last of a target, and which ones are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from compilot.diagnose.report_records import REPORT_SCHEMA, DoctorReport
from compilot.doctor import report_files
from compilot.errors import InputError

REPORT = DoctorReport(schema=REPORT_SCHEMA, compilot="0", created="now", label="Net")


def test_a_report_of_another_schema_is_refused(tmp_path: Path) -> None:
    report_files.save(replace(REPORT, schema=99), tmp_path)
    with pytest.raises(InputError, match="has schema 99"):
        report_files.last_report(tmp_path)


def test_a_report_of_another_target_is_refused(tmp_path: Path) -> None:
    report_files.save(replace(REPORT, target="/a/net.py:small"), tmp_path)
    assert report_files.last_report(tmp_path, "/a/net.py:small").target == "/a/net.py:small"
    with pytest.raises(InputError, match=r"is about /a/net.py:small, not about /b/net.py:small; examine it once"):
        report_files.last_report(tmp_path, "/b/net.py:small")


def test_two_files_have_two_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("bert.py", "t5.py"):
        (tmp_path / name).touch()
    targets = ("bert.py:model", "t5.py:model", "models.bert:model")
    folders = [str(report_files.default_folder(target)) for target in targets]
    assert folders == [f"compilot-doctor/{name}" for name in ("bert-model", "t5-model", "models.bert-model")]
