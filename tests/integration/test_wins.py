"""A candidate wins, for real, and serves: from Python, from the command line, and in processes that come later.

The model is two hundred operators over a few numbers: ONNX Runtime needs a fifth of eager's time or less, also on a
machine with four times as much to do as it has cores, so the decision is known.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "data"))
import deciding
import serve_plan

import compilot
from compilot.artifacts.planfile import load_plan
from compilot.records import Plan
from compilot.tuning import budget
from compilot.tuning.budget import Budget

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
DATA = Path(__file__).parent.parent / "data"
TARGET = f"{DATA / 'deciding.py'}:long_chain"
SAFE = 2.0  # times as fast as eager, by the lower end of the interval: far from any margin
SHORTEST_S = 1.0  # however short the budget, one candidate is tried and confirmed
PATIENCE_S = 900.0  # a busy machine may take its time for a step of the trial, and for the confirmation
PATIENT = f"""
from compilot.tuning import budget
budget.OVERRUN_S = {PATIENCE_S}
budget.Budget.trial_cap_s = lambda self, reserve_s: {PATIENCE_S}
from compilot.cli.main import run
run()
"""

pytestmark = pytest.mark.measures


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, Path]:
    """Tuned from Python with a live model."""
    folder = tmp_path_factory.mktemp("wins") / "run"
    model, args = deciding.long_chain()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "OVERRUN_S", PATIENCE_S)
        patch.setattr(Budget, "trial_cap_s", lambda self, reserve_s: PATIENCE_S)
        patch.setattr(budget, "CONFIRM_PROCESSES", 1)  # the command line's run has all three
        plan = compilot.tune(model, args, budget=SHORTEST_S, engines=["onnxruntime"], out=folder)
    return plan, folder


def files(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*") if path.is_file()}


def is_served(told: dict[str, Any]) -> None:
    """Every answer right, and every one the engine's."""
    assert len(told["errors"]) == serve_plan.CALLS
    assert max(told["errors"]) < 1e-4
    assert (told["calls"], told["fast"], told["fallbacks"]) == (serve_plan.CALLS, serve_plan.CALLS, {})
    assert told["forwards"] == 0


def test_the_winner_is_in_the_plan_with_its_proof(run: tuple[Plan, Path]) -> None:
    plan, folder = run
    (entry,) = plan.entries
    assert entry.candidate.settings.engine == "onnxruntime"
    assert entry.artifacts
    assert "faster than eager" in entry.sentence
    verdict = json.loads((folder / "journal.jsonl").read_text().splitlines()[-1])["verdict"]
    assert verdict["decision"] == "use"
    assert verdict["chosen_id"] == entry.candidate.id
    (mine,) = [c for c in verdict["comparisons"] if c["candidate_id"] == entry.candidate.id]
    assert mine["low"] > SAFE


def test_its_calls_are_served_by_the_engine_in_this_process(run: tuple[Plan, Path]) -> None:
    plan, _ = run
    model, args = deciding.long_chain()
    is_served(serve_plan.served(model, args, plan))
    with torch.no_grad():
        fast = compilot.compile(model, plan)
        assert not torch.equal(fast(*args), fast(args[0] + 1.0))  # it computes, it does not remember


def test_a_later_process_serves_from_the_files_and_builds_nothing(run: tuple[Plan, Path], tmp_path: Path) -> None:
    _, folder = run
    before = files(folder / "work")
    assert before
    env = {**os.environ, "PATH": "/nonexistent", "CXX": "/nonexistent/g++", "COMPILOT_CACHE": str(tmp_path)}
    command = [sys.executable, str(DATA / "serve_plan.py"), str(DATA / "deciding.py"), "long_chain"]
    done = subprocess.run([*command, str(folder / "plan.json")], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    is_served(told)
    assert told["engine"]
    assert told["heavy"] == []  # neither exporter nor compiler was imported
    assert [one for one in told["programs"] if "--version" not in one] == []  # the compiler's version may be asked for
    (said,) = told["warnings"]  # of that, and of nothing else
    assert "C++ compiler: the plan was made with" in said
    assert said.count(":") == 2
    assert told["compiles"] == 0
    assert files(folder / "work") == before


def test_the_command_line_finds_the_same_winner(tmp_path: Path) -> None:
    def compilot_(*words: str) -> Any:
        command = [sys.executable, "-c", PATIENT, *words, "--json"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    document = compilot_("tune", TARGET, "--engines", "onnxruntime", "--budget", f"{SHORTEST_S}s", "--out", "run")
    plan = load_plan(tmp_path / "run" / "plan.json")
    assert document["verdict"]["decision"] == "use"
    assert [entry.candidate.settings.engine for entry in plan.entries] == ["onnxruntime"]
    assert document["sentence"] == plan.entries[0].sentence
    assert "3 processes" in plan.entries[0].sentence
    model, args = deciding.long_chain()
    is_served(serve_plan.served(model, args, tmp_path / "run" / "plan.json"))
