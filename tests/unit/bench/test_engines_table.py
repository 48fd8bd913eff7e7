"""The bench of the engines: what its journal keeps, whom the plan is compared with, and when it has failed."""

from __future__ import annotations

import csv
import io
import random
from pathlib import Path

import msgspec
import pytest

import engines_table as table
from compilot.records import ProcessSamples
from engines_journal import AGAIN, JUDGED, SCREENING, Built, Journal, Raced, Tuned

ARMS = ("eager", "compile", "openvino", "compilot")


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """A model whose screening says: OpenVINO is the best by hand."""
    found = Journal(tmp_path / "journal.jsonl")
    found.append(Tuned(model="mlp", ok=True, wall_s=1.0, budget="2m", engine="aoti", label="aoti freezing"))
    for arm in ARMS:
        found.append(Built(model="mlp", arm=arm, ok=True))
    found.append(Built(model="mlp", arm="aoti", ok=False, reason="no compiler"))
    found.append(raced(SCREENING, 0, eager=4.0, compile=3.0, openvino=1.0, compilot=1.0))
    return found


def raced(race: str, process: int, **ms: float) -> Raced:
    """Forty rounds with a little noise, the same for no two rounds."""
    noise = random.Random(process)
    rounds = tuple(tuple(ms[arm] * 1e-3 * noise.uniform(0.99, 1.01) for arm in ms) for _ in range(40))
    samples = ProcessSamples(rounds=rounds)
    return Raced(model="mlp", race=race, process=process, arms=tuple(ms), samples=samples)


def judge(journal: Journal, race: str, plan_ms: float) -> None:
    for process in range(3):
        journal.append(raced(race, process, eager=4.0, compile=3.0, openvino=1.0, compilot=plan_ms))


def test_the_plan_is_compared_with_the_best_by_hand_and_with_torch_compile(journal: Journal) -> None:
    judge(journal, JUDGED, plan_ms=1.0)
    row = table.row(journal, "mlp")
    assert row.best == "openvino"
    assert row.verdict == "met"
    assert row.plan_compile is not None
    assert row.plan_compile.ratio == pytest.approx(3.0, rel=0.01)
    assert row.eager_ms == pytest.approx(4.0, rel=0.01)


def test_a_plan_fails_only_after_a_second_race(journal: Journal) -> None:
    judge(journal, JUDGED, plan_ms=1.1)
    assert table.below(table.row(journal, "mlp").plan_best)
    assert table.row(journal, "mlp").verdict == "below once, second race missing"
    judge(journal, AGAIN, plan_ms=1.1)
    assert table.row(journal, "mlp").verdict == "below 0.98 twice"


def test_a_second_race_can_acquit(journal: Journal) -> None:
    judge(journal, JUDGED, plan_ms=1.1)
    judge(journal, AGAIN, plan_ms=1.0)
    assert table.row(journal, "mlp").verdict == "met (second race)"


def test_of_two_that_the_screening_cannot_tell_apart_the_harder_one_counts(journal: Journal) -> None:
    arms = {"eager": 4.0, "compile": 3.0, "onnxruntime": 1.0, "openvino": 1.0}
    journal.append(Built(model="mlp", arm="onnxruntime", ok=True))
    journal.append(raced(SCREENING, 1, **arms, compilot=1.0))
    row = table.row(journal, "mlp")
    assert set(table.rivals(row.over_eager, row.built)) == {"onnxruntime", "openvino"}
    for process in range(3):
        journal.append(raced(JUDGED, process, **{**arms, "onnxruntime": 0.8}, compilot=1.0))
    assert table.row(journal, "mlp").best == "onnxruntime"
    assert table.below(table.row(journal, "mlp").plan_best)


def test_an_arm_that_failed_is_never_the_best(journal: Journal) -> None:
    journal.append(Built(model="mlp", arm="openvino", ok=False, reason="output 0 differs from eager's"))
    row = table.row(journal, "mlp")
    assert row.best == "compile"
    assert "mlp, openvino: output 0 differs from eager's" in table.failures([row])


def test_a_line_that_was_cut_off_is_passed_over_and_does_not_spoil_the_next(journal: Journal) -> None:
    with journal.path.open("ab") as file:
        file.write(b'{"type":"built","model":"mlp","ar')
    again = Journal(journal.path)
    assert len(again.lines) == len(journal.lines)
    again.append(Built(model="mlp", arm="tuned", ok=True))
    assert Journal(journal.path).arms("mlp")["tuned"].ok


def test_rows_become_markdown_and_csv(journal: Journal) -> None:
    judge(journal, JUDGED, plan_ms=1.0)
    rows = [table.row(journal, "mlp"), table.row(journal, "lstm")]
    lines = table.markdown(rows).splitlines()
    assert {line.count("|") for line in lines} == {lines[0].count("|")}
    assert "failed" in lines[2]
    assert "not measured" in lines[3]
    first = next(csv.DictReader(io.StringIO(table.as_csv(rows))))
    assert float(first["plan_best_ratio"]) == pytest.approx(1.0, abs=0.01)
    assert first["aoti_failure"] == "no compiler"


def test_a_busy_machine_is_told(journal: Journal) -> None:
    judge(journal, JUDGED, plan_ms=1.0)
    assert table.doubts([table.row(journal, "mlp")]) == []
    journal.append(msgspec.structs.replace(journal.raced("mlp", JUDGED)[0], load="other processes used 97% of a core"))
    assert table.doubts([table.row(journal, "mlp")]) == ["mlp: other processes used 97% of a core"]


def test_geometric_means_say_what_is_missing(journal: Journal) -> None:
    assert table.geometric_mean([1.0, 4.0]) == pytest.approx(2.0)
    assert table.geometric_mean([]) is None
    judge(journal, JUDGED, plan_ms=1.0)
    line = table.group_line("others", [table.row(journal, name) for name in ("mlp", "lstm")])
    assert "3.0" in line
    assert "without lstm" in line
    assert "aim 1.15x: met" in line
