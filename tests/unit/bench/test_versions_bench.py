"""bench/versions.py: whose turn it is, its exit codes, and what its table says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

import versions
from stepping import DONE, MORE
from tune_runs import Ended, Story, Tried
from versions import NEW, OLD, Ran, Turn, turns


def story(count: int, spent_s: float = 30.0) -> Story:
    tried = tuple(Tried(id=f"{n}", label=f"c{n}", state="ok", wall_s=5.0, at_s=10.0 * n) for n in range(count))
    return Story(tried=tried, chosen="0", spent_s=spent_s, found_s=50.0)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Another checkout."""
    (tmp_path / "old" / "compilot").mkdir(parents=True)
    (tmp_path / "old" / "compilot" / "__init__.py").touch()
    return tmp_path / "old"


@pytest.fixture
def argv(tmp_path: Path, old: Path) -> list[str]:
    return ["--old", str(old), "--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]


@pytest.fixture
def tuned(monkeypatch: pytest.MonkeyPatch, old: Path) -> list[tuple[str, bool]]:
    """Models and whether the old code tuned them, in their order; the new one finds three times as many."""
    seen: list[tuple[str, bool]] = []

    def tune(model: str, folder: Path, budget: str, *, sources: Path, **more: Any) -> Ended:
        seen.append((model, sources == old.resolve()))
        return Ended(300.0)

    monkeypatch.setattr(versions.tune_runs, "tune", tune)
    monkeypatch.setattr(versions.tune_runs, "read_story", lambda folder: story(4 if f"-{OLD}-" in folder.name else 12))
    return seen


def test_versions_take_turns_and_neither_is_always_first() -> None:
    assert list(turns(["a", "b"], 2)) == [
        *(Turn("a", OLD, 0), Turn("a", NEW, 0), Turn("b", NEW, 0), Turn("b", OLD, 0)),
        *(Turn("a", NEW, 1), Turn("a", OLD, 1), Turn("b", OLD, 1), Turn("b", NEW, 1)),
    ]


def test_it_goes_on_where_it_stopped_and_says_when_it_is_done(
    argv: list[str], tuned: list[tuple[str, bool]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert [versions.main([*argv, "--steps", "1"]) for _ in range(4)] == [MORE, MORE, MORE, DONE]
    assert tuned == [("resnet18", True), ("resnet18", False), ("bert_small", False), ("bert_small", True)]
    out = capsys.readouterr().out
    assert "resnet18: 12 distinct ones ok, 4 before: 3.0 times as many; aim 3: met" in out
    assert "the winner was first tried after 30 trial seconds, 30 before; aim not more: met" in out
    assert versions.main([*argv, "--table"]) == DONE
    assert len(tuned) == 4


def test_a_line_that_was_cut_off_is_run_again(argv: list[str], tuned: list[tuple[str, bool]], tmp_path: Path) -> None:
    assert versions.main([*argv, "--steps", "2"]) == MORE
    journal = tmp_path / "out" / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-25])
    assert versions.main(argv) == DONE
    assert [model for model, _ in tuned].count("resnet18") == 3


def test_without_another_checkout_it_says_what_to_give(argv: list[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="--old must name the src folder of another checkout"):
        versions.main([*argv, "--old", str(tmp_path)])


def ran(version: str, count: int, **changes: Any) -> Ran:
    usual = Ran(
        model="mlp",
        version=version,
        round=0,
        at="2026-11-17T12:00:00+00:00",
        code=version,
        budget="5m",
        wall_s=300.0,
        story=story(count),
    )
    return msgspec.structs.replace(usual, **changes)


def test_too_few_a_later_winner_and_another_hour_are_said() -> None:
    late = ran(NEW, 8, story=story(8, spent_s=31.0), at="2026-11-17T13:30:00+00:00")
    found = versions.verdicts([ran(OLD, 4), late], ["mlp", "lstm"])
    assert found == [
        "mlp: 8 distinct ones ok, 4 before: 2.0 times as many; aim 3: not met",
        "mlp: the winner was first tried after 31 trial seconds, 30 before; aim not more: not met",
        "mlp: the two versions were not run in the same hour",
        "lstm: not measured",
    ]


def test_a_run_that_failed_is_in_the_table() -> None:
    failed = ran(OLD, 0, problem="compilot tune ended with code 1", story=Story(tried=(), chosen=""))
    table = versions.markdown([failed, ran(NEW, 3)])
    assert len({line.count("|") for line in table.splitlines()}) == 1
    assert "compilot tune ended with code 1" in table
    assert "3 ok" in table
    assert versions.as_csv([failed]).count("\n") == 2
