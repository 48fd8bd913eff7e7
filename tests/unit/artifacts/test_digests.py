"""Digests in pieces: the pieces are the file, whoever checks them has checked it."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from compilot.artifacts.bundle import check_unpacked
from compilot.engines.files import file_record
from compilot.errors import BundleError
from compilot.files import digests
from compilot.files.digests import FilePart, Span, digest_of, digest_read, parts_of, piece_digests, side_by_side
from compilot.records import ArtifactFile, Manifest

PIECE = 1000


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "PIECE_BYTES", PIECE)


def made(folder: Path, size: int) -> ArtifactFile:
    path = folder / "model.bin"
    path.write_bytes(random.Random(size).randbytes(size))
    return msgspec.structs.replace(file_record(path, path.name), pieces=piece_digests(path))


def checked(folder: Path, file: ArtifactFile, manifest: Manifest) -> None:
    check_unpacked(folder, msgspec.structs.replace(manifest, files=(file,)))


@pytest.mark.parametrize("size", [0, 1, PIECE, PIECE + 1, 3 * PIECE, 3 * PIECE + 7])
def test_parts_are_all_of_a_file(tmp_path: Path, size: int, bare_manifest: Manifest) -> None:
    file = made(tmp_path, size)
    parts = parts_of(file)
    whole = (tmp_path / "model.bin").read_bytes()
    assert b"".join(whole[part.start : part.start + part.size] for part in parts) == whole
    assert [part.sha256 for part in parts] == [
        hashlib.sha256(whole[part.start : part.start + part.size]).hexdigest() for part in parts
    ]
    assert len(parts) == max(1, -(-size // PIECE))
    checked(tmp_path, file, bare_manifest)


@pytest.mark.parametrize("at", [0, PIECE - 1, PIECE, 2 * PIECE + 500])
def test_a_flipped_bit_in_any_piece_is_found(tmp_path: Path, at: int, bare_manifest: Manifest) -> None:
    file = made(tmp_path, 2 * PIECE + 501)
    whole = bytearray((tmp_path / "model.bin").read_bytes())
    whole[at] ^= 4
    (tmp_path / "model.bin").write_bytes(whole)
    with pytest.raises(BundleError, match=r"model\.bin does not match its digest"):
        checked(tmp_path, file, bare_manifest)


@pytest.mark.parametrize("change", [b"", b"more", None])
def test_a_longer_or_shorter_file_is_found(tmp_path: Path, change: bytes | None, bare_manifest: Manifest) -> None:
    file = made(tmp_path, 3 * PIECE)
    path = tmp_path / "model.bin"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] if change is None else whole + change)
    if change == b"":
        checked(tmp_path, file, bare_manifest)
        return
    with pytest.raises(BundleError, match=r"model\.bin has \d+ bytes instead of 3000"):
        checked(tmp_path, file, bare_manifest)


@pytest.mark.parametrize("pieces", [1, 2, 4])
def test_pieces_that_are_not_the_file_are_refused(tmp_path: Path, pieces: int, bare_manifest: Manifest) -> None:
    file = made(tmp_path, 3 * PIECE)
    wrong = msgspec.structs.replace(file, pieces=(file.pieces * 2)[:pieces])
    with pytest.raises(BundleError, match="more or fewer pieces"):
        checked(tmp_path, wrong, bare_manifest)


@pytest.mark.parametrize(("start", "size"), [(0, 5), (1, 4096), (4095, 2), (4096, 4096), (5000, 0), (12_345, 70_000)])
def test_a_digest_of_bytes_in_the_middle(tmp_path: Path, start: int, size: int) -> None:
    data = random.Random(3).randbytes(100_000)
    (tmp_path / "file").write_bytes(data)
    with (tmp_path / "file").open("rb") as file:
        found = digest_of(Span(file.fileno(), start, size))
    assert found == hashlib.sha256(data[start : start + size]).hexdigest()


@pytest.mark.parametrize("size", [5, 100_000])  # read, and mapped
def test_bytes_that_are_not_there_are_an_error(tmp_path: Path, size: int) -> None:
    (tmp_path / "file").write_bytes(bytes(size))
    with (tmp_path / "file").open("rb") as file, pytest.raises(EOFError, match="ends too early"):
        digest_of(Span(file.fileno(), 0, size + 1))


def pieces_of(tmp_path: Path, count: int) -> list[tuple[ArtifactFile, FilePart]]:
    file = made(tmp_path, count * PIECE)
    return [(file, part) for part in parts_of(file)]


def test_pieces_are_worked_on_at_once_and_the_first_failure_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "usable_cores", lambda: 2)
    together = threading.Barrier(2, timeout=300)  # breaks, and fails the test, if one waits for the other's end
    side_by_side(lambda file, part: together.wait() and None, pieces_of(tmp_path, 2))

    def fails(file: ArtifactFile, part: FilePart) -> None:
        if part.start:
            raise ValueError(f"at {part.start}")

    with pytest.raises(ValueError, match="at 1000"):
        side_by_side(fails, pieces_of(tmp_path, 4))


def test_small_files_are_worked_on_together(tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []
    files = [ArtifactFile(name=str(number), sha256="", size_bytes=1) for number in range(600)]
    parts = [(file, part) for file in files for part in parts_of(file)]
    side_by_side(lambda file, part: seen.append((file.name, threading.get_ident())), parts)
    assert sorted(int(name) for name, _ in seen) == list(range(600))
    assert len(list(digests._batches(parts))) == 3


def test_a_process_that_may_start_no_thread_does_it_all_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_more(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    seen: list[int] = []
    monkeypatch.setattr(threading.Thread, "start", no_more)
    side_by_side(lambda file, part: seen.append(part.start), pieces_of(tmp_path, 3))
    assert seen == [0, PIECE, 2 * PIECE]


@pytest.mark.parametrize("size", [0, 5, 70_000, (1 << 20) + 3])
def test_reading_and_mapping_agree(tmp_path: Path, size: int) -> None:
    (tmp_path / "file").write_bytes(random.Random(4).randbytes(size + 10))
    with (tmp_path / "file").open("rb") as file:
        span = Span(file.fileno(), 7, size)
        assert digest_read(span) == digest_of(span)
        with pytest.raises(EOFError, match="ends too early"):
            digest_read(Span(file.fileno(), 7, size + 4))


SHORTENED = """
import os, sys, threading
from pathlib import Path
from compilot.files.digests import Span, digest_read
path = Path(sys.argv[1])
size = path.stat().st_size
file = path.open("rb")
ended = 0
for _ in range(40):
    os.truncate(path, size)
    shortener = threading.Timer(0.0005, os.truncate, (path, 0))
    shortener.start()
    try:
        digest_read(Span(file.fileno(), 0, size))
    except EOFError:
        ended += 1
    shortener.join()
print("ended", ended)
"""


def test_a_file_that_is_shortened_while_it_is_read_is_an_error_and_no_signal(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(64 << 20))
    run = subprocess.run([sys.executable, "-c", SHORTENED, path], check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout.split()[1]) > 0  # it really was too late sometimes
