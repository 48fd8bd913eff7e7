"""The files of a candidate's folder as records.

In: a folder and names in it. Out: ArtifactFile records with digest and size. Not covered: comparing them
(artifacts/planfolder.py, artifacts/bundle.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from compilot.engines.protocol import Infeasible
from compilot.files.digests import file_record
from compilot.records import ArtifactFile


def artifact_files(folder: Path, names: Sequence[str]) -> tuple[ArtifactFile, ...]:
    """Records of these files, in the order of their names."""
    return tuple(file_record(folder / name, name) for name in sorted(names))


def artifact_path(folder: Path | None, name: str) -> Path:
    """An engine's file, or Infeasible when the plan came without it."""
    path = None if folder is None else folder / name
    if path is None or not path.is_file():
        raise Infeasible(f"{name} is missing next to the plan; keep the plan's folder, or run 'compilot tune' again")
    return path
