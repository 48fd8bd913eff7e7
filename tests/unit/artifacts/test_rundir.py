"""A run directory: where its files are, whose it is, and whether a run is there; names are part of what users know."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compilot.artifacts.cachelist import write_list
from compilot.artifacts.rundir import RunDir
from compilot.errors import RunDirError, UntrustedPlan
from compilot.files.atomic import partial_name
from compilot.records import Shipment, Trial, TrialLine


@pytest.fixture
def run(run_dir: Path) -> RunDir:
    return RunDir(run_dir)


def test_the_names_that_users_and_records_know() -> None:
    run = RunDir(Path("run"))
    files = (run.plan, run.journal, run.trials_csv, run.report, run.shipment, run.payload, run.weights, run.doctor)
    files = (*files, run.reference)
    assert [str(file.relative_to("run")) for file in files] == [
        "plan.json",
        "journal.jsonl",
        "trials.csv",
        "report.html",
        "shipment.json",
        "payload.pkl",
        "weights.bin",
        "doctor",
        "reference",
    ]
    assert run.log("eager") == Path("run/logs/eager.log") == run.path / run.log_name("eager")
    assert run.workspace("ab12") == Path("run/work/ab12") == run.path / run.artifacts_dir("ab12")
    assert str(run) == "run"


def test_a_directory_is_made_with_those_above_it_and_swept(tmp_path: Path) -> None:
    run = RunDir.make(tmp_path / "a" / "run")
    assert run.path.is_dir()
    leftover = partial_name(run.plan)
    dead = leftover.with_name(leftover.name.replace(f"-{os.getpid()}.", "-4194304."))  # more than any process has
    dead.touch()
    run.plan.touch()
    RunDir.make(run.path)
    assert [run.plan] == list(run.path.iterdir())


def test_the_path_is_absolute_once_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert RunDir.make(Path("run")).path == tmp_path / "run"


def test_a_file_in_its_place_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunDirError, match=r"cannot make .*file/run: .*; choose another folder\."):
        RunDir.make(tmp_path / "file" / "run")


def test_a_directory_that_cannot_be_written_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    with pytest.raises(RunDirError, match=r"run cannot be written to; choose another folder\."):
        RunDir.make(tmp_path / "run")


def test_begun_and_finished(tmp_path: Path, small_run: Any) -> None:
    run = RunDir.make(tmp_path / "run")
    assert not run.holds_run
    run.refuse_second_run()
    run.create_journal(small_run.header).close()
    assert (run.holds_run, run.is_finished) == (True, False)
    with pytest.raises(RunDirError, match=rf"{run} already holds a run; .* 'compilot tune --resume {run}'"):
        run.refuse_second_run()
    with pytest.raises(RunDirError, match=r"already holds a run; choose another out\."):
        run.refuse_second_run("choose another out")
    run.trials_csv.touch()
    assert run.is_finished


def test_header_and_trials_are_the_journals(run: RunDir, small_run: Any) -> None:
    assert run.header() == small_run.header
    assert list(run.trials().values()) == list(small_run.trials)
    again = msgspec.structs.replace(small_run.trials[1], reason="tried again")
    with run.open_journal() as journal:
        journal.append(TrialLine(trial=again, at_s=99.0))
    assert list(run.trials())[1] == again.candidate.id
    assert run.trials()[again.candidate.id] == again
    assert run.lines()[-1] == TrialLine(trial=again, at_s=99.0)


def test_a_directory_without_a_run_says_so(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    for read in (run.lines, run.header, run.trials, run.open_journal, run.open_plan, run.open_shipment):
        with pytest.raises(RunDirError):
            read()
    assert run.read_plan() is None


def test_the_plan_to_look_at_and_the_plan_to_use(run: RunDir, small_run: Any) -> None:
    assert run.read_plan() == run.open_plan() == small_run.plan
    run.save_plan(msgspec.structs.replace(small_run.plan, because="otherwise"))
    run.plan.chmod(0o666)
    looked_at = run.read_plan()
    assert looked_at is not None
    assert looked_at.because == "otherwise"
    with pytest.raises(UntrustedPlan, match=r"plan\.json is not used"):
        run.open_plan()


@pytest.mark.parametrize("name", ["journal.jsonl", "work/ab12", "shipment.json", "payload.pkl", "weights.bin"])
def test_what_others_can_change_is_refused(run: RunDir, name: str) -> None:
    run.workspace("ab12").mkdir(parents=True)
    for file in (run.payload, run.weights):
        file.touch()
    run.keep_shipment(Shipment(payload=str(run.payload), weights=str(run.weights), sys_path=(), cwd="/"))
    run.refuse_foreign()
    assert run.open_shipment().payload == str(run.payload)
    (run.path / name).chmod(0o777)
    with pytest.raises(UntrustedPlan, match=rf"the run in {run} is not used: .*{name}"):
        run.open_shipment()


@pytest.fixture
def cached(run: RunDir, small_run: Any) -> Trial:
    """A trial whose engine keeps a compile cache."""
    trial: Trial = small_run.trials[2]
    cache = run.workspace(trial.candidate.id) / "inductor"
    cache.mkdir(parents=True)
    (cache / "kernel.so").write_bytes(b"compiled")
    listed = write_list(cache.parent, "inductor/")
    assert listed is not None
    return msgspec.structs.replace(trial, artifacts=(listed,))


def test_a_trials_files_are_those_that_were_measured(run: RunDir, cached: Trial) -> None:
    kernel = run.workspace(cached.candidate.id) / "inductor" / "kernel.so"
    assert run.why_changed(cached, cache=True) == ""
    kernel.with_name("added.so").touch()  # by the compiler, at a later start
    assert run.why_changed(cached, cache=True) == ""
    kernel.write_bytes(b"compileD")
    assert run.why_changed(cached, cache=True) == (
        f"{kernel} is not the file that was measured: its digest is another one"
    )
    assert run.why_changed(cached, cache=False) == ""  # nobody opens it
    kernel.with_name("added.so").unlink()
    kernel.unlink()
    kernel.parent.rmdir()
    assert run.why_changed(cached, cache=True) == f"{kernel.parent} is missing"
