"""Who shows the progress: plain lines, a picture or a notebook's bar; and `compilot.tune` does it by itself."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import compilot
from compilot import showing
from compilot.progress import Observer
from compilot.showing.live import LiveObserver
from compilot.showing.notebook import NotebookObserver
from compilot.showing.plain import PlainObserver
from compilot.tuning import pipeline


def chosen(**how: Any) -> Observer:
    found = showing.watching(60.0, **how)
    return found.enter_result if isinstance(found, nullcontext) else found  # type: ignore[return-value]


class FakeDisplay(ModuleType):
    """IPython.display: keeps what a cell shows."""

    def __init__(self) -> None:
        super().__init__("IPython.display")
        self.shown: list[str] = []
        self.HTML = str

    def display(self, text: str, display_id: bool) -> Any:
        assert display_id
        return SimpleNamespace(update=self.shown.append)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> FakeDisplay:
    """A kernel that runs this code."""
    ipython, display = ModuleType("IPython"), FakeDisplay()
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return display


def test_lines_in_a_log_a_picture_in_a_terminal_nothing_when_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(showing, "is_terminal", lambda: False)
    assert type(chosen()) is PlainObserver
    assert type(chosen(quiet=True)) is Observer
    monkeypatch.setattr(showing, "is_terminal", lambda: True)
    assert type(chosen()) is LiveObserver


def test_ipython_in_a_terminal_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    ipython = ModuleType("IPython")
    ipython.get_ipython = SimpleNamespace  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    assert type(chosen()) is not NotebookObserver


def test_a_notebook_shows_one_picture_in_place(notebook: FakeDisplay, small_run: Any) -> None:
    observer = chosen()
    observer.started(small_run.header, Path("here"))
    observer.note("a < b")
    observer.trying(small_run.trials[2].candidate, 2, 50.0)
    observer.finished(small_run.trials[2], 2.0)
    observer.racing("race", ("eager",), 2, 9)  # too soon after the last picture
    observer.raced(small_run.confirm)
    observer.decided(small_run.verdict, small_run.plan)
    last = notebook.shown[-1]
    assert last.startswith("<b>tuning Net, writing to here</b><br>note: a &lt; b<br>ok: inductor freezing")
    assert "<i>decided: use, 2.00x faster than eager</i>" in last
    assert '<progress max="60" value="0"></progress> 0:00 of 1:00; best so far: inductor freezing (~2.00x)' in last
    assert "trying 2: inductor freezing" in "".join(notebook.shown)
    assert "pair 2 of" not in "".join(notebook.shown)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, small_run: Any, tmp_path: Path) -> None:
    """A pipeline that only tells what it does."""

    def fake(shipment: Any, run_dir: Path, options: Any, observer: Observer, **how: Any) -> pipeline.Tuned:
        observer.started(small_run.header, run_dir)
        observer.decided(small_run.verdict, small_run.plan)
        return pipeline.Tuned(small_run.plan, small_run.verdict, run_dir, small_run.trials)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pipeline, "run", fake)
    (tmp_path / "net.py").write_text("")


@pytest.mark.usefixtures("run")
class TestTuneInPython:
    def test_it_says_what_it_does_and_where_its_files_are(self, capsys: pytest.CaptureFixture[str]) -> None:
        compilot.tune("net.py:net", out="here")
        out, err = capsys.readouterr()
        assert out == ""
        assert "tuning Net, budget 1:30, writing to here" in err
        assert "decided: use, 2.00x faster than eager" in err

    def test_progress_can_be_switched_off(self, capsys: pytest.CaptureFixture[str]) -> None:
        compilot.tune("net.py:net", progress=False)
        assert capsys.readouterr() == ("", "")

    def test_an_interruption_stays_one_and_says_how_to_go_on(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], notebook: FakeDisplay, small_run: Any
    ) -> None:
        def stopped(shipment: Any, run_dir: Path, *args: Any, **kwargs: Any) -> None:
            small_run.write(run_dir, finished=False)
            raise KeyboardInterrupt

        monkeypatch.setattr(pipeline, "run", stopped)
        for folder in ("in a cell", "in a log", "in a terminal"):
            monkeypatch.setattr(showing, "is_terminal", lambda where=folder: where == "in a terminal")
            with pytest.raises(KeyboardInterrupt):
                compilot.tune("net.py:net", out=folder)
            said = capsys.readouterr().err if folder != "in a cell" else notebook.shown[-1].replace("&#x27;", "'")
            assert f"interrupted; go on with compilot.tune(resume='{folder}')" in said
            monkeypatch.delitem(sys.modules, "IPython", raising=False)

    def test_an_interruption_before_the_journal_promises_nothing(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def stopped(*args: Any, **kwargs: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(pipeline, "run", stopped)
        with pytest.raises(KeyboardInterrupt):
            compilot.tune("net.py:net", out="here")
        assert "go on" not in capsys.readouterr().err

    def test_an_observer_hears_it_instead(self, capsys: pytest.CaptureFixture[str]) -> None:
        class Ears(Observer):
            heard = ""

            def started(self, header: Any, run_dir: Path) -> None:
                self.heard = run_dir.name

        ears = Ears()
        compilot.tune("net.py:net", out="here", observer=ears)
        assert ears.heard == "here"
        assert capsys.readouterr() == ("", "")

    def test_a_terminal_keeps_the_decision(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(showing, "is_terminal", lambda: True)
        compilot.tune("net.py:net", out="here")
        assert "decided: use, 2.00x faster than eager" in capsys.readouterr().err
