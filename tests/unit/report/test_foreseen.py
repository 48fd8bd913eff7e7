"""What earlier runs suggested, and whether they were right: one sentence, the same in terminal and JSON."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from compilot.engines.eager.build import EAGER
from compilot.records import Decision, EngineExpectation, Expectation
from compilot.report import results_of
from compilot.report.data import read_run
from compilot.report.terminal import summary

EXPECTED = Expectation(
    suggested="inductor",
    engines=(EngineExpectation(engine="inductor", speedup=1.9, runs=5),),
    runs=5,
    nearest=("ResNet", "VGG"),
)
TOLD = "Earlier runs suggested {} (from 5 runs, nearest: ResNet, VGG)"


def written(small_run: Any, folder: Path, suggested: str | None, **how: Any) -> Path:
    expected = None if suggested is None else msgspec.structs.replace(EXPECTED, suggested=suggested)
    small_run.header = msgspec.structs.replace(small_run.header, prior=True, expected=expected)
    path: Path = small_run.write(folder / "run", **how)
    return path


def printed(run_dir: Path, plan: Any) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(summary(read_run(run_dir), plan, width=100))
    return " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]


@pytest.mark.parametrize(("suggested", "right"), [("inductor", True), ("openvino", False), ("eager", False)])
def test_right_and_wrong(small_run: Any, tmp_path: Path, suggested: str, right: bool) -> None:
    run_dir = written(small_run, tmp_path, suggested)
    found = results_of(run_dir).prior
    assert found is not None
    assert found.sentence == f"{TOLD.format(suggested)}; the plan uses inductor: {'right' if right else 'wrong'}."
    assert (found.used, found.right) == ("inductor", right)
    assert found.expected.engines == EXPECTED.engines
    assert found.sentence in printed(run_dir, small_run.plan)


@pytest.mark.parametrize(("suggested", "right"), [("eager", True), ("inductor", False)])
def test_a_plan_that_keeps_eager(small_run: Any, tmp_path: Path, suggested: str, right: bool) -> None:
    small_run.verdict = msgspec.structs.replace(
        small_run.verdict, decision=Decision.KEEP_EAGER, chosen_id=EAGER.id, comparisons=()
    )
    found = results_of(written(small_run, tmp_path, suggested)).prior
    assert found is not None
    assert found.sentence == f"{TOLD.format(suggested)}; the plan keeps eager: {'right' if right else 'wrong'}."
    assert found.right is right


def test_before_the_verdict_nobody_knows(small_run: Any, tmp_path: Path) -> None:
    found = results_of(written(small_run, tmp_path, "inductor", finished=False)).prior
    assert found is not None
    assert (found.sentence, found.used, found.right) == (f"{TOLD.format('inductor')}.", None, None)


def test_nothing_is_said_where_nothing_was_expected(small_run: Any, tmp_path: Path) -> None:
    run_dir = written(small_run, tmp_path, None)
    assert results_of(run_dir).prior is None
    assert "Earlier runs" not in printed(run_dir, small_run.plan)
