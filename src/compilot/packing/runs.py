"""What a finished run left behind, ready to be packed.

In: a run directory that nobody else can change. Out: its plan, how to rebuild its workload, and the folder of the
plan's files, every digest compared with what was measured. Each process that starts from a compile cache may add to
it: what was added has no digest, but what is packed of it is started and asked its golden call first. Not covered: runs
whose target or live model is gone (the sentence says so).
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import NamedTuple

from compilot.artifacts import journal
from compilot.artifacts.planfolder import Claim, Needs, checked, open_plan, refuse_foreign
from compilot.artifacts.shipments import FILE_NAME as SHIPMENT
from compilot.artifacts.shipments import read_shipment
from compilot.engines import registry
from compilot.errors import ArtifactError, RunDirError
from compilot.records import Plan, PlanEntry, RunHeader, Shipment


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
    plan = open_plan(folder / "plan.json")
    refuse_foreign(folder, (folder / SHIPMENT, folder / "journal.jsonl", *sorted((folder / "work").glob("*"))))
    shipment = read_shipment(folder)
    refuse_foreign(folder, (Path(place) for place in (shipment.payload, shipment.weights) if place))
    return Run(folder, plan, shipment)


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
    folder, cache = run.folder / entry.artifacts_dir, registry.traits(entry.candidate.settings.engine).cache_folder
    named = tuple(file for file in entry.artifacts if cache or not file.name.endswith("/"))
    _refuse_changed(Claim(folder, named, Needs(cache=cache)))
    found: list[Path] = []
    for file in named:
        path = folder / file.name
        found += [p for p in sorted(path.rglob("*")) if is_cache_file(p)] if file.name.endswith("/") else [path]
    return folder, found


def is_cache_file(path: Path) -> bool:
    """Whether a file of a compile cache is worth carrying: locks are not."""
    return path.is_file() and not path.name.endswith(".lock")


def _refuse_changed(claim: Claim) -> None:
    missing = next((file.name for file in claim.files if not (claim.folder / file.name).exists()), None)
    if missing is not None:  # also a cache that is gone, which a start would build anew
        raise RunDirError(f"{claim.folder / missing} is missing; run 'compilot tune' again, then pack.")
    try:
        checked(claim)
    except ArtifactError as problem:
        raise RunDirError(str(problem)) from problem
