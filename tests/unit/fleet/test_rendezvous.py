"""What ranks tell each other, over a store that is a dictionary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compilot.errors import EnvironmentProblem
from compilot.fleet import ranks
from compilot.fleet.rendezvous import FAILED, Rendezvous


class Keys(dict[str, bytes]):
    """As the store of a distributed job."""

    def set(self, key: str, value: bytes) -> None:
        self[key] = value

    def check(self, keys: list[str]) -> bool:
        return all(key in self for key in keys)


def started(keys: Keys, rank: int, monkeypatch: pytest.MonkeyPatch, wait_s: float = 0.0) -> Any:
    """load_together on one rank of two; building and loading are no part of this."""
    monkeypatch.setattr(ranks, "_meeting", lambda *_: Rendezvous(keys, rank, 2, wait_s))
    monkeypatch.setattr(ranks, "_built", lambda *_: Path("net.cpbundle"))
    monkeypatch.setattr(ranks, "_fetched", lambda *_: Path("net.cpbundle"))
    monkeypatch.setattr(ranks, "_loaded", lambda *_: "fast")
    return ranks.load_together(lambda: None)


def test_a_rank_that_is_late_does_not_go_on_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = Keys()
    with pytest.raises(EnvironmentProblem, match="loading on all ranks took longer than 0 s"):
        started(keys, 0, monkeypatch)
    with pytest.raises(EnvironmentProblem, match=r"not all ranks are ready: rank 0: .*took longer"):
        started(keys, 1, monkeypatch)  # by now everybody has said that it is ready
    assert keys[FAILED].startswith(b"rank 0: ")  # the cause stays


def test_ranks_that_are_all_ready_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = Keys({"ready/1": b"1"})
    assert started(keys, 0, monkeypatch) == "fast"
    assert started(keys, 1, monkeypatch) == "fast"


def test_a_store_that_is_gone_does_not_hide_the_problem() -> None:
    class Gone(Keys):
        def check(self, keys: list[str]) -> bool:
            raise RuntimeError("connection reset")

        def set(self, key: str, value: bytes) -> None:
            raise RuntimeError("connection reset")

    Rendezvous(Gone(), 0, 2, 1.0).fail(ValueError("the problem"))
