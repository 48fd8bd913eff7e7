"""One job on its node: what is tuned, what is gone on with, and what is only packed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from compilot.api import bundling, tuning
from compilot.artifacts.rundir import RunDir
from compilot.fleet import on_node
from compilot.fleet.jobs import Job
from compilot.records import Decision, NotReached


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, small_run: Any) -> list[dict[str, Any]]:
    """What tune is asked for; pack writes some bytes."""
    found: list[dict[str, Any]] = []

    def tune(model: str | None = None, **options: Any) -> Any:
        found.append({"model": model, **options})
        return small_run.plan

    def pack(run: Path, out: Path, **_: Any) -> None:
        out.write_bytes(b"bundle")

    monkeypatch.setattr(tuning, "tune", tune)
    monkeypatch.setattr(bundling, "pack", pack)
    return found


def job(tmp_path: Path, **more: Any) -> Job:
    return Job(key="ab" * 32, name="net", target="net.py:net", budget_s=60.0, work=str(tmp_path / "work"), **more)


def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "work" / ("ab" * 16) / "run"


def finished(small_run: Any, folder: Path, **verdict: Any) -> None:
    """A run that came to its end; with fields of its verdict, one that keeps eager."""
    if verdict:
        small_run.verdict = msgspec.structs.replace(small_run.verdict, decision=Decision.KEEP_EAGER, **verdict)
        small_run.plan = msgspec.structs.replace(small_run.plan, entries=())
    small_run.write(folder)
    RunDir(folder).trials_csv.touch()


def test_a_new_job_is_tuned_with_its_options(asked: list[dict[str, Any]], tmp_path: Path) -> None:
    made = on_node.made(job(tmp_path, options={"engines": "inductor"}, trace=b"x:0=3\nx:0=5\ny:1=4\n"))
    (given,) = asked
    assert given["out"] == run_dir(tmp_path)
    assert (given["model"], given["engines"], given["budget"]) == ("net.py:net", "inductor", 60.0)
    assert [(one.input, one.dim, one.min, one.max) for one in given["dynamic"]] == [("x", 0, 3, 5)]
    assert made.engine == "inductor"
    assert Path(made.bundle).read_bytes() == b"bundle"
    assert made.uploaded == ""


def test_the_bundle_goes_to_the_store_where_nobody_sees_the_nodes_files(
    asked: list[dict[str, Any]], tmp_path: Path
) -> None:
    made = on_node.made(job(tmp_path, upload=str(tmp_path / "store")))
    assert made.uploaded == f"uploads/{made.sha256}"
    assert (tmp_path / "store" / made.uploaded).read_bytes() == b"bundle"


def test_a_finished_run_is_only_packed(asked: list[dict[str, Any]], small_run: Any, tmp_path: Path) -> None:
    finished(small_run, run_dir(tmp_path))
    assert on_node.made(job(tmp_path)).bundle
    assert asked == []
    on_node.made(job(tmp_path, again=True))
    assert [one["model"] for one in asked] == ["net.py:net"]


def test_an_interrupted_run_is_gone_on_with(asked: list[dict[str, Any]], small_run: Any, tmp_path: Path) -> None:
    small_run.write(run_dir(tmp_path))
    RunDir(run_dir(tmp_path)).trials_csv.unlink(missing_ok=True)
    on_node.made(job(tmp_path))
    assert asked == [{"model": None, "resume": run_dir(tmp_path), "budget": 60.0, "progress": True}]


def test_eager_is_final_only_where_there_was_time_to_tell(
    asked: list[dict[str, Any]], small_run: Any, tmp_path: Path
) -> None:
    finished(small_run, run_dir(tmp_path), comparisons=())
    made = on_node.made(job(tmp_path))
    assert (made.eager, made.final, asked) == (True, True, [])
    on_node.atomic.remove(run_dir(tmp_path))
    finished(small_run, run_dir(tmp_path), comparisons=(), not_reached=NotReached(more_s=60.0, budget_s=120.0))
    made = on_node.made(job(tmp_path))
    assert [one["resume"] for one in asked] == [run_dir(tmp_path)]
    assert (made.eager, made.final) == (True, False)
