"""CSV, JSON and the table say the same thing, each in its own way."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from compilot.cli.common import document as plain
from compilot.records import ProcessSettings, Trial
from compilot.report import read_run, results_of, write_csv
from compilot.report.terminal import summary, usage


def printed(run_dir: Path, plan: Any, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(summary(read_run(run_dir), plan, width=width))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_csv_has_one_line_per_candidate(run_dir: Path) -> None:
    path = write_csv(run_dir)
    with path.open(newline="") as file:
        found = {row["candidate"]: row for row in csv.DictReader(file)}
    assert path == run_dir / "trials.csv"
    assert len(found) == 5
    assert float(found["inductor"]["cold_s"]) == 6.0
    assert found["inductor"]["p99_ms"] == "n/a (needs 660 calls)"
    assert found["inductor cpp_wrapper"]["p99_ms"] == ""


def test_csv_is_replaced_whole_and_leaves_no_other_file(run_dir: Path) -> None:
    before = set(run_dir.iterdir())
    write_csv(run_dir)
    write_csv(run_dir)
    assert set(run_dir.iterdir()) - before == {run_dir / "trials.csv"}


def test_json_is_one_document_about_the_run(run_dir: Path) -> None:
    document = json.loads(json.dumps(plain(results_of(run_dir)), allow_nan=False))
    assert document["verdict"]["decision"] == "use"
    assert document["sentence"].startswith("2.00x faster than eager")
    assert document["rows"][0]["candidate"] == "eager"
    assert document["plan"]["entries"][0]["candidate"]["label"] == "inductor freezing"
    assert document["findings"][0]["kind"] == "train-mode"


def test_json_of_an_unfinished_run_has_no_plan(small_run: Any, tmp_path: Path) -> None:
    document = plain(results_of(small_run.write(tmp_path / "cut", finished=False)))
    assert document["plan"] is None
    assert document["verdict"] is None
    assert "before a verdict" in document["sentence"]


@pytest.mark.parametrize("width", [80, 100, 140])
def test_table_fits_and_cuts_no_number(run_dir: Path, small_run: Any, width: int) -> None:
    text = printed(run_dir, small_run.plan, width)
    assert all(len(line) <= width for line in text.splitlines())
    winner = next(line for line in text.splitlines() if line.startswith("►"))
    for number in ("9.00", "1.99x [1.97-2.00]", "512"):
        assert number in winner
    assert "…" not in text


def test_table_explains_the_tilde(small_run: Any, tmp_path: Path) -> None:
    text = printed(small_run.write(tmp_path / "cut", finished=False), None, 100)
    assert "~2.00x" in text
    assert "not a proof" in text


@pytest.mark.parametrize(("width", "size"), [(80, "512"), (100, "512/256")])
def test_memory_of_a_trial_is_marked_and_the_mark_is_explained(
    run_dir: Path, small_run: Any, width: int, size: str
) -> None:
    lines = printed(run_dir, small_run.plan, width).splitlines()
    plain, winner = (
        next(line.split() for line in lines if line[2:].startswith(name)) for name in ("inductor ", "inductor f")
    )
    assert (plain[-1], winner[-1]) == (f"~{size}", size)
    assert any("~: of the trial, which also built and checked it" in line for line in lines)


def test_without_a_figure_of_a_trial_there_is_no_mark_to_explain(small_run: Any, tmp_path: Path) -> None:
    small_run.trials = small_run.trials[2:3]
    assert "~: of the trial" not in printed(small_run.write(tmp_path / "fresh"), small_run.plan, 100)


def test_sentence_and_yardstick_follow_the_table(run_dir: Path, small_run: Any) -> None:
    text = printed(run_dir, small_run.plan, 140)
    assert "inductor freezing: 2.00x faster than eager" in text
    assert "Against plain torch.compile: 1.59x faster" in text


def test_usage_can_be_pasted(small_run: Any) -> None:
    one_thread = msgspec.structs.replace(small_run.plan, process=ProcessSettings(threads=1, keep_memory=True))
    assert '    compilot.apply_process("a/plan.json")  # threads = 1, keep_memory = True' in usage(
        one_thread, Path("a/plan.json")
    )
    lines = usage(small_run.plan, Path("runs/a/plan.json")).splitlines()
    assert lines[1].strip() == "import compilot"
    assert lines[2].strip().startswith('fast = compilot.compile(model, "runs/a/plan.json")')
    assert lines[3].strip() == "# call fast under torch.no_grad()"
    assert len(lines[3]) < 80  # beside a long path it was broken in the middle
    compile("\n".join(line.strip() for line in lines[1:]), "usage", "exec")


def test_the_table_is_preceded_by_the_findings_that_matter_most(run_dir: Path, small_run: Any) -> None:
    text = printed(run_dir, small_run.plan, 120)
    assert text.index("What matters most about this model") < text.index("candidates")
    assert f"1. {small_run.finding.explanation}" in text
    assert small_run.finding.advice in text


def test_caveats_stand_below_the_sentence(run_dir: Path, small_run: Any) -> None:
    caveat = "eager raises ValueError on case 'zeros' (no input); this candidate answers instead"
    plan = small_run.plan
    entry = msgspec.structs.replace(plan.entries[0], caveats=(caveat,))
    text = " ".join(printed(run_dir, msgspec.structs.replace(plan, entries=(entry,)), 100).split())
    assert f"Note: {caveat}." in text
    assert "Note:" not in printed(run_dir, plan, 100)


def test_the_notes_of_the_chosen_ones_check_stand_below_the_verdict(small_run: Any, tmp_path: Path) -> None:
    """A few of them; those of others are on the page."""
    chosen = small_run.verdict.chosen_id

    def noted(trial: Trial) -> Trial:
        own = trial.candidate.id == chosen
        notes = tuple(f"step {number} was passed over" for number in range(1, 6)) if own else ("of another one",)
        return msgspec.structs.replace(trial, check=trial.check and msgspec.structs.replace(trial.check, notes=notes))

    small_run.trials = tuple(map(noted, small_run.trials))
    text = printed(small_run.write(tmp_path / "run"), small_run.plan, 120)
    for number in (1, 2, 3):
        assert f"Correctness check: step {number} was passed over." in text
    assert "The correctness check has 2 more notes: see the report." in text
    assert "step 4 was passed over" not in text
    assert "of another one" not in text
