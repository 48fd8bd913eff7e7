"""Rows are what the journal's raw samples say, and the best source of a speed-up wins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from compilot.artifacts.journal import Journal
from compilot.errors import RunDirError
from compilot.records import Candidate, Check, Measurement, Precision, Settings, State, Trial, WarmStartLine
from compilot.report import read_run


def rows(run_dir: Path) -> dict[str, Any]:
    return {row["candidate"]: row for row in read_run(run_dir).rows}


def test_one_row_per_candidate_in_the_order_tried(run_dir: Path) -> None:
    assert list(rows(run_dir)) == [
        "eager",
        "inductor",
        "inductor freezing",
        "inductor reduce-overhead",
        "inductor cpp_wrapper",
    ]


def test_figures_come_from_the_samples(run_dir: Path) -> None:
    plain = rows(run_dir)["inductor"]
    assert plain["p50_ms"] == pytest.approx(16.0, rel=0.01)
    assert plain["samples_per_s"] == pytest.approx(4 / 0.016, rel=0.01)
    assert (plain["cold_s"], plain["compiler_runs"], plain["compile_cpu_s"]) == (6.0, 3, 9.0)
    assert (plain["peak_rss_mib"], plain["steady_rss_mib"], plain["batch"]) == (512.0, 256.0, 4)


def test_tails_are_refused_when_calls_are_too_few(run_dir: Path) -> None:
    found = rows(run_dir)
    assert found["eager"]["p99_ms"] is not None  # 700 calls
    assert found["inductor"]["p95_ms"] is None  # 90 calls
    assert found["inductor"]["calls"] == 90


def test_fresh_processes_give_the_calls_and_the_warm_start(run_dir: Path) -> None:
    winner = rows(run_dir)["inductor freezing"]
    assert winner["calls"] == 662
    assert winner["warm_s"] == 0.5  # the median of three
    assert winner["p99_ms"] is not None


def test_memory_says_which_process_it_is_of(small_run: Any, run_dir: Path, tmp_path: Path) -> None:
    found = rows(run_dir)
    assert found["inductor freezing"]["memory_from"] == "fresh process"
    assert found["inductor"]["memory_from"] == "trial"  # nobody started it again
    assert found["inductor cpp_wrapper"]["memory_from"] == ""  # it has no figure
    unfinished = rows(small_run.write(tmp_path / "cut", finished=False))
    assert unfinished["inductor freezing"]["memory_from"] == "trial"


def test_a_fresh_process_whose_memory_nobody_saw_leaves_the_trials(run_dir: Path, small_run: Any) -> None:
    unseen = Measurement(cold_s=0.5, cold_cache=False)
    with Journal.open(run_dir / "journal.jsonl") as journal:
        journal.append(WarmStartLine(candidate_id=small_run.trials[1].candidate.id, measurement=unseen))
    plain = rows(run_dir)["inductor"]
    assert (plain["warm_s"], plain["peak_rss_mib"], plain["memory_from"]) == (0.5, 512.0, "trial")


def test_confirmation_beats_screening(run_dir: Path) -> None:
    winner = rows(run_dir)["inductor freezing"]
    assert winner["speedup_from"] == "confirm"
    assert winner["speedup_low"] < winner["speedup"] < winner["speedup_high"]
    assert winner["speedup"] == pytest.approx(2.0, rel=0.05)


def test_without_a_race_the_screening_counts_but_has_no_interval(small_run: Any, tmp_path: Path) -> None:
    found = rows(small_run.write(tmp_path / "cut", finished=False))
    winner = found["inductor freezing"]
    assert winner["speedup"] == pytest.approx(2.0)
    assert (winner["speedup_low"], winner["speedup_from"], winner["chosen"]) == (None, "screening", False)


def test_failed_candidates_say_why_and_claim_nothing(run_dir: Path) -> None:
    wrong = rows(run_dir)["inductor cpp_wrapper"]
    assert wrong["state"] == "wrong"
    assert "above the limit" in wrong["note"]
    assert wrong["speedup"] is None
    assert wrong["p50_ms"] is None


def test_a_twin_names_its_twin_and_has_no_cold_start_of_its_own(run_dir: Path) -> None:
    twin = rows(run_dir)["inductor reduce-overhead"]
    assert twin["note"] == "same program as inductor; not measured twice"
    assert twin["cold_s"] is None


def test_a_directory_without_a_run_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(RunDirError, match="no journal"):
        read_run(tmp_path)


def test_a_lower_precision_is_named_with_the_error_seen(small_run: Any, tmp_path: Path) -> None:
    check = Check(passed=True, why="fine", reference="float64", tolerance=0.05, relative_error=0.0123)
    wrong = msgspec.structs.replace(check, passed=False, relative_error=0.4)
    small_run.trials += (
        Trial(candidate=_small("close"), state=State.OK, reason="fine", check=check),
        Trial(candidate=_small("far"), state=State.WRONG, reason="RMSE 4 > 1; relative error 40 %", check=wrong),
    )
    found = rows(small_run.write(tmp_path / "run"))
    assert (found["close"]["precision"], found["close"]["relative_error"]) == ("int8-dynamic", 0.0123)
    assert found["close"]["note"] == "in int8-dynamic: relative error 1.2 % (tolerance 5 %)"
    assert (found["far"]["relative_error"], found["far"]["state"]) == (0.4, "wrong")
    assert "relative error 40 %" in found["far"]["note"]
    assert (found["inductor"]["precision"], found["inductor"]["relative_error"]) == ("as-is", None)


def _small(label: str) -> Candidate:
    settings = Settings(engine="onnxruntime", precision=Precision.INT8_DYNAMIC, options={"label": label})
    return Candidate(settings=settings, label=label, rationale="test")
