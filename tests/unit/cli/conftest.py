"""A command line whose pipeline and runner are fakes: no worker process starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from compilot.artifacts.planfile import save_plan
from compilot.artifacts.rundir import RunDir
from compilot.progress import Observer
from compilot.records import Diagnosis, ProcessSamples, Shipment, State, Trial
from compilot.testing.fake_sizes import FakeSizes
from compilot.testing.runner import FakeRunner, Fate
from compilot.trials import local
from compilot.trials.runner import ArmLost, FreshSet, Inspection, Model, SetRules
from compilot.tuning import pipeline


class FakePipeline:
    """Stands in for pipeline.run: writes the small run, tells the observer about it, or raises what it is told to."""

    def __init__(self, small_run: Any) -> None:
        self.small_run = small_run
        self.raises: BaseException | None = None
        self.asked: dict[str, Any] = {}

    def run(
        self,
        shipment: Shipment,
        run_dir: Path,
        options: Any,
        observer: Observer,
        *,
        resume: bool = False,
        make_runner: Any = None,
        finish_early: bool = False,
    ) -> pipeline.Tuned:
        self.asked = {"shipment": shipment, "run_dir": run_dir, "options": options, "resume": resume}
        self.asked["finish_early"] = finish_early
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


class BenchRunner(FakeRunner):
    """Answers with the small run's figures."""

    small: Any = None
    broken: tuple[str, ...] = ()  # labels whose trial crashes
    dying: tuple[str, ...] = ()  # labels that pass their trial and die in a race
    room: int = 99  # workers that fit in memory
    races: list[tuple[str, ...]]
    shipment: Any = None

    def __init__(self, run_dir: RunDir, **_: Any) -> None:
        super().__init__(lambda _: Fate(speed=2.0), workers=self.room, sizes=FakeSizes({"x:0": (1, 9)}))
        BenchRunner.races = []
        self.known = {t.candidate.id: t for t in self.small.trials}

    def open(self, workload: Shipment) -> Model:
        BenchRunner.shipment = workload
        self._requests = workload.replay
        return Model(self.small.header.workload, ("the model is in train mode",))

    def inspect(self) -> Inspection:
        return Inspection(Diagnosis(), self.small.header.fingerprint, compiler_tried_s=1.0)

    def completed(self) -> Iterator[Trial]:
        jobs, self._jobs = self._jobs, []
        for job in jobs:
            if job.candidate.label in self.broken:
                yield Trial(candidate=job.candidate, state=State.CRASHED, reason="SIGSEGV while building")
            else:
                yield self.known[job.candidate.id]

    def confirm(self, trials: Sequence[Trial], rules: SetRules) -> FreshSet:
        candidates = [trial.candidate for trial in trials]
        if rules.number == 0:
            BenchRunner.races.append(tuple(arm.label for arm in candidates))
        for arm in candidates:
            if arm.label in self.dying:
                raise ArmLost(arm.id, State.CRASHED, "in a race: SIGBUS while timing")
        race = self.small.confirm
        columns = [race.arms.index(arm.id) for arm in candidates]
        rows = tuple((row[0], row[1], *(row[i] for i in columns)) for row in race.processes[rules.number].rounds)
        warm = {arm.id: self.known[arm.id].measurement for arm in candidates}
        return FreshSet(ProcessSamples(rounds=rows), True, warm)


@pytest.fixture
def fake_runner(fake: Any, small_run: Any, monkeypatch: pytest.MonkeyPatch) -> type[BenchRunner]:
    monkeypatch.setattr(local, "LocalRunner", BenchRunner)
    monkeypatch.setattr(BenchRunner, "small", small_run)
    save_plan(small_run.plan, Path("plan.json"))
    return BenchRunner
