"""Bundles as files: what is refused before anything of it is used. No engine, no torch worker."""

from __future__ import annotations

import hashlib
import mmap
import os
import random
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import msgspec
import pytest

from compilot.artifacts import unpack
from compilot.artifacts.bundle import DIGEST, MANIFEST, Bundle, check_files, is_bundle, open_bundle, read_manifest
from compilot.artifacts.bundle_trust import Trust
from compilot.artifacts.container import Folder
from compilot.artifacts.frame import member_span
from compilot.artifacts.planfile import save_plan
from compilot.errors import BundleError, EnvironmentProblem
from compilot.files import digests
from compilot.packing.writing import publish, seal
from compilot.records import BUNDLE_SCHEMA, ArtifactFile, Manifest, Plan

TRUST = Trust()
PIECE = 16_384  # so that the model of these tests has five


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "PIECE_BYTES", PIECE)


@pytest.fixture
def staged(tmp_path: Path, plan: Plan, bare_manifest: Manifest) -> Path:
    folder = tmp_path / "staged"
    (folder / "artifacts/0").mkdir(parents=True)
    (folder / "artifacts/0/model.bin").write_bytes(random.Random(0).randbytes(70_000))
    (folder / "artifacts/0/structure.json").write_text("{}")
    save_plan(plan, folder / "plan.json")
    seal(folder, bare_manifest, None)
    return folder


@pytest.fixture
def bundle(staged: Path, tmp_path: Path) -> Path:
    path = tmp_path / "net.cpbundle"
    publish(staged, path, as_folder=False)
    return path


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COMPILOT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path / "cache"


def use(path: Path) -> dict[str, bytes]:
    """What a process would get to see of a bundle."""
    with open_bundle(path, TRUST) as opened:
        folder = unpack.unpacked(opened)
        return {file.name: (folder / file.name).read_bytes() for file in opened.manifest.files}


def test_what_goes_in_comes_out_of_a_file_and_of_a_folder(staged: Path, bundle: Path, tmp_path: Path) -> None:
    publish(staged, tmp_path / "net", as_folder=True)
    assert is_bundle(bundle)
    assert is_bundle(tmp_path / "net")
    assert not is_bundle(staged / "plan.json")
    from_file = use(bundle)
    assert from_file == use(tmp_path / "net")
    assert from_file["artifacts/0/model.bin"] == (staged / "artifacts/0/model.bin").read_bytes()
    assert read_manifest(bundle).label == "Net"


def test_a_folder_packed_with_a_loose_umask_is_loaded(staged: Path, tmp_path: Path) -> None:
    before = os.umask(0o002)  # as many systems have it
    try:
        publish(staged, tmp_path / "net", as_folder=True)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "net/artifacts/0").stat().st_mode) == 0o755
    assert use(tmp_path / "net")


def test_the_same_content_gives_the_same_bytes(staged: Path, bundle: Path, tmp_path: Path) -> None:
    publish(staged, tmp_path / "again.cpbundle", as_folder=False)
    assert (tmp_path / "again.cpbundle").read_bytes() == bundle.read_bytes()


def test_a_bundle_cut_off_anywhere_is_refused_by_name(bundle: Path) -> None:
    whole = bundle.read_bytes()
    for length in [0, 1, 4, 30, len(whole) - 1, *random.Random(1).sample(range(len(whole)), 40)]:
        bundle.write_bytes(whole[:length])
        with pytest.raises(BundleError, match=r"net\.cpbundle"):
            use(bundle)


def flipped(bundle: Path, whole: bytes, at: int, bit: int) -> Path:
    bundle.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << bit)]) + whole[at + 1 :])
    return bundle


def spots(size: int, seed: int, count: int) -> list[tuple[int, int]]:
    """Places of bits: all over the file, and as many in its last 600 bytes, where the directory ends."""
    draw = random.Random(seed)
    anywhere = [(draw.randrange(size), draw.randrange(8)) for _ in range(count)]
    return anywhere + [(size - 1 - draw.randrange(600), draw.randrange(8)) for _ in range(count)]


def test_a_flipped_bit_anywhere_is_refused_at_the_first_start(bundle: Path) -> None:
    whole, right = bundle.read_bytes(), use(bundle)
    for at, bit in spots(len(whole), seed=2, count=150):
        shutil.rmtree(os.environ["COMPILOT_CACHE"], ignore_errors=True)
        with pytest.raises(BundleError, match=r"net\.cpbundle"):
            use(flipped(bundle, whole, at, bit))
    bundle.write_bytes(whole)
    assert use(bundle) == right


def test_later_starts_refuse_every_flipped_bit_but_those_in_copies_that_they_do_not_read(bundle: Path) -> None:
    """What a later start uses are the unpacked files, each compared with its digest; the packed ones are not read."""
    whole, right = bundle.read_bytes(), use(bundle)
    refused, unread = 0, 0
    for at, bit in spots(len(whole), seed=3, count=150):
        if is_packed_copy(bundle, at):
            assert use(flipped(bundle, whole, at, bit)) == right
            unread += 1
        else:
            with pytest.raises(BundleError, match=r"net\.cpbundle"):
                use(flipped(bundle, whole, at, bit))
            refused += 1
        bundle.write_bytes(whole)
    assert refused > 75  # most of the last 600 bytes are the directory
    assert unread > 100
    with pytest.raises(BundleError, match=r"model\.bin"), open_bundle(flipped_data(bundle), TRUST) as opened:
        check_files(opened.container, opened.manifest)  # what 'compilot verify' does finds those too


def is_packed_copy(bundle: Path, at: int) -> bool:
    """Whether a byte is data of a file that the first start unpacks; the manifest and its digest are always read."""
    with zipfile.ZipFile(bundle) as archive, bundle.open("rb") as file:
        spans = {info.filename: member_span(file.fileno(), info) for info in archive.infolist()}
    return any(s.start <= at < s.start + s.size for name, s in spans.items() if name not in (MANIFEST, DIGEST))


def flipped_data(bundle: Path) -> Path:
    whole = bundle.read_bytes()
    at = next(at for at in range(len(whole) // 2, len(whole)) if is_packed_copy(bundle, at))
    return flipped(bundle, whole, at, 0)


def test_a_bundle_without_a_digest_of_its_frame_is_loaded_as_before(bundle: Path, tmp_path: Path) -> None:
    """Of an earlier version, or zipped again by hand."""
    plain = tmp_path / "plain.cpbundle"
    with zipfile.ZipFile(bundle) as source, zipfile.ZipFile(plain, "w") as copy:
        for info in source.infolist():
            copy.writestr(zipfile.ZipInfo(info.filename), source.read(info))
    assert use(plain) == use(bundle)


@pytest.mark.parametrize("tail", [b"\0", b"more bytes", b"PK\x05\x06" + bytes(18)])
def test_bytes_behind_the_end_are_refused(bundle: Path, tail: bytes) -> None:
    with bundle.open("ab") as file:
        file.write(tail)
    with pytest.raises(BundleError, match=r"net\.cpbundle"):
        use(bundle)


def test_bytes_before_the_first_member_are_refused(bundle: Path) -> None:
    """Readers of zip files skip them."""
    bundle.write_bytes(b"#!/bin/sh\n" + bundle.read_bytes())
    with pytest.raises(BundleError, match="directory of files is damaged"):
        use(bundle)


@pytest.mark.parametrize("name", ["../out", "/etc/out", "a/../../out", "a\\..\\out", "./x", "a//b"])
def test_a_name_that_leads_out_is_refused_whole(bundle: Path, name: str) -> None:
    with zipfile.ZipFile(bundle, "a") as archive:
        archive.writestr(name, b"x")
    with pytest.raises(BundleError, match="has a name that may lead out of the bundle"):
        use(bundle)


def test_links_duplicates_compressed_and_unknown_members_are_refused(bundle: Path, tmp_path: Path) -> None:
    link = zipfile.ZipInfo("artifacts/0/link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    squeezed = zipfile.ZipInfo("artifacts/0/squeezed")
    squeezed.compress_type = zipfile.ZIP_DEFLATED
    for added, why in [
        (link, "link"),
        (squeezed, "compressed"),
        (zipfile.ZipInfo("plan.json"), "twice"),
        (zipfile.ZipInfo("more.so"), "not in the manifest"),
    ]:
        spoiled = tmp_path / "spoiled.cpbundle"
        shutil.copy(bundle, spoiled)
        with zipfile.ZipFile(spoiled, "a") as archive, pytest.warns() if why == "twice" else _quiet():
            archive.writestr(added, b"/etc/passwd" * 9)
        with pytest.raises(BundleError, match=why):
            use(spoiled)


class _quiet:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


def test_a_folder_with_a_link_or_a_changed_file_is_refused(staged: Path, tmp_path: Path) -> None:
    for spoil, why in [
        (lambda folder: (folder / "link").symlink_to("/etc"), "'link' is a link"),
        (lambda folder: (folder / "artifacts/0/model.bin").write_bytes(b"other"), r"model\.bin has 5 bytes instead of"),
        (lambda folder: (folder / "artifacts/0/model.bin").unlink(), r"model\.bin.* missing"),
        (lambda folder: (folder / "more").write_text("x"), "'?more'? .*not in the manifest"),
    ]:
        folder = tmp_path / "folder"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(staged, folder)
        spoil(folder)
        with pytest.raises(BundleError, match=why):
            use(folder)


def test_damage_that_keeps_the_size_is_seen_by_the_digest(staged: Path) -> None:
    model = staged / "artifacts/0/model.bin"
    model.write_bytes(bytes(model.stat().st_size))
    with pytest.raises(BundleError, match=r"model\.bin does not match its digest"):
        use(staged)


def bad_disk(*_: object) -> int:
    raise OSError(5, "Input/output error")


def never_mapped(*_: object, **__: object) -> None:
    pytest.fail("mapped before it was read: a signal would end it")


def test_a_file_that_the_disk_does_not_give_is_refused(staged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pread", bad_disk)
    monkeypatch.setattr(mmap, "mmap", never_mapped)
    with pytest.raises(BundleError, match=r"cannot be read .*Input/output error"):
        use(staged)


def test_an_unpacked_file_that_the_disk_does_not_give_is_unpacked_again(
    staged: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "_SMALL", 0)
    right, real, failed = use(bundle), os.sendfile, []

    def bad_once(*where: int) -> int:
        if failed:
            return real(*where)
        failed.append(where)
        return bad_disk()

    monkeypatch.setattr(os, "sendfile", bad_once)
    monkeypatch.setattr(digests, "usable_cores", lambda: 1)
    assert use(bundle) == right
    assert failed


@pytest.mark.parametrize("name", ["artifacts/0/model.bin/more", "x" * 256])
def test_names_that_no_folder_can_hold_refuse_the_bundle(staged: Path, tmp_path: Path, name: str) -> None:
    manifest = msgspec.json.decode((staged / MANIFEST).read_bytes(), type=Manifest)
    more = ArtifactFile(name=name, sha256="", size_bytes=0)
    raw = msgspec.json.encode(msgspec.structs.replace(manifest, files=(*manifest.files, more)))
    path = tmp_path / "odd.cpbundle"
    with zipfile.ZipFile(path, "w") as archive:
        for member in sorted(p for p in staged.rglob("*") if p.is_file() and p.name not in {MANIFEST, DIGEST}):
            archive.write(member, member.relative_to(staged))
        archive.writestr(name, b"")
        archive.writestr(MANIFEST, raw)
        archive.writestr(DIGEST, hashlib.sha256(raw).hexdigest())
    with pytest.raises(BundleError, match="cannot lie in one folder"):
        use(path)


def test_a_member_that_cannot_be_read_is_told_of_the_bundle_not_of_the_cache(
    staged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(self: Folder, name: str) -> BinaryIO:
        if name.endswith("model.bin"):
            raise PermissionError(13, "Permission denied", name)
        return real(self, name)

    real = Folder.open
    monkeypatch.setattr(Folder, "open", unreadable)
    with open_bundle(staged, TRUST) as opened, pytest.raises(BundleError, match=r"model\.bin cannot be read .*denied"):
        unpack.unpacked(opened._replace(changeable=True))  # so that it is copied first


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda raw: raw.replace(b'"schema": %d' % BUNDLE_SCHEMA, b'"schema": 99'), "it has bundle schema 99"),
        (
            lambda raw: raw.replace(b'"schema": %d' % BUNDLE_SCHEMA, b'"schema": 3, "old": 1'),
            f"it has bundle schema 3, this compilot reads {BUNDLE_SCHEMA}. Get it again, or pack it again.",
        ),
        (lambda raw: raw.replace(b'"label"', b'"lable"'), "unknown field `lable`"),
        (lambda raw: b"[" * 100_000, "Expected `object`"),
        (lambda raw: raw.replace(b"plan.json", b"../pl.json"), r"'\.\./pl\.json', which may lead out of the bundle"),
    ],
)
def test_a_manifest_that_is_none_is_refused(staged: Path, spoil: Callable[[bytes], bytes], why: str) -> None:
    raw = spoil((staged / MANIFEST).read_bytes())
    (staged / MANIFEST).write_bytes(raw)
    (staged / DIGEST).write_text(hashlib.sha256(raw).hexdigest())
    with pytest.raises(BundleError, match=why):
        use(staged)


def test_a_manifest_without_its_own_digest_is_refused(staged: Path) -> None:
    raw = (staged / MANIFEST).read_bytes()
    (staged / MANIFEST).write_bytes(raw.replace(b"Net", b"Not"))
    with pytest.raises(BundleError, match="does not match its digest"):
        use(staged)


def test_damage_in_the_cache_is_found_and_mended_from_the_bundle(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = use(bundle)
    with open_bundle(bundle, TRUST) as opened:
        place = unpack.unpacked(opened)
    (place / "artifacts/0/model.bin").write_bytes(b"rotten")
    there: list[bool] = []
    real = unpack._unpack

    def watched(opened: Bundle, folder: Path) -> None:
        real(opened, folder)
        there.append((place / unpack.READY).exists())

    monkeypatch.setattr(unpack, "_unpack", watched)
    assert use(bundle) == right
    assert there == [True]  # whoever uses the other files of it has them until the new ones are there
    assert not [p for p in place.parent.iterdir() if p.name.endswith(".partial")]


def test_a_check_that_this_process_cannot_make_says_nothing_about_the_files(
    bundle: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_more_files(path: Path) -> BinaryIO:
        raise OSError(24, "Too many open files", str(path))

    use(bundle)
    monkeypatch.setattr("compilot.artifacts.bundle.open_plain", no_more_files)
    monkeypatch.setattr(unpack, "_unpack", lambda *_: pytest.fail("it was replaced"))
    with pytest.raises(EnvironmentProblem, match=r"Too many open files.*ulimit"):
        use(bundle)


def test_the_cache_is_private_and_says_when_it_was_used(bundle: Path, own_cache: Path) -> None:
    use(bundle)
    assert stat.S_IMODE((own_cache / "bundles").stat().st_mode) == 0o700
    (entry,) = [p for p in (own_cache / "bundles").iterdir() if p.is_dir()]
    os.utime(entry / unpack.USED, (0, 0))
    use(bundle)
    assert (entry / unpack.USED).stat().st_mtime > 0


def test_many_threads_unpack_once_and_agree(staged: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacks: list[int] = []
    real = unpack._unpack

    def counted(opened: Bundle, folder: Path) -> None:
        unpacks.append(1)
        real(opened, folder)

    monkeypatch.setattr(unpack, "_unpack", counted)
    answers: list[dict[str, bytes]] = []
    threads = [threading.Thread(target=lambda: answers.append(use(bundle))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 8
    for answer in answers:
        assert answer == {name: (staged / name).read_bytes() for name in answer}
        assert "artifacts/0/model.bin" in answer
    assert sum(unpacks) == 1


def test_a_process_killed_while_unpacking_leaves_nothing_that_counts(bundle: Path) -> None:
    right = use(bundle)
    shutil.rmtree(os.environ["COMPILOT_CACHE"], ignore_errors=True)
    code = f"""
import os, signal
from pathlib import Path
from compilot.artifacts import bundle, unpack
from compilot.files import digests
from compilot.artifacts.bundle_trust import Trust
digests.PIECE_BYTES = {PIECE}
real, seen = bundle._unpack, []
def dying(container, folder, file, part):
    real(container, folder, file, part)
    seen.append(part)
    if len(seen) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
bundle._unpack = dying
with bundle.open_bundle(Path({str(bundle)!r}), Trust()) as opened:
    unpack.unpacked(opened)
"""
    run = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert run.returncode == -9, run.stderr
    home = Path(os.environ["COMPILOT_CACHE"]) / "bundles"
    assert [p for p in home.iterdir() if p.name.endswith(".partial")]
    assert use(bundle) == right
    assert not [p for p in home.iterdir() if p.name.endswith(".partial")]


def test_a_full_disk_is_one_clear_sentence(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(opened: Bundle, folder: Path) -> None:
        raise OSError(28, "No space left on device", str(folder / "model.bin"))

    monkeypatch.setattr(unpack, "_unpack", full)
    with pytest.raises(EnvironmentProblem, match="No space left on device; set COMPILOT_CACHE"):
        use(bundle)


@pytest.mark.parametrize("open_to_all", [True, False])
def test_a_full_or_open_cache_is_replaced_by_the_temporary_one(
    bundle: Path,
    own_cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    open_to_all: bool,
) -> None:
    real = unpack._unpack

    def full(opened: Bundle, folder: Path) -> None:
        if own_cache in folder.parents:
            raise OSError(28, "No space left on device", str(folder / "model.bin"))
        real(opened, folder)

    if open_to_all:
        (own_cache / "bundles").mkdir(parents=True)
        (own_cache / "bundles").chmod(0o777)
    else:
        monkeypatch.setattr(unpack, "_unpack", full)
    assert use(bundle)
    assert [p for p in (tmp_path / f"tmp/compilot-{os.getuid()}/bundles").iterdir() if p.is_dir()]
    assert ("others may write to it" if open_to_all else "No space left on device") in caplog.text


def test_a_missing_bundle_says_so(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="check the path"):
        use(tmp_path / "none.cpbundle")


def test_checking_reads_every_byte(bundle: Path) -> None:
    with open_bundle(bundle, TRUST) as opened:
        assert check_files(opened.container, opened.manifest) == sum(f.size_bytes for f in opened.manifest.files)
    assert msgspec.json.decode(msgspec.json.encode(opened.manifest), type=Manifest) == opened.manifest


CHURN = """
import sys
from pathlib import Path
from compilot.artifacts.bundle import open_bundle
from compilot.artifacts.unpack import unpacked
from compilot.artifacts.bundle_trust import Trust
from compilot.packing.writing import publish
from compilot.files import atomic
staged, out = Path(sys.argv[1]), Path(sys.argv[2])
print("ready", flush=True)
while True:
    publish(staged, out, as_folder=False)
    with open_bundle(out, Trust()) as bundle:
        atomic.remove(unpacked(bundle))
"""


@pytest.mark.slow
def test_packing_and_unpacking_killed_at_any_moment_leave_what_is_whole_or_nothing(
    staged: Path, tmp_path: Path
) -> None:
    out, draw = tmp_path / "packed.cpbundle", random.Random(3)
    whole = 0
    for at_s in (*(draw.uniform(0.0, 0.1) for _ in range(4)), None):
        process = subprocess.Popen([sys.executable, "-c", CHURN, str(staged), str(out)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        if at_s is not None:
            time.sleep(at_s)
        while at_s is None and not out.exists():  # so that there is something to look at, once at least
            assert process.poll() is None
            time.sleep(0.001)
        process.kill()
        process.communicate()
        if out.exists():
            assert use(out)["artifacts/0/model.bin"] == (staged / "artifacts/0/model.bin").read_bytes()
            whole += 1
    assert whole
