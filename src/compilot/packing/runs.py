"""What a finished run left behind, ready to be packed.

In: a run directory. Out: its plan, how to rebuild its workload, and the folder of the plan's files, every digest
compared with what was measured. A compile cache is the exception: each process that starts from it may add to it, so
only losses are noticed here; what is packed of it is started and asked its golden call first. Not covered: runs whose
target or live model is gone (the sentence says so).
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import NamedTuple

from compilot.artifacts import journal
from compilot.artifacts.planfile import load_plan
from compilot.artifacts.shipments import read_shipment
from compilot.engines.files import file_record
from compilot.errors import RunDirError
from compilot.records import ArtifactFile, Plan, PlanEntry, RunHeader, Shipment


class Run(NamedTuple):
    """A finished run."""

    folder: Path
    plan: Plan
    shipment: Shipment


def open_run(folder: Path) -> Run:
    """The run in a directory; what is missing is the user's to know."""
    folder = folder.absolute()
    if not (folder / "plan.json").is_file():
        raise RunDirError(f"there is no plan.json in {folder}; run 'compilot tune' with --out {folder} first.")
    plan = load_plan(folder / "plan.json")
    return Run(folder, plan, read_shipment(folder))


def how_tuned(run: Run) -> dict[str, str]:
    """The command and the choices of a run, where its journal is still there and whole."""
    try:
        header = journal.read(run.folder / "journal.jsonl")[0]
    except RunDirError:
        return {}
    assert isinstance(header, RunHeader)  # or it would not have been read
    command, *words = header.argv or ("",)
    told = {"tuned by": shlex.join([Path(command).name, *words])} if command else {}
    return {**told, "budget": f"{header.budget_s:g} s", "objective": header.objective}


def entry_files(run: Run, entry: PlanEntry) -> tuple[Path, list[Path]]:
    """The folder of an entry's files and the files to pack, as they were measured."""
    folder = run.folder / entry.artifacts_dir
    found: list[Path] = []
    for file in entry.artifacts:
        _refuse_changed(folder, file)
        path = folder / file.name
        found += [p for p in sorted(path.rglob("*")) if is_cache_file(p)] if file.name.endswith("/") else [path]
    return folder, found


def is_cache_file(path: Path) -> bool:
    """Whether a file of a compile cache is worth carrying: locks are not."""
    return path.is_file() and not path.name.endswith(".lock")


def _refuse_changed(folder: Path, file: ArtifactFile) -> None:
    path = folder / file.name
    if not path.exists():
        what = "is missing"
    elif file.name.endswith("/"):
        what = "has lost files since it was measured" if _size(path) < file.size_bytes else ""
    else:
        what = "" if file_record(path, file.name).sha256 == file.sha256 else "is not the file that was measured"
    if what:
        raise RunDirError(f"{path} {what}; run 'compilot tune' again, then pack.")


def _size(cache: Path) -> int:
    return sum(path.stat().st_size for path in cache.rglob("*") if is_cache_file(path))
