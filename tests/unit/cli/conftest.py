"""A command line whose pipeline is a fake: no worker process starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from compilot.progress import Observer
from compilot.records import Shipment
from compilot.tuning import pipeline


class FakePipeline:
    """Stands in for pipeline.run: writes the small run, tells the observer about it, or raises what it is told to."""

    def __init__(self, small_run: Any) -> None:
        self.small_run = small_run
        self.raises: BaseException | None = None
        self.asked: dict[str, Any] = {}

    def run(
        self, shipment: Shipment, run_dir: Path, options: Any, observer: Observer, *, resume: bool = False
    ) -> pipeline.Tuned:
        self.asked = {"shipment": shipment, "run_dir": run_dir, "options": options, "resume": resume}
        small = self.small_run
        if not resume:  # else it is there
            small.write(run_dir, finished=self.raises is None)
        observer.started(small.header, run_dir)
        for number, trial in enumerate(small.trials, 1):
            observer.trying(trial.candidate, number, 60.0)
            observer.finished(trial, None)
        if self.raises is not None:
            raise self.raises
        observer.decided(small.verdict, small.plan)
        return pipeline.Tuned(small.plan, small.verdict, run_dir, small.trials)


@pytest.fixture
def fake(small_run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakePipeline:
    """The pipeline replaced; the working directory is a fresh one with a target file in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text("def net(): ...\n")
    (tmp_path / "notes.txt").write_text("no Python\n")
    pipe = FakePipeline(small_run)
    monkeypatch.setattr(pipeline, "run", pipe.run)
    return pipe


@pytest.fixture
def compilot() -> Callable[..., Result]:
    """The command as a function of its arguments."""
    from compilot.cli.main import app

    runner = CliRunner()
    return lambda *args: runner.invoke(app, list(args))
