"""Ranks of a torch.distributed job (gloo) start from one build, and no collective runs into its limit."""

from __future__ import annotations

from pathlib import Path

import pytest
from bundle_help import tiny_run
from rank_jobs import run_ranks

import compilot
from compilot.artifacts.store.fetching import digest_of_file
from compilot.errors import EnvironmentProblem, InputError
from compilot.fleet.rendezvous import Rendezvous

LIMIT_S = 3  # of a collective
BUILD_S = 6  # longer than that


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    run = tiny_run(folder / "run", "onnxruntime")
    return compilot.pack(run, folder / "tiny.cpbundle", progress=False).bundle


@pytest.mark.slow
def test_four_ranks_start_from_one_build(bundle: Path, tmp_path: Path) -> None:
    """Rank 2 has a damaged copy, rank 3 does not see the builder's disk; both get the bytes and build nothing."""
    sha256 = digest_of_file(bundle)
    damaged = tmp_path / "cache-2" / "ranks"
    damaged.mkdir(parents=True, mode=0o700)
    damaged.parent.chmod(0o700)
    data = bytearray(bundle.read_bytes())
    data[len(data) // 2] ^= 1
    (damaged / f"{sha256}.cpbundle").write_bytes(data)
    told = run_ranks(
        tmp_path, bundle, of_rank={3: {"far": True}}, build_s=BUILD_S, limit_s=LIMIT_S, wait_s=120, naive=True
    )
    assert [one["built"] for one in told] == [1, 0, 0, 0]
    assert all(one["same"] and one["fast"] == 1 for one in told)
    assert [one["kept"] for one in told] == [[], [sha256], [sha256], [sha256]]
    assert [one["naive"] for one in told[1:]] != ["no time-out"] * 3  # the limit is one: in a collective it is reached


@pytest.mark.slow
def test_a_builder_that_fails_makes_all_ranks_raise(bundle: Path, tmp_path: Path) -> None:
    told = run_ranks(tmp_path, bundle, ranks=2, of_rank={0: {"fail": True}}, build_s=0, limit_s=60, wait_s=120)
    assert told[0]["error"] == "InputError: the builder has no model"
    assert told[1]["error"].startswith("EnvironmentProblem: not all ranks are ready: rank 0: ")
    assert "the builder has no model" in told[1]["error"]


class Keys(dict[str, bytes]):
    """A store of one process."""

    def set(self, key: str, value: bytes) -> None:
        self[key] = value

    def check(self, keys: list[str]) -> bool:
        return all(key in self for key in keys)

    def get(self, key: str) -> bytes:  # type: ignore[override]
        return self[key]

    def delete_key(self, key: str) -> bool:
        return self.pop(key, None) is not None


def test_the_wait_has_a_limit() -> None:
    meeting = Rendezvous(Keys(), 1, 2, wait_s=0.05)
    with pytest.raises(
        EnvironmentProblem, match=r"the build on rank 0 took longer than 0.05 s; give more time \(wait\)"
    ):
        meeting.wait_for(["built"], "the build on rank 0")
    meeting.tell("built")
    meeting.wait_for(["built"], "the build on rank 0")


def test_a_store_that_is_gone_is_said() -> None:
    class Gone(Keys):
        def check(self, keys: list[str]) -> bool:
            raise ConnectionError("reset by peer")

    with pytest.raises(EnvironmentProblem, match="the job's key-value store is gone"):
        Rendezvous(Gone(), 1, 2, wait_s=60).wait_for(["built"], "the build on rank 0")


def test_bytes_travel_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compilot.fleet.rendezvous.PIECE_BYTES", 3)
    keys = Keys()
    (tmp_path / "a").write_bytes(b"12345678")
    Rendezvous(keys, 0, 2, 1).send(tmp_path / "a")
    assert len(keys) == 4
    Rendezvous(keys, 1, 2, 1).receive(tmp_path / "b", "fetching")
    assert (tmp_path / "b").read_bytes() == b"12345678"
    Rendezvous(keys, 0, 2, 1).forget_pieces()
    assert list(keys) == ["pieces"]


def test_it_is_for_distributed_jobs() -> None:
    with pytest.raises(InputError, match="init_process_group first"):
        compilot.fleet.load_together(lambda: "never")
