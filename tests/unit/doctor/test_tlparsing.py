"""tlparse beside the report: it is somebody else's program, and may be missing or fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from compilot.doctor import tlparsing


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder where programs are looked for, besides those of a shell."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_a_missing_tlparse_is_one_note(path: Path) -> None:
    notes: list[str] = []
    assert tlparsing.folder_for(Path("out"), notes.append) is None
    assert notes == ["tlparse is not installed; install it with: pip install tlparse"]


def test_a_tlparse_that_fails_is_quoted(path: Path, tmp_path: Path) -> None:
    notes: list[str] = []
    (path / "tlparse").write_text("#!/bin/sh\necho 'no such rank' >&2\nexit 3\n")
    (path / "tlparse").chmod(0o755)
    assert tlparsing.folder_for(Path("out"), notes.append) == Path("out/tlparse")
    assert tlparsing.write_pages(tmp_path / "empty", tmp_path / "pages", notes.append) is None
    (tmp_path / "dedicated_log.log").write_text("{}")
    assert tlparsing.write_pages(tmp_path, tmp_path / "pages", notes.append) is None
    assert "tlparse has nothing to read" in notes[0]
    assert notes[1] == "tlparse failed, so its pages are missing: no such rank"
