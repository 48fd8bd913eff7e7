"""What bundle tests share: runs of the tiny model, serving processes, bundles changed by an attacker, a canary."""

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
Told = dict[str, Any]
CANARY = """
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void sing(void) { fclose(fopen(getenv("CANARY"), "w")); }
"""


def tiny_run(folder: Path, engine: str | None, factory: str = "one") -> Path:
    return make_run(folder, engine, f"{DATA / 'bundling.py'}:{factory}", getattr(bundling, factory)())


def serve(bundle: Path, user: int | None = None, **env: str) -> subprocess.Popen[str]:
    """A fresh process, perhaps another user's, that starts the bundle."""
    command = [sys.executable, str(DATA / "start_bundle.py"), str(bundle), *([] if user is None else [str(user)])]
    return subprocess.Popen(
        command, env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def told(process: subprocess.Popen[str]) -> Told:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    answer: Told = json.loads(out.splitlines()[-1])
    return answer


def starting(starts: dict[str, dict[str, Any]]) -> list[str]:
    """The command of a fresh process that makes these starts, each with arguments of `tried` in try_starts.py."""
    return [sys.executable, str(DATA / "try_starts.py"), json.dumps(starts, default=str)]


def try_starts(home: Path, starts: dict[str, dict[str, Any]]) -> dict[str, Told]:
    """What a fresh process told about its starts; its cache and the place for a canary are in the folder."""
    env = {**os.environ, "COMPILOT_CACHE": str(home / "cache"), "CANARY": str(home / "canary")}
    return told(subprocess.Popen(starting(starts), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))


def in_two_ways(bundles: dict[str, Path]) -> dict[str, dict[str, Any]]:
    """Starts without a model, which must raise, and with one, where eager must answer."""
    return {
        f"{name}, {how}": {"plan": path, "how": how} for name, path in bundles.items() for how in ("load", "compile")
    }


def served_by_eager(told: Told, why: str) -> bool:
    """Eager's own answer, and one warning with the reason."""
    return told.get("error") == 0.0 and told["fast"] == 0 and len(told["warnings"]) == 1 and why in told["warnings"][0]


def command_line(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """`compilot WORDS` as a user types it in a folder; what it caches would lie there too."""
    command = [sys.executable, "-m", "compilot", *map(str, words)]
    env = {**os.environ, "COMPILOT_CACHE": str(cwd / "cache")}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=300)


def reseal(bundle: Path, folder: Path, change: Callable[[Path, Manifest], Manifest], key: Path | None = None) -> Path:
    """The bundle with something changed and every digest right again, as an attacker would leave it."""
    shutil.unpack_archive(bundle, folder, "zip")
    manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    seal(folder, change(folder, manifest), key)
    out = folder.with_suffix(".cpbundle")
    publish(folder, out, as_folder=False)
    return out


def with_machine(manifest: Manifest, field: str, value: Any) -> Manifest:
    """The manifest of the same bundle, had it been packed on another machine."""
    machine = msgspec.structs.replace(manifest.fingerprint.machine, **{field: value})
    return msgspec.structs.replace(manifest, fingerprint=msgspec.structs.replace(manifest.fingerprint, machine=machine))


def put_canary(folder: Path) -> None:
    """Native code that leaves the file $CANARY behind when it is loaded, in place of an unpacked bundle's own."""
    (library,) = folder.glob("artifacts/**/model-*.so")
    source = folder.with_name(f"{folder.name}-canary.c")
    source.write_text(CANARY)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
