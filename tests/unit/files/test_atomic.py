"""Whole or not at all, and no litter."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import pytest

from compilot.files import atomic

WRITE = """
import sys
from pathlib import Path
from compilot.files import atomic
path = Path(sys.argv[1])
with atomic.making_folder(path / "folder") as folder, atomic.writing(path / "file") as file:
    (folder / "one").write_bytes(b"half")
    file.write(b"half")
    file.flush()
    print("writing", flush=True)
    sys.stdin.read()
"""


def test_bytes_take_the_place_of_the_old_ones(tmp_path: Path) -> None:
    path = tmp_path / "file"
    atomic.write_bytes(path, b"old")
    atomic.write_bytes(path, b"new", mode=atomic.PRIVATE)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["file"]


def _fill_the_disk(file: IO[bytes]) -> None:
    file.write(b"half")
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_copy_comes_with_its_digest(tmp_path: Path) -> None:
    data = os.urandom(3 * 2**20 + 1)
    (tmp_path / "source").write_bytes(data)
    assert atomic.copy_file(tmp_path / "source", tmp_path / "copy") == hashlib.sha256(data).hexdigest()
    assert (tmp_path / "copy").read_bytes() == data


def test_a_body_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="No space left"), atomic.writing(path) as file:
        _fill_the_disk(file)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_folder_appears_with_all_its_files(tmp_path: Path) -> None:
    with atomic.making_folder(tmp_path / "folder") as folder:
        (folder / "deep").mkdir()
        (folder / "deep" / "one").write_bytes(b"1")
        assert not (tmp_path / "folder").exists()
    assert (tmp_path / "folder" / "deep" / "one").read_bytes() == b"1"
    assert os.listdir(tmp_path) == ["folder"]


def test_the_first_of_two_folders_stays(tmp_path: Path) -> None:
    with atomic.making_folder(tmp_path / "folder") as late:
        (late / "late").touch()
        with atomic.making_folder(tmp_path / "folder") as early:
            (early / "early").touch()
    assert os.listdir(tmp_path / "folder") == ["early"]
    assert os.listdir(tmp_path) == ["folder"]


def test_what_a_killed_writer_leaves_is_seen_as_such_and_swept(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITE, str(tmp_path)]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "writing\n"
    assert atomic.sweep(tmp_path) == []  # its writer lives
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    (tmp_path / ".unrelated.partial").touch()
    assert not (tmp_path / "file").exists()
    assert not (tmp_path / "folder").exists()
    assert len(atomic.sweep(tmp_path)) == 2
    assert os.listdir(tmp_path) == [".unrelated.partial"]


def test_another_machines_leftovers_are_swept_by_age_only(tmp_path: Path) -> None:
    other = tmp_path / ".file.0123abcd-999999.89abcdef.partial"
    other.touch()
    assert atomic.sweep(tmp_path) == []
    long_ago = time.time() - 2 * atomic.LEFTOVER_AGE_S
    os.utime(other, (long_ago, long_ago))
    assert atomic.sweep(tmp_path) == [other]
    assert atomic.sweep(tmp_path / "nowhere") == []
