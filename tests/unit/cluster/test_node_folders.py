"""The folders of node workers: a dead one's goes, a living one's stays, also while it is only beginning to live."""

from __future__ import annotations

from pathlib import Path

import pytest

from compilot.cluster import node_work
from compilot.cluster.events import Events
from compilot.cluster.node_work import ALIVE, FOLDER, NodeWork


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    first = NodeWork("first", Events())
    first.close()
    return first.root.parent


def left_by_a_dead_one(base: Path) -> Path:
    old = base / "dead"
    old.mkdir()
    (old / ALIVE).touch()
    return old


def test_a_dead_workers_folder_goes_and_a_living_ones_stays(base: Path) -> None:
    living = NodeWork("living", Events())
    dead = left_by_a_dead_one(base)
    other = NodeWork("other", Events())
    assert not dead.exists()
    assert living.root.exists()
    assert other.root.exists()
    for work in (living, other):
        work.close()
    assert list(base.iterdir()) == []


def test_a_worker_that_starts_in_the_same_moment_takes_nothing_away(monkeypatch: pytest.MonkeyPatch) -> None:
    hold, others, asked = node_work.hold_shared, list[NodeWork](), list[Path]()

    def late(path: Path) -> bool:
        asked.append(path)
        if len(asked) == 1:  # before the first one has its lock
            others.append(NodeWork("other", Events()))
        return hold(path)

    monkeypatch.setattr(node_work, "hold_shared", late)
    first = NodeWork("first", Events())
    assert first.root.exists()
    NodeWork("third", Events()).close()
    assert first.root.exists()  # it is locked under the name that it has now
    for work in (first, *others):
        work.close()


def test_where_there_are_no_locks_nothing_is_swept(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_work, "hold_shared", lambda path: False)
    monkeypatch.setattr(node_work, "is_locked", lambda path: False)
    maybe_living = left_by_a_dead_one(base)
    work = NodeWork("new", Events())
    assert maybe_living.exists()
    monkeypatch.setattr(node_work, "hold_shared", lambda path: True)
    NodeWork("with locks", Events()).close()
    assert work.root.exists()  # it never had one that could be missing
    work.close()
