"""A claim is timed with copies of the run's own files, if they are as they were measured and fit what is installed."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

import compilot
from compilot.api.repeating import Again, _why_rebuilt
from compilot.artifacts.rundir import RunDir
from compilot.engines.of_candidate import engines_of
from compilot.identity.machine import machine_fingerprint
from compilot.records import ArtifactFile, Fingerprint, Shipment

DATA = b"what an engine built"


@pytest.fixture
def claim(small_run: Any, tmp_path: Path) -> Again:
    """A plan of this machine with one file."""
    old = small_run.plan
    file = ArtifactFile(name="model.bin", sha256=hashlib.sha256(DATA).hexdigest(), size_bytes=len(DATA))
    entry = msgspec.structs.replace(old.entries[0], artifacts=(file,), artifacts_dir="work/x")
    machine = machine_fingerprint(engines=engines_of(entry.candidate))
    fingerprint = Fingerprint(machine=machine, model=old.fingerprint.model)
    folder = tmp_path / "run"
    (folder / "work/x").mkdir(parents=True)
    (folder / "work/x/model.bin").write_bytes(DATA)
    plan = msgspec.structs.replace(old, fingerprint=fingerprint, entries=(entry,))
    return Again(plan, Shipment(sys_path=(), cwd=""), folder)


def rebuilt(claim: Again, folder: Path) -> tuple[str, bool]:
    """Why it is built again, and whether copies are there."""
    entry, run_dir = claim.plan.entries[0], RunDir.make(folder / "again")
    why = _why_rebuilt(claim, entry, run_dir)
    return why, (run_dir.workspace(entry.candidate.id) / "model.bin").exists()


def test_files_as_they_were_measured_are_copied(claim: Again, tmp_path: Path) -> None:
    assert rebuilt(claim, tmp_path) == ("", True)
    assert (tmp_path / "run/work/x/model.bin").read_bytes() == DATA


def test_changed_missing_and_absent_files_are_built_again(claim: Again, tmp_path: Path) -> None:
    file = tmp_path / "run/work/x/model.bin"
    file.write_bytes(DATA[::-1])
    why, copied = rebuilt(claim, tmp_path)
    assert "its digest is another one" in why
    assert str(file) in why
    assert not copied
    file.unlink()
    assert rebuilt(claim, tmp_path) == (f"{file} is missing", False)
    assert rebuilt(claim._replace(folder=None), tmp_path) == ("its files are not there", False)


def test_files_for_another_torch_are_built_again(claim: Again, tmp_path: Path) -> None:
    made = claim.plan.fingerprint
    older = msgspec.structs.replace(made, machine=msgspec.structs.replace(made.machine, torch="2.0.0"))
    why, copied = rebuilt(claim._replace(plan=msgspec.structs.replace(claim.plan, fingerprint=older)), tmp_path)
    assert why.startswith("torch: the plan was made with 2.0.0")
    assert not copied


def test_files_that_others_can_change_are_not_copied(claim: Again, tmp_path: Path) -> None:
    (tmp_path / "run/work/x").chmod(0o777)
    with pytest.raises(compilot.UntrustedPlan, match="others may write to it"):
        rebuilt(claim, tmp_path)
    assert not (tmp_path / "again/work").exists()
