"""What a run left behind: files as they were measured; a compile cache may have grown, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from compilot.artifacts.cachelist import write_list
from compilot.engines.files import file_record
from compilot.errors import RunDirError
from compilot.packing.runs import FinishedRun, entry_files
from compilot.records import PlanEntry, Settings, Shipment


@pytest.fixture
def run(run_dir: Path, small_run: Any) -> FinishedRun:
    return FinishedRun(run_dir, small_run.plan, Shipment(sys_path=(), cwd=""))


@pytest.fixture
def entry(run: FinishedRun) -> PlanEntry:
    """An entry with a file and a compile cache."""
    work = run.folder / "work"
    (work / "inductor" / "ab").mkdir(parents=True)
    (work / "inductor" / "ab" / "kernel.so").write_bytes(b"compiled")
    (work / "notes.json").write_bytes(b"{}")
    cache = write_list(work, "inductor/")
    assert cache is not None
    files = (file_record(work / "notes.json", "notes.json"), cache)
    first = run.plan.entries[0]
    candidate = msgspec.structs.replace(first.candidate, settings=Settings(engine="inductor"))
    return msgspec.structs.replace(first, candidate=candidate, artifacts=files, artifacts_dir="work")


def names(run: FinishedRun, entry: PlanEntry) -> list[str]:
    folder, files = entry_files(run, entry)
    return [str(file.relative_to(folder)) for file in files]


def test_what_was_measured_is_found(run: FinishedRun, entry: PlanEntry) -> None:
    assert names(run, entry) == ["notes.json", "inductor/ab/kernel.so"]


def test_a_compile_cache_that_another_start_added_to_is_packed_with_it(run: FinishedRun, entry: PlanEntry) -> None:
    (run.folder / "work" / "inductor" / "ab" / "wrapper.py").write_text("pass")
    (run.folder / "work" / "inductor" / "ab" / "kernel.lock").touch()
    assert names(run, entry) == ["notes.json", "inductor/ab/kernel.so", "inductor/ab/wrapper.py"]


def test_losses_and_changes_are_refused(run: FinishedRun, entry: PlanEntry) -> None:
    work = run.folder / "work"
    (work / "notes.json").write_bytes(b"[]")
    with pytest.raises(RunDirError, match="not the file that was measured"):
        entry_files(run, entry)
    (work / "notes.json").write_bytes(b"{}")
    (work / "inductor" / "ab" / "kernel.so").write_bytes(b"")
    with pytest.raises(RunDirError, match=r"kernel\.so has 0 bytes instead of 8"):
        entry_files(run, entry)
    (work / "inductor" / "ab" / "kernel.so").write_bytes(b"compileD")  # one bit, the same size
    with pytest.raises(RunDirError, match=r"kernel\.so is not the file that was measured"):
        entry_files(run, entry)
    (work / "inductor" / "ab" / "kernel.so").unlink()
    with pytest.raises(RunDirError, match=r"kernel\.so is missing"):
        entry_files(run, entry)
    (work / "notes.json").unlink()
    with pytest.raises(RunDirError, match="is missing"):
        entry_files(run, entry)
