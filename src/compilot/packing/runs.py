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

from compilot.artifacts.planfolder import Claim, Needs, checked, missing_file
from compilot.artifacts.rundir import RunDir
from compilot.engines.of_candidate import traits_of
from compilot.errors import ArtifactError, RunDirError
from compilot.records import Plan, PlanEntry, Shipment


class FinishedRun(NamedTuple):
    """A finished run."""

    folder: Path
    plan: Plan
    shipment: Shipment

    @property
    def run_dir(self) -> RunDir:
        return RunDir(self.folder)


def open_run(folder: Path) -> FinishedRun:
    """The run in a directory; what is missing is the user's to know."""
    run_dir = RunDir(folder.absolute())
    return FinishedRun(run_dir.path, run_dir.open_plan(), run_dir.open_shipment())


def how_tuned(run: FinishedRun) -> dict[str, str]:
    """The command and the choices of a run, where its journal is still there and whole."""
    try:
        header = run.run_dir.header()
    except RunDirError:
        return {}
    command, *words = header.argv or ("",)
    told = {"tuned by": shlex.join([Path(command).name, *words])} if command else {}
    return {**told, "budget": f"{header.budget_s:g} s", "objective": header.objective}


def entry_files(run: FinishedRun, entry: PlanEntry) -> tuple[Path, list[Path]]:
    """The folder of an entry's files and the files to pack, as they were measured."""
    folder, cache = run.folder / entry.artifacts_dir, traits_of(entry.candidate).cache_folder
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
    if missing := missing_file(claim):  # also a cache that is gone, which a start would build again
        raise RunDirError(f"{missing} is missing; run 'compilot tune' again, then pack.")
    try:
        checked(claim)
    except ArtifactError as problem:
        raise RunDirError(str(problem)) from problem
