"""Push here, pull there: over S3, HTTP and a shared folder, each a real one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import msgspec
import pytest
from store_fakes import HERE, MakeBundle, WebState
from typer.testing import CliRunner

from compilot.artifacts import store
from compilot.artifacts.bundle_trust import Trust
from compilot.artifacts.signing import generate_key
from compilot.artifacts.store import fetching
from compilot.artifacts.store.gc import find_garbage
from compilot.artifacts.store.layout import OBJECTS
from compilot.artifacts.store.remote import Remote
from compilot.cli.main import app
from compilot.errors import BundleError, InputError, NoneFits, StoreError, UntrustedBundle

run = CliRunner()


def test_a_bundle_goes_to_s3_and_comes_back(make_bundle: MakeBundle, s3: str, tmp_path: Path) -> None:
    bundle = make_bundle("net", size=200_000)
    assert not store.push(bundle, s3).was_there
    assert store.push(bundle, s3).was_there  # the same bytes are pushed once
    pulled = store.pull(s3, tmp_path / "out", HERE)
    assert pulled.path.read_bytes() == bundle.read_bytes()
    assert pulled.fit.unproven == ()
    assert store.pull(s3, tmp_path / "out", HERE).transfer is None  # there already


def test_the_one_that_fits_is_pulled_from_s3(make_bundle: MakeBundle, s3: str, tmp_path: Path) -> None:
    wide = make_bundle("wide", cpu_isa=("avx2", "avx512_vnni"), created="2026-03-01T00:00:00+00:00")
    plain = make_bundle("plain", threads=4)
    for bundle in (wide, plain):
        store.push(bundle, s3)
    pulled = store.pull(s3, tmp_path / "out", HERE)
    assert pulled.path.read_bytes() == plain.read_bytes()
    assert [difference.field for difference in pulled.fit.unproven] == ["machine.threads"]


def test_an_unfit_machine_hears_why(make_bundle: MakeBundle, s3: str, tmp_path: Path) -> None:
    store.push(make_bundle("wide", cpu_isa=("avx2", "avx512_vnni")), s3)
    with pytest.raises(NoneFits, match="none fits: needs avx512_vnni, this has avx2;"):
        store.pull(s3, tmp_path / "out", HERE)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_many_pushes_at_once_do_not_lose_each_other(make_bundle: MakeBundle, s3: str) -> None:
    bundles = [make_bundle(f"net{number}", threads=number + 1) for number in range(4)]
    threads = [threading.Thread(target=store.push, args=(bundle, s3)) for bundle in [*bundles, *bundles]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.listing(Remote(s3)).entries) == 4


@pytest.mark.slow
def test_gc_on_s3_removes_what_is_damaged_and_keeps_the_rest(make_bundle: MakeBundle, s3: str) -> None:
    good, bad = (store.push(make_bundle(name), s3).entry for name in ("good", "bad"))
    Remote(s3).put_bytes(bad.object_name, b"half")
    with pytest.raises(StoreError, match="damaged: 4 bytes instead of"):
        store.push(Path(make_bundle("other").parent / "bad.cpbundle"), s3)
    shown = run.invoke(app, ["store", "gc", s3, "--dry-run"])
    assert f"would remove {bad.object_name}: it has 4 bytes" in shown.stdout
    assert run.invoke(app, ["store", "gc", s3]).exit_code == 0
    assert store.listing(Remote(s3)).entries == (good,)
    assert list(Remote(s3).sizes(OBJECTS)) == [good.object_name]


def test_a_bundle_goes_to_sftp_and_comes_back(make_bundle: MakeBundle, sftp: str, tmp_path: Path) -> None:
    bundle = make_bundle("net", size=200_000)
    assert not store.push(bundle, sftp).was_there
    assert store.push(bundle, sftp).was_there
    assert store.pull(sftp, tmp_path / "out", HERE).path.read_bytes() == bundle.read_bytes()
    assert not any((tmp_path / "served" / "bundles" / "uploads").iterdir())
    assert find_garbage(Remote(sftp)) == []
    (tmp_path / ".ssh" / "known_hosts").write_text("")
    with pytest.raises(StoreError, match=r"user:\*\*\*@.* is not in known_hosts with this key; connect to it once"):
        store.pull(sftp, tmp_path / "out", HERE)


def test_a_web_server_shows_what_was_pushed_to_its_folder(
    make_bundle: MakeBundle, web: WebState, tmp_path: Path
) -> None:
    bundle = make_bundle("net", size=300_000)
    store.push(bundle, str(tmp_path / "served"))
    for ranges in (True, False):
        web.ranges = ranges
        pulled = store.pull(web.url, tmp_path / f"out-{ranges}", HERE)
        assert pulled.path.read_bytes() == bundle.read_bytes()
    with pytest.raises(StoreError, match="can only be read"):
        store.push(bundle, web.url)


def test_a_broken_download_goes_on_where_it_stopped(
    make_bundle: MakeBundle, web: WebState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "CHUNK", 50_000)
    monkeypatch.setattr(fetching, "FIRST_PAUSE_S", 0.0)
    bundle = make_bundle("net", size=300_000)
    store.push(bundle, str(tmp_path / "served"))
    size = bundle.stat().st_size
    web.left_bytes = 170_000
    with pytest.raises(StoreError, match=r"broke off at \d+ of \d+ bytes .*run the same command again"):
        store.pull(web.url, tmp_path / "out.cpbundle", HERE)
    assert not (tmp_path / "out.cpbundle").exists()
    web.left_bytes = None
    before = web.sent_bytes
    pulled = store.pull(web.url, tmp_path / "out.cpbundle", HERE)
    assert pulled.path.read_bytes() == bundle.read_bytes()
    assert pulled.transfer is not None
    assert pulled.transfer.resumed_bytes >= 100_000
    assert web.sent_bytes - before < size  # the first part was not sent again
    assert not list(tmp_path.glob(".*"))  # nothing is left behind


def test_a_damaged_leftover_is_thrown_away(make_bundle: MakeBundle, tmp_path: Path) -> None:
    bundle = make_bundle("net", size=100_000)
    entry = store.push(bundle, str(tmp_path / "store")).entry
    leftover = tmp_path / f".{entry.sha256[:32]}.download"
    leftover.write_bytes(b"x" * 5000)
    leftover.chmod(0o600)
    assert store.pull(str(tmp_path / "store"), tmp_path / "out", HERE).path.read_bytes() == bundle.read_bytes()


@pytest.mark.parametrize("where", ["first", "middle", "last"])
def test_a_damaged_object_is_refused_by_its_digest(make_bundle: MakeBundle, tmp_path: Path, where: str) -> None:
    url = str(tmp_path / "store")
    entry = store.push(make_bundle("net"), url).entry
    path = tmp_path / "store" / entry.object_name
    data = bytearray(path.read_bytes())
    data[{"first": 0, "middle": len(data) // 2, "last": -1}[where]] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreError, match="is damaged: its digest is not the one in its name"):
        store.pull(url, tmp_path / "out", HERE)
    assert not (tmp_path / "out").exists()
    removed = json.loads(run.invoke(app, ["store", "gc", url, "--verify", "--json"]).stdout)
    assert {one["name"] for one in removed} == {entry.object_name, entry.index_name, *entry.names}


def test_an_index_entry_that_lies_is_refused(make_bundle: MakeBundle, tmp_path: Path) -> None:
    url = str(tmp_path / "store")
    true = store.push(make_bundle("wide", cpu_isa=("avx2", "avx512f")), url).entry
    machine = msgspec.structs.replace(true.fingerprint.machine, cpu_isa=("avx2",))
    lie = msgspec.structs.replace(true, fingerprint=msgspec.structs.replace(true.fingerprint, machine=machine))
    Remote(url).put_bytes(lie.index_name, msgspec.json.encode(lie))
    with pytest.raises(StoreError, match="is not about its bundle"):
        store.pull(url, tmp_path / "out", HERE)
    Remote(url).put_bytes(lie.index_name, msgspec.json.encode(true))
    found = store.listing(Remote(url))
    assert found.entries == (true,)
    assert "not about what its name says" in found.problems[0]


def test_signed_bundles_are_taken_with_a_trusted_key_only(make_bundle: MakeBundle, tmp_path: Path) -> None:
    url = str(tmp_path / "store")
    public = generate_key(tmp_path / "key").path
    assert public is not None
    store.push(make_bundle("signed", key=tmp_path / "key"), url)
    with pytest.raises(UntrustedBundle, match="not trusted"):
        store.pull(url, tmp_path / "out", HERE)
    assert not (tmp_path / "out").exists()
    assert store.pull(url, tmp_path / "out", HERE, trust=Trust(keys=(public,))).signed_by is not None


def test_the_list_shows_who_signed(make_bundle: MakeBundle, tmp_path: Path) -> None:
    url = str(tmp_path / "store")
    key = generate_key(tmp_path / "key")
    signed = store.push(make_bundle("signed", key=tmp_path / "key"), url).entry
    plain = store.push(make_bundle("plain"), url).entry
    lines = {line[:12]: line for line in run.invoke(app, ["store", "ls", url]).stdout.splitlines()}
    assert lines[signed.sha256[:12]].endswith(f", signed by {key.key_id}")
    assert lines[plain.sha256[:12]].endswith(", not signed")
    found = json.loads(run.invoke(app, ["store", "ls", url, "--json"]).stdout)
    assert {one["sha256"]: one["signed_by"] for one in found} == {signed.sha256: key.key_id, plain.sha256: ""}


def test_the_list_of_a_folder_that_is_not_there_says_so(tmp_path: Path) -> None:
    for url in (str(tmp_path / "none"), f"file://{tmp_path}/none"):
        missing = run.invoke(app, ["store", "ls", url])
        assert missing.exit_code == 2
        assert "none does not exist; check its name" in missing.stderr
    (tmp_path / "empty").mkdir()
    assert run.invoke(app, ["store", "ls", str(tmp_path / "empty")]).stdout == "no bundles.\n"


def test_an_entry_that_does_not_tell_who_signed_is_shown_without(make_bundle: MakeBundle, tmp_path: Path) -> None:
    url = str(tmp_path / "store")
    entry = store.push(make_bundle("net"), url).entry
    Remote(url).put_bytes(entry.index_name, msgspec.json.encode(msgspec.structs.replace(entry, signed_by=None)))
    assert "signed" not in run.invoke(app, ["store", "ls", url]).stdout


def test_one_bundle_is_removed_by_its_digest(make_bundle: MakeBundle, tmp_path: Path) -> None:
    url = str(tmp_path / "store")
    gone, stays = (store.push(make_bundle(name), url).entry for name in ("gone", "stays"))
    done = run.invoke(app, ["store", "rm", url, gone.sha256[:12]])
    assert done.exit_code == 0
    assert done.stdout.startswith(f"removed: {gone.sha256[:12]}  Net ")
    assert store.listing(Remote(url)).entries == (stays,)
    assert list(Remote(url).sizes(OBJECTS)) == [stays.object_name]
    assert run.invoke(app, ["store", "rm", url, "Net"]).exit_code == 0  # the name will do for the only one
    assert store.listing(Remote(url)).entries == ()


def test_nothing_is_removed_by_guessing(make_bundle: MakeBundle, tmp_path: Path) -> None:
    url = str(tmp_path / "store")
    pushed = [store.push(make_bundle(name), url).entry for name in ("one", "two")]
    several = run.invoke(app, ["store", "rm", url, "Net"])
    assert several.exit_code == 2
    assert all(f"{entry.sha256[:12]} (Net)" in several.stderr for entry in pushed)
    assert "write more of the digest. Nothing was removed." in several.stderr
    for short in (pushed[0].sha256[:3], pushed[0].model_id, "Other"):
        assert f"has no bundle '{short}'" in run.invoke(app, ["store", "rm", url, short]).stderr
    assert len(store.listing(Remote(url)).entries) == 2


def test_an_object_that_another_entry_names_stays(make_bundle: MakeBundle, tmp_path: Path) -> None:
    url = str(tmp_path / "store")
    entry = store.push(make_bundle("net"), url).entry
    Remote(url).put_bytes(f"index/{'a' * 16}/{'b' * 16}/{entry.sha256}.json", b'{"schema": 99}')
    assert run.invoke(app, ["store", "rm", url, entry.sha256]).exit_code == 0
    assert list(Remote(url).sizes(OBJECTS)) == [entry.object_name]


def test_a_web_server_removes_nothing(make_bundle: MakeBundle, web: WebState, tmp_path: Path) -> None:
    entry = store.push(make_bundle("net"), str(tmp_path / "served")).entry
    refused = run.invoke(app, ["store", "rm", web.url, entry.sha256])
    assert (refused.exit_code, "can only be read" in refused.stderr) == (2, True)


def test_an_unsigned_bundle_is_pulled_with_a_warning_or_not_at_all(make_bundle: MakeBundle, tmp_path: Path) -> None:
    url = str(tmp_path / "store")
    store.push(make_bundle("net"), url)
    with pytest.raises(UntrustedBundle, match="signature is required"):
        store.pull(url, tmp_path / "out", HERE, trust=Trust(require_signature=True))
    assert store.pull(url, tmp_path / "out", HERE).signed_by is None


def test_a_newer_unsigned_bundle_does_not_hide_a_signed_one(
    make_bundle: MakeBundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from compilot.identity import machine

    monkeypatch.setattr(machine, "machine_fingerprint", lambda: HERE)
    url, out = str(tmp_path / "store"), tmp_path / "out"
    out.mkdir()
    generate_key(tmp_path / "key")
    signed = store.push(make_bundle("signed", key=tmp_path / "key"), url).entry
    unsigned = store.push(make_bundle("unsigned", created="2026-02-01"), url).entry
    strict = ["pull", url, "-o", str(out), "--require-signature"]
    done = run.invoke(app, [*strict, "--key", str(tmp_path / "key.pub"), "--json"])
    assert json.loads(done.stdout)["sha256"] == signed.sha256
    name = f"bundle {unsigned.sha256[:12]} in {url}"
    assert f"skipped: {name} is not loaded: it is not signed, and a signature is required" in done.stderr
    assert os.listdir(out) == ["Net.cpbundle"]


def test_what_is_refused_leaves_nothing_behind(make_bundle: MakeBundle, tmp_path: Path) -> None:
    url, out = str(tmp_path / "store"), tmp_path / "out"
    old, new = (store.push(make_bundle(day, created=day), url).entry for day in ("2026-01-01", "2026-01-02"))
    with pytest.raises(UntrustedBundle) as refusal:
        store.pull(url, out / "net", HERE, trust=Trust(require_signature=True))
    assert str(refusal.value).startswith(f"bundle {new.sha256[:12]} in {url} is not loaded")
    assert str(refusal.value).endswith("Nor is any other that fits (1).")
    assert old.sha256[:12] not in str(refusal.value)
    assert os.listdir(out) == []


def test_entries_of_an_older_compilot_have_the_first_bundle_schema_until_they_are_pushed_again(
    make_bundle: MakeBundle, tmp_path: Path
) -> None:
    url = str(tmp_path / "store")
    entry = store.push(make_bundle("net"), url).entry
    older = {name: value for name, value in msgspec.to_builtins(entry).items() if name != "bundle_schema"}
    Remote(url).put_bytes(entry.index_name, msgspec.json.encode(older))
    with pytest.raises(NoneFits, match="none fits: has bundle schema 1, this compilot reads"):
        store.pull(url, tmp_path / "out", HERE)
    assert store.push(tmp_path / "net.cpbundle", url).was_there
    assert store.pull(url, tmp_path / "out", HERE).fit.entry == entry


def test_which_model_must_be_said_where_there_are_several(make_bundle: MakeBundle, tmp_path: Path) -> None:
    url = str(tmp_path / "store")
    one, two = (store.push(make_bundle(name, label=name), url).entry for name in ("One", "Two"))
    with pytest.raises(InputError, match=rf"say which model: One \({one.model_id}\), Two"):
        store.pull(url, tmp_path / "out", HERE)
    assert store.pull(url, tmp_path / "out", HERE, two.model_id[:8]).fit.entry == two
    assert store.pull(url, tmp_path / "out", HERE, "One").fit.entry == one
    with pytest.raises(NoneFits, match="no bundle of that model; it has One"):
        store.pull(url, tmp_path / "out", HERE, "Three")


def test_a_model_of_ones_own_gets_the_bundle_with_its_weights(make_bundle: MakeBundle, tmp_path: Path) -> None:
    url = str(tmp_path / "store")
    old, new = (store.push(make_bundle(name, weights=name * 64), url).entry for name in ("a", "b"))
    model = new.fingerprint.model
    assert store.pull(url, tmp_path / "out", HERE, model).fit.entry == new
    trained = msgspec.structs.replace(model, weights_sha256="c" * 64)
    with pytest.raises(NoneFits, match="is for another model: the weight values frozen into the plan changed"):
        store.pull(url, tmp_path / "out", HERE, trained)
    assert old != new


def test_a_model_of_ones_own_is_found_among_others_of_its_class(make_bundle: MakeBundle, tmp_path: Path) -> None:
    url = str(tmp_path / "store")
    mine, _ = (store.push(make_bundle(name, structure=name * 64), url).entry for name in ("a", "b"))
    assert store.pull(url, tmp_path / "out", HERE, mine.fingerprint.model).fit.entry == mine
    third = msgspec.structs.replace(mine.fingerprint.model, structure_sha256="c" * 64)
    with pytest.raises(NoneFits, match="is for another model: the model's structure"):
        store.pull(url, tmp_path / "out", HERE, third)


def test_of_two_fine_tunes_the_newest_is_taken_or_the_one_that_is_named(
    make_bundle: MakeBundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from compilot.identity import machine

    monkeypatch.setattr(machine, "machine_fingerprint", lambda: HERE)
    url = str(tmp_path / "store")
    new = store.push(make_bundle("new", weights="b" * 64, threads=8, created="2026-02-01"), url).entry
    old = store.push(make_bundle("old", weights="a" * 64, created="2026-01-01"), url).entry
    assert f"({old.model_id}, weights aaaaaaaaaaaa)" in run.invoke(app, ["store", "ls", url]).stdout
    pulled = run.invoke(app, ["pull", url, "-o", str(tmp_path / "out"), "--json"])
    assert json.loads(pulled.stdout)["sha256"] == new.sha256
    assert (
        "this one has bbbbbbbbbbbb, the newest. Others: aaaaaaaaaaaa; to have one of them, name it as the model"
        in pulled.stderr
    )
    for name in ("aaaaaaaa", old.sha256[:12]):
        chosen = store.pull(url, tmp_path / "out", HERE, name)
        assert (chosen.fit.entry, chosen.fit.note) == (old, "")


def test_gc_keeps_the_newest_of_each_fine_tune(make_bundle: MakeBundle, tmp_path: Path) -> None:
    url = str(tmp_path / "store")
    days = [("a", "2026-01-01"), ("b", "2026-01-02"), ("a", "2026-01-03")]
    pushed = [store.push(make_bundle(day, weights=name * 64, created=day), url).entry for name, day in days]
    assert {one.name for one in find_garbage(Remote(url), keep=1)} == {pushed[0].index_name, pushed[0].object_name}


def test_gc_leaves_what_a_newer_compilot_put_there(make_bundle: MakeBundle, tmp_path: Path) -> None:
    url, names = str(tmp_path / "store"), ("schema", "field", "place", "broken")
    schema, field, place, broken = (store.push(make_bundle(name), url).entry for name in names)
    remote = Remote(url)
    remote.put_bytes(schema.index_name, msgspec.json.encode({"schema": 2, "what": {"is": "new"}}))
    remote.put_bytes(field.index_name, msgspec.json.encode(msgspec.to_builtins(field) | {"sparkle": 1}))
    remote.delete([place.index_name])
    remote.put_bytes(f"index/by-date/2027/{place.sha256}.json", b"{}")
    remote.put_bytes(broken.index_name, b"no JSON at all")
    for name in remote.sizes(OBJECTS):
        os.utime(tmp_path / "store" / name, (0, 0))  # long ago: no push is under way
    assert [one.name for one in find_garbage(remote, keep=1, verify=True)] == [broken.index_name]
    problems = store.listing(remote).problems
    assert len(problems) == 3
    assert any("of another version of compilot: Object contains unknown field `sparkle`" in one for one in problems)


def test_a_damaged_bundle_is_not_pushed(make_bundle: MakeBundle, tmp_path: Path) -> None:
    bundle = make_bundle("net", size=5000)
    data = bytearray(bundle.read_bytes())
    data[data.index(b"artifacts/model.bin") + 3000] ^= 1
    bundle.write_bytes(data)
    with pytest.raises(BundleError, match=r"artifacts/model\.bin"):
        store.push(bundle, str(tmp_path / "store"))
    assert not (tmp_path / "store").exists()


def test_a_bundle_with_a_file_too_many_is_not_pushed(make_bundle: MakeBundle, tmp_path: Path) -> None:
    bundle = make_bundle("net")
    with zipfile.ZipFile(bundle, "a") as archive:
        archive.writestr("artifacts/more.bin", b"nobody knows this one")
    with pytest.raises(BundleError, match=r"artifacts/more\.bin is not in the manifest"):
        store.push(bundle, str(tmp_path / "store"))
    assert not (tmp_path / "store").exists()


def test_a_folder_that_does_not_exist_is_not_called_empty(tmp_path: Path) -> None:
    missing = tmp_path / "stroe"
    for url in (str(missing), f"file://{missing}"):
        with pytest.raises(StoreError, match=r"^the folder .*stroe does not exist; check its name") as refused:
            store.pull(url, tmp_path / "out", HERE)
        assert "holds no bundles" not in str(refused.value)
    assert not missing.exists()
    missing.mkdir()
    with pytest.raises(StoreError, match="stroe holds no bundles"):
        store.pull(str(missing), tmp_path / "out", HERE)


def test_places_that_are_no_store_say_so(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="holds no bundles; put one there with 'compilot push'"):
        store.pull(str(tmp_path), tmp_path / "out", HERE)
    with pytest.raises(StoreError, match="Protocol not known"):
        store.pull("nonsense://a", tmp_path / "out", HERE)
    with pytest.raises(StoreError, match="cannot be listed"):
        store.pull("http://127.0.0.1:1/store", tmp_path / "out", HERE)


def test_passwords_are_not_shown() -> None:
    with pytest.raises(StoreError) as caught:
        Remote("http://user:secret@127.0.0.1:1/store").sizes("index")
    assert "user:***@127.0.0.1" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_the_commands_round_trip(make_bundle: MakeBundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from compilot.identity import machine

    monkeypatch.setattr(machine, "machine_fingerprint", lambda: HERE)
    url = str(tmp_path / "store")
    pushed = json.loads(run.invoke(app, ["push", str(make_bundle("net")), url, "--json"]).stdout)
    assert pushed["model_id"] in run.invoke(app, ["store", "ls", url]).stdout
    (tmp_path / "out").mkdir()
    pulled = run.invoke(app, ["pull", url, "-o", str(tmp_path / "out"), "--json"])
    assert json.loads(pulled.stdout)["path"] == str(tmp_path / "out" / "Net.cpbundle")
    assert "not signed: whoever can write to this store" in pulled.stderr


PULL = """
import sys
from pathlib import Path
import msgspec
from compilot.artifacts import store
from compilot.records import MachineFingerprint
store.pull(sys.argv[1], Path(sys.argv[2]), msgspec.json.decode(sys.argv[3], type=MachineFingerprint))
"""


def test_many_processes_pull_to_one_place_at_once(make_bundle: MakeBundle, tmp_path: Path) -> None:
    bundle = make_bundle("net", size=2_000_000)
    store.push(bundle, str(tmp_path / "store"))
    command = [
        sys.executable,
        "-c",
        PULL,
        str(tmp_path / "store"),
        str(tmp_path / "out"),
        msgspec.json.encode(HERE).decode(),
    ]
    pullers = [subprocess.Popen(command) for _ in range(4)]
    assert [puller.wait() for puller in pullers] == [0] * 4
    assert (tmp_path / "out").read_bytes() == bundle.read_bytes()
