"""Commands on a run directory of which somebody else can change a part: one sentence, exit code 2, nothing done."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compilot.artifacts.cachelist import write_list
from compilot.artifacts.journal import read
from compilot.artifacts.planfile import load_plan, save_plan
from compilot.artifacts.rundir import RunDir
from compilot.artifacts.shipments import keep_shipment
from compilot.errors import UntrustedPlan
from compilot.progress import Observer
from compilot.records import Shipment, State, Trial, TrialLine
from compilot.trials import local
from compilot.tuning.resuming import usable

NOBODY = 65534
CHANGES: dict[str, Callable[[Path], object]] = {
    "mode of the plan": lambda run: (run / "plan.json").chmod(0o666),
    "owner of the plan": lambda run: os.chown(run / "plan.json", NOBODY, NOBODY),
    "mode of the run": lambda run: run.chmod(0o777),
    "owner of the run": lambda run: os.chown(run, NOBODY, NOBODY),
    "mode of the journal": lambda run: (run / "journal.jsonl").chmod(0o666),
    "mode of the shipment": lambda run: (run / "shipment.json").chmod(0o666),
    "mode of the payload": lambda run: (run / "payload.pkl").chmod(0o666),
    "mode of a file": lambda run: kernel(run).chmod(0o666),
    "owner of a file": lambda run: os.chown(kernel(run), NOBODY, NOBODY),
    "a link": lambda run: kernel(run).with_name("more.so").symlink_to("/etc/hostname"),
}
OF_THE_PLAN = ("mode of the plan", "owner of the plan", "mode of the run", "owner of the run")


def kernel(run: Path) -> Path:
    [found] = run.glob("work/*/inductor/ab/kernel.so")
    return found


def candidate_id(run: Path) -> str:
    return kernel(run).parts[-4]


@pytest.fixture
def run(run_dir: Path, small_run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The small run with a compile cache, and a payload as live objects have it; no process may be started for it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text("def net(): ...\n")
    entry = small_run.plan.entries[0]
    work = run_dir / "work" / entry.candidate.id
    (work / "inductor" / "ab").mkdir(parents=True)
    (work / "inductor" / "ab" / "kernel.so").write_bytes(b"compiled")
    cache = write_list(work, "inductor/")
    (work / "inductor").chmod(0o755)  # as an interrupted build leaves it: what is in it speaks for itself
    assert cache is not None
    entry = msgspec.structs.replace(entry, artifacts=(cache,), artifacts_dir=f"work/{entry.candidate.id}")
    save_plan(msgspec.structs.replace(small_run.plan, entries=(entry,)), run_dir / "plan.json")
    (run_dir / "payload.pkl").touch()
    keep_shipment(Shipment(payload=str(run_dir / "payload.pkl"), sys_path=(), cwd=str(tmp_path)), run_dir)

    def no_process(*_: Any, **__: Any) -> None:
        raise AssertionError("a process was started for a foreign run")

    monkeypatch.setattr(local.LocalRunner, "open", no_process)
    return run_dir


def change(run: Path, how: str) -> None:
    if "owner" in how and os.getuid() != 0:
        pytest.skip("only root can give a file to another user")
    CHANGES[how](run)


def refused(result: Any) -> None:
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert "is not used: " in result.stderr
    assert "copy it to a place of your own" in result.stderr


@pytest.mark.parametrize("how", OF_THE_PLAN)
def test_bench_doctor_and_why_cold_take_no_foreign_plan(run: Path, compilot: Any, how: str) -> None:
    change(run, how)
    refused(compilot("bench", "net.py:net", "--plan", str(run / "plan.json"), "--quiet"))
    refused(compilot("doctor", "net.py:net", "--plan", str(run), "--quiet"))
    refused(compilot("why-cold", str(run)))
    refused(compilot("why-cold", str(run / "plan.json")))
    assert not Path("compilot-runs").exists()


@pytest.mark.parametrize("how", CHANGES)
def test_pack_takes_no_foreign_run(run: Path, compilot: Any, how: str) -> None:
    change(run, how)
    refused(compilot("pack", str(run), "-o", "model.cpbundle", "--quiet"))
    assert not Path("model.cpbundle").exists()


@pytest.mark.parametrize("how", [h for h in CHANGES if "plan" not in h and "shipment" not in h and "payload" not in h])
def test_a_foreign_run_is_not_resumed(run: Path, compilot: Any, how: str) -> None:
    before = (run / "journal.jsonl").read_bytes()
    change(run, how)
    refused(compilot("tune", "net.py:net", "--resume", str(run), "--quiet", "--budget", "5s"))
    assert (run / "journal.jsonl").read_bytes() == before


def trials(run: Path) -> dict[str, Trial]:
    """What the journal has, with the files of the plan's candidate."""
    found = {line.trial.candidate.id: line.trial for line in read(run / "journal.jsonl") if isinstance(line, TrialLine)}
    entry = load_plan(run / "plan.json").entries[0]
    found[entry.candidate.id] = msgspec.structs.replace(found[entry.candidate.id], artifacts=entry.artifacts)
    return found


class Notes(Observer):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_a_resumed_run_uses_the_files_that_were_measured(run: Path) -> None:
    (kernel(run).parent / "added.so").touch()  # by torch
    notes = Notes()
    assert usable(trials(run), RunDir(run), notes) == trials(run)
    assert notes.notes == []


@pytest.mark.parametrize("how", ["flipped", "cut", "gone", "cache gone", "all gone"])
def test_a_candidate_whose_files_changed_is_tried_again_from_an_empty_folder(run: Path, how: str) -> None:
    known, chosen, file = trials(run), candidate_id(run), kernel(run)
    if how == "flipped":
        file.write_bytes(b"compileD")
    elif how == "cut":
        file.write_bytes(b"comp")
    elif how == "gone":
        file.unlink()
    else:
        gone = file.parent.parent if how == "cache gone" else file.parent.parent.parent
        gone.rename(run / "elsewhere")
    notes = Notes()
    left = usable(known, RunDir(run), notes)
    assert left == {key: trial for key, trial in known.items() if key != chosen}
    assert len(notes.notes) == 1
    assert "is tried again: " in notes.notes[0]
    assert not (run / "work" / chosen).exists()  # a compiler would take a damaged file of its cache for its own


def test_a_twin_with_foreign_files_is_not_taken(run: Path) -> None:
    trial = trials(run)[candidate_id(run)]
    assert trial.state is State.OK
    assert RunDir(run).why_changed(trial, cache="inductor") == ""
    kernel(run).chmod(0o666)
    with pytest.raises(UntrustedPlan, match=r"kernel\.so: others may write to it"):
        RunDir(run).why_changed(trial, cache="inductor")
