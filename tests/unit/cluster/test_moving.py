"""Files between machines, and the user's code among them: two folders stand for two machines."""

from __future__ import annotations

import json
import sys
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

import compilot
from compilot.cluster import code, moving, nodes
from compilot.cluster.events import Events
from compilot.cluster.facts import ClusterNode
from compilot.cluster.node_work import FOLDER, NodeWork
from compilot.cluster.nodes import bring_code
from compilot.errors import InputError, WorkerError
from compilot.records import Shipment
from compilot.testing.runner import fake_fingerprint


class Here:
    """A link to a worker in this process; counts what goes over it."""

    def __init__(self, work: NodeWork) -> None:
        self.work = work
        self.node = ClusterNode(id="n", name="n", host="h", fingerprint=fake_fingerprint().machine, cores=2)
        self.asked: list[str] = []

    def do(self, method: str, *args: Any) -> Future[Any]:
        self.asked.append(method)
        future: Future[Any] = Future()
        try:
            future.set_result(getattr(self.work, method)(*args))
        except Exception as problem:
            future.set_exception(problem)
        return future

    now = do

    def end(self) -> None:
        self.work.close()


@pytest.fixture
def link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv(FOLDER, str(tmp_path / "nodes"))
    link = Here(NodeWork("n", Events()))
    yield link
    link.end()
    assert not link.work.root.exists()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(moving, "PIECE_BYTES", 1000)
    folder = tmp_path / "mine"
    (folder / "deep").mkdir(parents=True)
    (folder / "small.txt").write_text("small")
    (folder / "empty").touch()
    (folder / "deep" / "program").write_bytes(bytes(range(256)) * 20)  # several pieces
    (folder / "deep" / "program").chmod(0o755)
    return folder


@pytest.mark.parametrize("exchange", [False, True])
def test_a_folder_goes_there_and_comes_back_as_it_was(
    folder: Path, link: Here, tmp_path: Path, exchange: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "SMALL_BYTES", 100)
    url = f"file://{tmp_path / 'exchange'}" if exchange else None
    facts = moving.listed(folder)
    assert moving.bring(link, "run/work/x", folder, facts, url) == 5 + 5120
    assert moving.listed(link.work.root / "run" / "work" / "x") == facts
    assert link.asked.count("write") == (2 if exchange else 8)  # what is large went another way
    assert moving.bring(link, "run/work/x", folder, facts, url) == 0  # it has them
    back = tmp_path / "back"
    back.mkdir()
    (back / "old").write_text("of an earlier one")
    assert moving.take(link, "run/work/x", back, facts, url) == 5 + 5120
    assert moving.listed(back) == facts
    assert moving.take(link, "run/work/x", back, facts, url) == 0


def test_what_arrives_damaged_is_refused_and_takes_nobodys_place(folder: Path, link: Here, tmp_path: Path) -> None:
    facts = moving.listed(folder)
    moving.bring(link, "run/work/x", folder, facts)
    (link.work.root / "run/work/x/small.txt").write_text("smell")
    back = tmp_path / "back"
    with pytest.raises(WorkerError, match=r"small.txt arrived damaged"):
        moving.take(link, "run/work/x", back, facts)
    assert not back.exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("name", ["../out", "/etc/passwd", "", "a/../../b"])
def test_no_name_leads_out_of_a_nodes_folder(link: Here, name: str) -> None:
    for method, args in (("write", ("run", name, 0, b"x")), ("read", ("run", name, 0)), ("write", (name, "x", 0, b""))):
        with pytest.raises(WorkerError):
            link.do(method, *args).result()


def test_a_target_goes_with_its_folder_but_not_with_runs_and_environments(tmp_path: Path, link: Here) -> None:
    for name in ("net.py", "part/helper.py", "part/weights.bin", ".git/config", "env/pyvenv.cfg", "env/lib.py"):
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    run = tmp_path / "project" / "runs" / "one"
    run.mkdir(parents=True)
    (run / "journal.jsonl").touch()
    root = tmp_path / "project"
    shipment = Shipment(sys_path=(str(root), *sys.path), cwd=str(root), target=f"{root / 'net.py'}:model")
    [packed] = code.folders_of(shipment)
    assert packed.root == str(root)
    assert [one.name for one in packed.files] == ["net.py", "part/helper.py", "part/weights.bin"]
    bring_code(link, [packed])
    assert link.asked == ["missing_code"]  # it has the same files at the same path
    there = code.translated(shipment, {str(root): Path("/elsewhere/code")}, tmp_path)
    assert there.target == "/elsewhere/code/net.py:model"
    assert there.cwd == str(tmp_path)  # the folder is not here
    assert there.sys_path[0] == "/elsewhere/code"
    assert not any("site-packages" in entry for entry in there.sys_path)


def test_a_node_without_the_files_gets_them(tmp_path: Path, link: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (root / "net.py").write_text("x = 1")
    packed = code.folder_of(root)
    real = moving.lacking
    monkeypatch.setattr(moving, "lacking", lambda place, files: list(files) if place == root else real(place, files))
    bring_code(link, [packed])
    place = link.work.place_of(str(root), packed.key)
    assert place != root
    assert (place / "net.py").read_text() == "x = 1"


def test_a_module_goes_with_its_package(tmp_path: Path) -> None:
    (tmp_path / "mine" / "deep").mkdir(parents=True)
    for name in ("mine/__init__.py", "mine/deep/net.py", "other.py"):
        (tmp_path / name).write_text("")
    shipment = Shipment(sys_path=(str(tmp_path),), cwd="/", target="mine.deep.net:model", engine_modules=("other",))
    [packed] = code.folders_of(shipment)
    assert [one.name for one in packed.files] == ["mine/__init__.py", "mine/deep/net.py", "other.py"]
    installed = Shipment(sys_path=tuple(sys.path), cwd="/", target="torch.nn:Linear")
    assert code.folders_of(installed) == ()


def test_a_folder_that_is_too_large_is_refused_with_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code, "MOST_FILES", 1)
    for name in "ab":
        (tmp_path / name).touch()
    with pytest.raises(InputError, match="put the target into a folder of its own"):
        code.folder_of(tmp_path)


def test_no_private_key_is_among_the_files(tmp_path: Path) -> None:
    compilot.keys.new(tmp_path / "release")
    (tmp_path / "net.py").write_text('HEADER = "-----BEGIN PRIVATE KEY-----"  # code that looks for keys is no key')
    pem = (tmp_path / "release").read_text()
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "both.pem").write_text("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n" + pem)
    (tmp_path / "account.json").write_text(json.dumps({"private_key": pem}))
    (tmp_path / "ssh").write_bytes(pem.replace("PRIVATE", "OPENSSH PRIVATE").replace("\n", "\r\n").encode())
    (tmp_path / "old").write_text("-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n")
    (tmp_path / "link").symlink_to("release")
    shipment = Shipment(sys_path=(str(tmp_path),), cwd="/", target=f"{tmp_path / 'net.py'}:model")
    [packed] = code.folders_of(shipment)
    assert [one.name for one in packed.files] == ["net.py", "release.pub"]
    assert code.folder_of(tmp_path).files == packed.files


def test_what_is_left_out_stays_here(tmp_path: Path) -> None:
    root = tmp_path / "project"
    for name in ("net.py", "key.der", "store/index/a", "out/report.json", "compilot-fleet/bundles/b", "data/a"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    left_out = [root / "key.der", root / "store", root / "data" / ".." / "out", tmp_path, root]
    assert sorted(code.tree(root, left_out)) == [root / "data" / "a", root / "net.py"]
    shipment = Shipment(sys_path=(str(root),), cwd="/", target=f"{root / 'net.py'}:model")
    [packed] = code.folders_of(shipment, [root / "store"])
    assert [one.name for one in packed.files] == ["data/a", "key.der", "net.py", "out/report.json"]


def test_links_to_files_go_along_as_in_a_mounted_configmap(tmp_path: Path, link: Here) -> None:
    root = tmp_path / "fleet"
    (root / "..2026_11_18").mkdir(parents=True)
    (root / "..2026_11_18" / "net.py").write_text("x = 1")
    (root / "..data").symlink_to("..2026_11_18")
    (root / "net.py").symlink_to("..data/net.py")
    (root / "round").symlink_to(".")
    (root / "round.py").symlink_to("round.py")
    (root / "gone.py").symlink_to("nowhere.py")
    packed = code.folder_of(root)
    assert [one.name for one in packed.files] == ["net.py"]
    moving.bring(link, "code/x", root, packed.files)
    assert (link.work.root / "code" / "x" / "net.py").read_text() == "x = 1"


@pytest.mark.parametrize("change", ["other", "gone"])
def test_files_that_cannot_be_brought_fail_that_call_alone(
    tmp_path: Path, link: Here, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (root / "net.py").write_text("x = 1")
    monkeypatch.setattr(nodes, "connect", lambda address, wait_s: False)
    cluster = nodes.Cluster("auto", working_dir=root)
    cluster._links["n"] = link  # type: ignore[assignment]
    if change == "other":
        (root / "net.py").write_text("x = 2")
    else:
        (root / "net.py").unlink()
    failed = cluster.call("n", "compilot.fleet.on_node:fingerprint", b"")
    with pytest.raises(WorkerError, match=r"net.py arrived damaged" if change == "other" else r"cannot be read"):
        failed.result()
    assert "call" not in link.asked
