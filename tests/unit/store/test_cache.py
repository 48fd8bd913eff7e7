"""The cache of unpacked bundles: listed, checked, pruned, and never under somebody's feet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from store_fakes import MakeBundle
from typer.testing import CliRunner

from compilot.artifacts import cache
from compilot.artifacts.bundle import open_bundle
from compilot.artifacts.bundle_trust import Trust
from compilot.artifacts.cache import READY, USED, CacheState, Stays
from compilot.artifacts.unpack import unpacked
from compilot.cli.main import app
from compilot.files import atomic
from compilot.files.locks import file_lock

run = CliRunner()
UNPACK = """
import sys
from pathlib import Path
from compilot.artifacts.bundle import open_bundle
from compilot.artifacts.unpack import unpacked
from compilot.artifacts.bundle_trust import Trust
with open_bundle(Path(sys.argv[1]), Trust()) as bundle:
    print(unpacked(bundle), flush=True)
sys.stdin.read()
"""
DAY_S = 86400


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COMPILOT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "bundles"


def unpack_elsewhere(bundle: Path, *, days_ago: float = 1) -> Path:
    """As another process does that has ended since."""
    command = [sys.executable, "-c", UNPACK, str(bundle)]
    shown = subprocess.run(command, input="", capture_output=True, text=True, check=True).stdout
    place = Path(shown.strip())
    used = time.time() - days_ago * DAY_S
    os.utime(place / USED, (used, used))
    return place


def test_what_was_unpacked_is_listed_the_last_used_one_first(make_bundle: MakeBundle, home: Path) -> None:
    old = unpack_elsewhere(make_bundle("old", label="Old"), days_ago=3)
    new = unpack_elsewhere(make_bundle("new", label="New"), days_ago=1)
    entries = cache.list_entries(home)
    assert [entry.path for entry in entries] == [new, old]
    assert [(entry.label, entry.engine, entry.state) for entry in entries] == [
        ("New", "openvino", CacheState.READY),
        ("Old", "openvino", CacheState.READY),
    ]
    shown = run.invoke(app, ["cache", "ls"]).stdout
    assert "used 3.0 days ago  Old on openvino: ready" in shown


def test_prune_keeps_the_most_recently_used_within_the_limit(make_bundle: MakeBundle, home: Path) -> None:
    places = [unpack_elsewhere(make_bundle(f"net{days}", size=100_000), days_ago=days) for days in (1, 2, 3)]
    removed = json.loads(run.invoke(app, ["cache", "prune", "--max-size", "250k", "--json"]).stdout)
    assert [one["path"] for one in removed] == [str(places[2])]
    assert [place.exists() for place in places] == [True, True, False]
    assert run.invoke(app, ["cache", "prune", "--max-size", "0"]).exit_code == 0
    assert not os.listdir(home)  # locks go with their entries


def test_prune_never_takes_what_a_process_uses(make_bundle: MakeBundle, home: Path) -> None:
    command = [sys.executable, "-c", UNPACK, str(make_bundle("net"))]
    user = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert user.stdout is not None
    place = Path(user.stdout.readline().strip())
    os.utime(place / USED, (0, 0))
    assert cache.list_entries(home)[0].in_use
    assert cache.prune(home, 0) == cache.Pruned(removed=(), stay=(Stays.IN_USE,))
    user.communicate("")
    assert [entry.path for entry in cache.prune(home, 0).removed] == [place]


def test_prune_never_takes_what_is_locked_or_was_just_opened(make_bundle: MakeBundle, home: Path) -> None:
    place = unpack_elsewhere(make_bundle("net"))
    with file_lock(cache.lock_path(place)) as got:
        assert got.held
        assert cache.prune(home, 0) == cache.Pruned(removed=(), stay=(Stays.IN_USE,))
    os.utime(place / USED)
    assert cache.prune(home, 0) == cache.Pruned(removed=(), stay=(Stays.RECENT,))
    assert place.is_dir()


def test_prune_says_what_stays_and_why(make_bundle: MakeBundle, home: Path) -> None:
    old, recent, used = (unpack_elsewhere(make_bundle(name)) for name in ("old", "recent", "used"))
    os.utime(recent / USED)
    assert "used just now  Net" in run.invoke(app, ["cache", "ls"]).stdout
    with file_lock(cache.lock_path(used)):
        done = run.invoke(app, ["cache", "prune", "--max-size", "0"])
        again = run.invoke(app, ["cache", "prune", "--max-size", "0"])
    assert "removed 1 bundle," in done.stdout
    assert again.stdout == "nothing was removed.\n"
    assert again.stderr == "2 that were to go stay: 1 opened in the last ten minutes, 1 in use.\n"
    assert [place.exists() for place in (old, recent, used)] == [False, True, True]


@pytest.mark.parametrize(
    ("days_ago", "shown"), [(0.1 / 24, "6.0 minutes ago"), (0.125, "3.0 hours ago"), (12, "12.0 days ago")]
)
def test_the_last_use_is_told_in_the_nearest_unit(
    make_bundle: MakeBundle, days_ago: float, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)  # it stands still, however long the listing takes
    unpack_elsewhere(make_bundle("net"), days_ago=days_ago)
    assert f"used {shown}  Net" in run.invoke(app, ["cache", "ls"]).stdout


def test_the_cache_keeps_itself_within_its_limit(
    make_bundle: MakeBundle, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPILOT_CACHE_LIMIT", "250k")
    places = [unpack_elsewhere(make_bundle(f"net{days}", size=100_000), days_ago=days) for days in (3, 2, 1)]
    assert [place.exists() for place in places] == [False, True, True]
    monkeypatch.setenv("COMPILOT_CACHE_LIMIT", "much")  # a mistake that must not keep anybody from starting
    assert unpack_elsewhere(make_bundle("more")).is_dir()


def test_damage_is_found_and_removed(make_bundle: MakeBundle, home: Path) -> None:
    good, bad = unpack_elsewhere(make_bundle("good")), unpack_elsewhere(make_bundle("bad"))
    assert run.invoke(app, ["cache", "verify"]).exit_code == 0
    data = bytearray((bad / "artifacts" / "model.bin").read_bytes())
    data[500] ^= 1
    (bad / "artifacts" / "model.bin").write_bytes(data)
    shown = run.invoke(app, ["cache", "verify"])
    assert shown.exit_code == 1
    assert "artifacts/model.bin does not match its digest" in shown.stdout
    assert {entry.path: entry.state for entry in cache.verify(home)} == {
        good: CacheState.READY,
        bad: CacheState.DAMAGED,
    }
    run.invoke(app, ["cache", "prune", "--damaged"])
    assert [entry.path for entry in cache.list_entries(home)] == [good]


def test_what_killed_processes_left_goes_first(make_bundle: MakeBundle, home: Path) -> None:
    place = unpack_elsewhere(make_bundle("net"))
    (place / READY).unlink()
    (home / ".x.00000000-1.00000000.partial").mkdir()
    os.utime(home / ".x.00000000-1.00000000.partial", (0, 0))
    assert [entry.state for entry in cache.list_entries(home)] == [CacheState.UNFINISHED]
    assert [entry.path for entry in cache.prune(home, 10**9).removed] == [place]
    assert not [name for name in os.listdir(home) if name.endswith(".partial")]


def test_a_pruned_bundle_is_unpacked_again(make_bundle: MakeBundle, home: Path) -> None:
    bundle = make_bundle("net")
    place = unpack_elsewhere(bundle)
    cache.prune(home, 0)
    with open_bundle(bundle, Trust()) as opened:
        assert unpacked(opened) == place
    assert (place / READY).is_file()


def test_an_entry_without_its_manifest_is_not_called_whole(make_bundle: MakeBundle, home: Path) -> None:
    place = unpack_elsewhere(make_bundle("net"))
    atomic.write_bytes(place / "manifest.json", b"{}")
    assert [entry.state for entry in cache.verify(home)] == [CacheState.UNKNOWN]
    assert run.invoke(app, ["cache", "verify"]).exit_code == 1
    run.invoke(app, ["cache", "prune", "--damaged"])  # as verify advises
    assert cache.list_entries(home) == []


def test_a_cache_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert cache.list_entries(tmp_path / "nowhere") == []
    assert "holds no unpacked bundles" in run.invoke(app, ["cache", "ls"]).stdout
