"""Disks that are full or read-only, for real (row 13 of what compilot must survive).

One clear sentence from `tune` and `pack`; serving still starts. Without a HOME: test_bundles.py.
"""

from __future__ import annotations

import functools
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bundle_help import DATA, Told, starting

Packer = Callable[..., Path]
Ran = subprocess.CompletedProcess[str]
SMALLEST_BYTES = 1000  # less than a file of any model has
NAMESPACE = ["unshare", "--mount", *([] if os.getuid() == 0 else ["--map-root-user"])]
SCRIPT = """
mount -t tmpfs -o "mode=700,$OPTIONS" none "$DISK" && cd "$DISK" || exit 99
[ -z "$FILLER" ] || head -c "$FILLER" /dev/zero > filler
"$@"
code=$?
find . -type f > "$DISK.left"
exit $code
"""
COMPILOT = (sys.executable, "-m", "compilot")
TARGET = f"{DATA / 'bundling.py'}:one"
FULL = {"OPTIONS": "size=4k", "FILLER": "4096"}  # a tmpfs counts in pages


@functools.cache
def may_mount() -> bool:
    tried = [*NAMESPACE, "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


def on_disk(disk: Path, facts: dict[str, str], *command: str) -> Ran:
    """Run a command in a small file system of its own, which nobody else sees and which goes when the command ends."""
    if not may_mount():
        pytest.skip("this user may not mount a file system")
    disk.mkdir()
    return run([*NAMESPACE, "sh", "-c", SCRIPT, "sh", *command], {"DISK": str(disk), **facts})


def with_small_files(*command: str) -> Ran:
    """Run a command whose files cannot grow: a full disk for users who may not mount one."""
    limits = (SMALLEST_BYTES, SMALLEST_BYTES)
    return run(list(command), {}, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits))


def run(command: list[str], env: dict[str, str], before: Callable[[], None] | None = None) -> Ran:
    return subprocess.run(
        command, env={**os.environ, **env}, preexec_fn=before, capture_output=True, text=True, check=False, timeout=300
    )


def refused(ran: Ran, sentence: str) -> bool:
    """Exit code 2 and one sentence, nothing else."""
    return (ran.returncode, ran.stdout, ran.stderr) == (2, "", f"error: {sentence}\n")


def left(disk: Path) -> list[str]:
    return disk.with_name(f"{disk.name}.left").read_text().split()


# ---- pack ------------------------------------------------------------------------------------------------------------


def test_row_13_pack_on_a_full_disk_says_so_and_leaves_nothing(tuned: Packer, tmp_path: Path) -> None:
    disk, out = tmp_path / "disk", tmp_path / "disk/model.cpbundle"
    ran = on_disk(disk, FULL, *COMPILOT, "pack", str(tuned("onnxruntime")), "-o", str(out), "-q")
    assert refused(ran, f"cannot write {out}: No space left on device; choose another place."), ran
    assert left(disk) == ["./filler"]


def test_row_13_pack_with_no_room_for_the_golden_call(tuned: Packer, tmp_path: Path) -> None:
    command = (*COMPILOT, "pack", str(tuned("onnxruntime")), "-o", "model.cpbundle", "-q")
    ran = on_disk(tmp_path / "disk", {"OPTIONS": "size=12k"}, *command)  # for the three files of the run
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
    assert ran.stderr.startswith("error: cannot write 0-inputs.safetensors (")
    assert "No space left on device" in ran.stderr
    assert ran.stderr.endswith("; free some space, or choose another place.\n")
    assert left(tmp_path / "disk") == []


def test_row_13_pack_where_files_cannot_grow(tuned: Packer, tmp_path: Path) -> None:
    out = tmp_path / "model.cpbundle"
    ran = with_small_files(*COMPILOT, "pack", str(tuned("onnxruntime")), "-o", str(out), "-q")
    assert refused(ran, f"cannot write {out}: File too large; choose another place."), ran
    assert list(tmp_path.iterdir()) == []


# ---- tune ------------------------------------------------------------------------------------------------------------


def test_row_13_tune_on_a_full_disk_says_so(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    ran = on_disk(disk, FULL, *COMPILOT, "tune", TARGET, "--budget", "20s", "--out", str(disk / "run"), "-q")
    file = disk / "run/reference/case-000.pt"
    assert refused(ran, f"cannot write {file}: No space left on device; choose another folder."), ran
    assert "./run/plan.json" not in left(disk)


def test_row_13_tune_where_files_cannot_grow(tmp_path: Path) -> None:
    ran = with_small_files(*COMPILOT, "tune", TARGET, "--budget", "20s", "--out", str(tmp_path / "run"), "-q")
    file = tmp_path / "run/reference/case-000.pt"
    assert refused(ran, f"cannot write {file}: File too large; choose another folder."), ran
    assert not (tmp_path / "run/plan.json").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("tune", TARGET, "--out", "{disk}/x"), "cannot make {disk}/x: Read-only file system; choose another folder."),
        (("tune", TARGET, "--out", "{disk}"), "{disk} cannot be written to; choose another folder."),
        (("pack", "{run}", "-o", "{disk}/x"), "cannot write {disk}/x: Read-only file system; choose another place."),
    ],
)
def test_row_13_a_read_only_disk_is_told_before_any_work(
    tuned: Packer, tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    disk, names = tmp_path / "disk", {"disk": str(tmp_path / "disk"), "run": str(tuned("onnxruntime"))}
    ran = on_disk(disk, {"OPTIONS": "ro"}, *COMPILOT, *(word.format(**names) for word in words))
    assert refused(ran, sentence.format(**names)), ran


# ---- serving ---------------------------------------------------------------------------------------------------------


def served(bundle: Path, disk: Path, room: Path | None = None) -> list[str]:
    """The command of a process that starts a bundle with its cache and its temporary files on this disk."""
    env = {"COMPILOT_CACHE": disk / "cache", "TMPDIR": disk, "CANARY": disk / "canary"}
    starts: dict[str, dict[str, Any]] = {how: {"plan": bundle, "how": how, "env": env} for how in ("load", "compile")}
    if room is not None:
        starts["room elsewhere"] = {"plan": bundle, "how": "load", "env": {**env, "TMPDIR": room}}
    return starting(starts)


def eager_answers(ran: Ran, why: str) -> dict[str, Told]:
    """Without a model one clear sentence, with one eager's own answers; what else the process told."""
    assert ran.returncode == 0, ran.stderr
    told: dict[str, Told] = json.loads(ran.stdout)
    assert told["load"]["refused"] == "EnvironmentProblem"
    assert why in told["load"]["why"]
    assert (told["compile"]["error"], told["compile"]["fast"]) == (0.0, 0)
    [said] = told["compile"]["warnings"]
    assert why in said
    assert "Eager answers instead." in said
    return told


@pytest.mark.parametrize(
    ("facts", "why"),
    [(FULL, "No space left on device; set COMPILOT_CACHE to a folder with room."),
     ({"OPTIONS": "ro"}, "there is no folder to write to (Read-only file system); set COMPILOT_CACHE or TMPDIR.")],
    ids=["full", "read-only"],
)  # fmt: skip
def test_row_13_serving_starts_without_room_in_the_cache(
    packed: Packer, tmp_path: Path, facts: dict[str, str], why: str
) -> None:
    disk, room = tmp_path / "disk", tmp_path / "room"
    room.mkdir()
    ran = on_disk(disk, facts, *served(packed("onnxruntime"), disk, room))
    told = eager_answers(ran, why)["room elsewhere"]
    assert told["error"] < 1e-4
    assert told["fast"] == 1
    assert f"using {room / f'compilot-{os.getuid()}'} as cache" in ran.stderr  # the log says where


def test_row_13_serving_starts_where_files_cannot_grow(packed: Packer, tmp_path: Path) -> None:
    ran = with_small_files(*served(packed("onnxruntime"), tmp_path))
    eager_answers(ran, "File too large; set COMPILOT_CACHE to a folder with room.")
