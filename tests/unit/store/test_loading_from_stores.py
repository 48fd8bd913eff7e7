"""`compilot.load` of a store: which file it takes, what it keeps, and what happens when the store does not answer."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from store_fakes import HERE, MakeBundle, WebState

import compilot
from compilot.api import loading
from compilot.artifacts import store
from compilot.artifacts.store import fetching
from compilot.errors import CompilotWarning, InputError, NoneFits, StoreUnreachable
from compilot.identity import machine


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(machine, "machine_fingerprint", lambda: HERE)
    (tmp_path / "cache").mkdir(mode=0o700)
    monkeypatch.setenv("COMPILOT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_best_bundle_is_fetched_once_and_newer_ones_are_picked_up(
    make_bundle: MakeBundle, tmp_path: Path, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"file://{tmp_path / 'store'}"
    first = store.push(make_bundle("old", weights="a" * 64), url).entry
    with caplog.at_level(logging.INFO, "compilot"):
        path = loading.found(url, "Net")
    assert "made on a machine like this one" in caplog.text
    assert path.name == f"{first.sha256}.cpbundle"
    assert path.is_relative_to(home)
    before = path.stat().st_ino
    assert loading.found(url, "Net").stat().st_ino == before  # the same file: it was there already
    newer = store.push(make_bundle("new", weights="b" * 64, created="2026-02-01"), url).entry
    again = loading.found(url, "Net")
    assert again.name == f"{newer.sha256}.cpbundle"
    assert path.exists()  # another process may be about to open it
    os.utime(path, (0, 0))
    loading.found(url, "Net")
    assert not path.exists()


def test_a_store_that_does_not_answer_does_not_stop_a_start_that_worked(
    make_bundle: MakeBundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(tmp_path / "store")
    store.push(make_bundle("net"), url)

    def gone(*_: Any, **__: Any) -> None:
        raise StoreUnreachable("s3://models cannot be listed: connection refused.")

    whole = store.pull
    monkeypatch.setattr(store, "pull", gone)
    with pytest.raises(StoreUnreachable):
        loading.found(url, "Net")  # there is nothing from before
    monkeypatch.setattr(store, "pull", whole)
    path = loading.found(url, "Net")
    monkeypatch.setattr(store, "pull", gone)
    with pytest.warns(CompilotWarning, match=r"connection refused; the bundle of the last start .* is used"):
        assert loading.found(url, "Net") == path


def test_a_server_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    with pytest.raises(StoreUnreachable):
        loading.found("http://127.0.0.1:9/bundles", "Net")


def test_a_file_server_that_is_not_mounted_does_not_stop_a_start_that_worked(
    make_bundle: MakeBundle, tmp_path: Path
) -> None:
    url = str(tmp_path / "mnt")
    with pytest.raises(StoreUnreachable, match=r"mnt does not exist; check its name and that it is mounted"):
        loading.found(url, "Net")
    store.push(make_bundle("net"), url)
    path = loading.found(url, "Net")
    (tmp_path / "mnt").rename(tmp_path / "away")
    with pytest.warns(CompilotWarning, match=r"mnt does not exist; .*; the bundle of the last start .* is used"):
        assert loading.found(url, "Net") == path
    (tmp_path / "mnt").mkdir()  # the mount point is there, the server is not
    with pytest.warns(CompilotWarning, match=r"mnt is empty; mount its file server.*; the bundle of the last start"):
        assert loading.found(url, "Net") == path


def test_a_store_that_breaks_during_a_download_does_not_stop_a_start_that_worked(
    make_bundle: MakeBundle, web: WebState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(fetching, "CHUNK", 50_000)
    served = str(tmp_path / "served")
    store.push(make_bundle("old", weights="a" * 64), served)
    path = loading.found(web.url, "Net")
    store.push(make_bundle("new", weights="b" * 64, created="2026-02-01", size=300_000), served)
    web.left_bytes = 170_000
    with pytest.warns(CompilotWarning, match=r"broke off at \d+ of \d+ bytes .*; the bundle of the last start"):
        assert loading.found(web.url, "Net") == path


def test_where_nothing_fits_the_last_one_is_not_used(make_bundle: MakeBundle, tmp_path: Path) -> None:
    url = str(tmp_path / "store")
    pushed = store.push(make_bundle("net"), url).entry
    loading.found(url, "Net")
    compilot.store.rm(url, pushed.sha256)
    store.push(make_bundle("other", torch="9.9"), url)
    with pytest.raises(NoneFits, match=r"needs torch 9.9"):
        loading.found(url, "Net")


def test_a_path_is_a_bundle_unless_it_is_a_store(make_bundle: MakeBundle, tmp_path: Path) -> None:
    bundle = make_bundle("net")
    assert loading.found(bundle) == bundle
    with pytest.raises(InputError, match="is a bundle, not a store; leave out model"):
        loading.found(bundle, "Net")
    assert loading.is_store("s3://models/bundles")
    assert not loading.is_store(tmp_path / "nothing")
    store.push(bundle, str(tmp_path / "store"))
    assert loading.is_store(tmp_path / "store")


def test_a_file_is_loaded_without_anything_of_stores(tmp_path: Path) -> None:
    code = (
        "import compilot, sys\n"
        "try:\n    compilot.load('none.cpbundle')\nexcept compilot.BundleError: pass\n"
        "print('fsspec' in sys.modules, 'compilot.artifacts.store' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["False", "False"]
