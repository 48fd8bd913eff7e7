"""One run that is ended four times, each time in another stage and by another signal, and goes on each time.

The whole list of moments is bench/kills.py's; these are what the suite can afford. The model sleeps, so that the winner
is known (it leads eager six times and its rival twice), and the disk is slow, so that the moments can be met.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compilot.artifacts import journal as journals
from compilot.artifacts.planfile import load_plan
from compilot.records import JournalLine, RaceLine, TrialLine

BENCH = Path(__file__).parents[2] / "bench"
STRIKES = (  # moment, signal, what is left: lines of trials but eager's, and of races
    ("the first candidate is being built", "KILL", 0, 0),
    ("in the race", "INT", 2, 0),
    ("its processes begin", "TERM", 2, 1),
    ("the plan is being written", "KILL", 2, 2),
)

pytestmark = pytest.mark.measures


@pytest.fixture
def kills(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(BENCH))
    import kills

    yield kills
    for name in ("kills", "kills_moments"):
        sys.modules.pop(name, None)


def counted(lines: list[JournalLine]) -> tuple[int, int]:
    """Trials but eager's, and races."""
    trials = [line for line in lines if isinstance(line, TrialLine) and not line.trial.candidate.is_eager]
    return len(trials), sum(isinstance(line, RaceLine) for line in lines)


def test_a_run_ended_in_every_stage_leaves_no_process_and_no_half_file_and_repeats_nothing(
    kills: Any, tmp_path: Path
) -> None:
    run, before, how = tmp_path / "run", [], "--out"
    for name, sent, trials, races in STRIKES:
        tuning = kills.Tuning(tmp_path, how, "run", sets=1, disk_s=kills.DISK_S)
        (moment,) = kills.moments((name,))
        assert tuning.until(moment, random.Random(0)), (tmp_path / "stderr").read_text()
        assert len(tuning.alive()) >= 2 or moment.stage == "plan"  # itself and workers: there is something to leave
        tuning.process.send_signal(kills.SIGNALS[sent])
        took_s, orphans = tuning.gone()
        assert orphans == ()
        assert took_s < kills.GONE_S
        assert tuning.process.returncode == (-9 if sent == "KILL" else 130)
        said = (tmp_path / "stderr").read_text()
        assert "Traceback" not in said
        assert sent == "KILL" or said.endswith(f"--resume {run.name}\n")
        assert not (run / "plan.json").exists()
        assert kills.littered(tmp_path, after_kill=sent == "KILL") == []
        lines = journals.read(run / "journal.jsonl")
        assert lines[: len(before)] == before
        assert counted(lines) == (trials, races), name
        before, how = lines, "--resume"
    assert kills.resume(tmp_path, before, sets=1) == ("use quick", [])
    # the first build did not end; equal promises are asked for in the order that --engines has
    assert (tmp_path / "builds").read_text().split() == ["quick", "quick", "middling"]
    assert counted(journals.read(run / "journal.jsonl")) == (2, 2)
    assert load_plan(run / "plan.json").entries[0].candidate.label == "quick"
    assert [path.name for path in run.iterdir() if path.name.startswith(".")] == []
