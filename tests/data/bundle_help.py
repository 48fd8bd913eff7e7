"""What bundle tests share: runs of the tiny model, serving processes, bundles changed by an attacker."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bundling
import msgspec
from making_runs import make_run

from compilot.artifacts.bundle import MANIFEST
from compilot.packing.writing import publish, seal
from compilot.records import Manifest

DATA = Path(__file__).parent


def tiny_run(folder: Path, engine: str | None, factory: str = "one") -> Path:
    return make_run(folder, engine, f"{DATA / 'bundling.py'}:{factory}", getattr(bundling, factory)())


def serve(bundle: Path, user: int | None = None, **env: str) -> subprocess.Popen[str]:
    """A fresh process, perhaps another user's, that starts the bundle."""
    command = [sys.executable, str(DATA / "start_bundle.py"), str(bundle), *([] if user is None else [str(user)])]
    return subprocess.Popen(
        command, env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def told(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    answer: dict[str, Any] = json.loads(out.splitlines()[-1])
    return answer


def reseal(bundle: Path, folder: Path, change: Callable[[Path, Manifest], Manifest], key: Path | None = None) -> Path:
    """The bundle with something changed and every digest right again, as an attacker would leave it."""
    shutil.unpack_archive(bundle, folder, "zip")
    manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    seal(folder, change(folder, manifest), key)
    out = folder.with_suffix(".cpbundle")
    publish(folder, out, as_folder=False)
    return out
