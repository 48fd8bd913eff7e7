"""`compilot report`: the page of a run, Markdown, the browser. `tune` writes the page, too, and never fails by it."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path
from typing import Any

import pytest

import compilot as package
from compilot import report
from compilot.artifacts.rundir import RunDir
from compilot.errors import InputError
from compilot.progress import Observer
from compilot.tuning import pipeline


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_page_is_written_into_the_run_and_its_place_is_printed(small_run: Any, compilot: Any) -> None:
    small_run.write(Path("run"))
    result = compilot("report", "run")
    assert (result.exit_code, result.stdout) == (0, "run/report.html\n"), result.stderr
    assert "2.00x faster than eager" in Path("run/report.html").read_text()


def test_markdown_and_another_place(small_run: Any, compilot: Any) -> None:
    small_run.write(Path("run"))
    assert compilot("report", "run", "--md").stdout == "run/report.md\n"
    assert Path("run/report.md").read_text().startswith("## compilot: Net\n")
    assert compilot("report", "run", "--out", "here/x.html").stdout == "here/x.html\n"
    assert Path("here/x.html").is_file()


def test_the_document_is_the_record(small_run: Any, compilot: Any) -> None:
    run = small_run.write(Path("run"))
    document = json.loads(compilot("report", "run", "--json").stdout)
    written = package.write_report(run)
    assert document["path"] == str(written.path)
    assert document["sections"] == list(written.sections)
    with pytest.raises(InputError, match="unknown format 'pdf'"):
        package.write_report(run, format="pdf")


@pytest.mark.parametrize(("works", "said"), [(True, ""), (False, "no browser could be started here")])
def test_it_opens_in_the_browser(
    small_run: Any, compilot: Any, monkeypatch: pytest.MonkeyPatch, works: bool, said: str
) -> None:
    small_run.write(Path("run"))
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or works)
    result = compilot("report", "run", "--open")
    assert opened == [Path("run/report.html").absolute().as_uri()]
    assert said in result.stderr


def test_a_folder_without_a_run_is_one_sentence(compilot: Any) -> None:
    result = compilot("report", ".")
    assert result.exit_code == 2
    assert "there is no journal" in result.stderr
    assert "Traceback" not in result.stderr


class Notes(Observer):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_a_run_writes_its_page_and_a_problem_with_it_is_a_note(
    small_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, observer = RunDir(small_run.write(tmp_path / "run")), Notes()
    pipeline.write_report(directory, observer)
    assert directory.report.is_file()
    assert observer.notes == []

    def broken(*args: Any) -> None:
        raise ZeroDivisionError("a picture without a width")

    monkeypatch.setattr(report, "write_page", broken, raising=False)
    pipeline.write_report(directory, observer)
    [note] = observer.notes
    assert note.startswith("the run has no report.html: ")
    assert "a picture without a width" in note
