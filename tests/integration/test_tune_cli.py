"""The commands for real: worker processes, a compiler, small budgets. An unknown decision is not asked for."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from compilot.artifacts.planfile import load_plan

EXAMPLES = Path(__file__).parents[2] / "examples"
TINY = f"{EXAMPLES / 'tiny.py'}:mlp"
CERTAIN = f"{Path(__file__).parents[1] / 'data' / 'deciding.py'}:long_chain"  # ONNX Runtime wins it (test_wins.py)
COMPILOT = [sys.executable, "-c", "from compilot.cli.main import run; run()"]
PATIENT = """
from compilot.tuning import budget
budget.OVERRUN_S = 900.0
budget.Budget.trial_cap_s = lambda self, reserve_s: 900.0
from compilot.cli.main import run
run()
"""  # a busy machine may take its time for a trial and for the confirmation
SHORTEST = "1s"  # however short the budget, one candidate is tried and confirmed, with the fewest rounds
GONE_WITHIN_S = 5.0  # what an interrupted run promises: everything ended by then

pytestmark = pytest.mark.compiles


def compilot(*arguments: str, cwd: Path, program: list[str] = COMPILOT) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*program, *arguments], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.measures
def test_tune_writes_a_plan_that_bench_can_measure(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    command = ("tune", CERTAIN, "--budget", SHORTEST, "--engines", "onnxruntime", "--json", "--out", "run")
    done = compilot(*command, cwd=tmp_path, program=[sys.executable, "-c", PATIENT])
    document = json.loads(done.stdout)
    rows = document["rows"]
    assert (rows[0]["candidate"], rows[0]["state"]) == ("eager", "ok")
    assert len(rows) >= 2
    assert rows[0]["p50_ms"] > 0
    [entry] = load_plan(tmp_path / "run" / "plan.json").entries
    assert entry.candidate.settings.engine == "onnxruntime"
    assert document["verdict"]["decision"] == "use"
    assert document["verdict"]["chosen_id"] == entry.candidate.id
    assert document["sentence"] == entry.sentence
    with (tmp_path / "run" / "trials.csv").open(newline="") as file:
        assert [row["id"] for row in csv.DictReader(file)] == [row["id"] for row in rows]
    assert 'id="candidates"' in (tmp_path / "run" / "report.html").read_text()

    options = ("--plan", "run/plan.json", "--pairs", "6", "--processes", "1", "--json")
    measured = json.loads(compilot("bench", CERTAIN, *options, cwd=tmp_path).stdout)
    assert measured["rows"][0]["speedup_from"] == "baseline"
    raced = [row for row in measured["rows"][1:] if row["state"] == "ok"]
    assert entry.candidate.id in [row["id"] for row in raced]
    assert {row["speedup_from"] for row in raced} == {"bench"}
    assert len(raced) == len(measured["sentences"]) == len(measured["rows"]) - 1 == 2  # torch.compile is the other


@pytest.mark.measures
@pytest.mark.parametrize(
    ("sent", "budget", "go_on"),
    [
        pytest.param(signal.SIGINT, "5m", ["--engines", "eager"], id="SIGINT"),  # with the doctor, resumed to eager
        pytest.param(signal.SIGTERM, "50s", [], id="SIGTERM"),  # without, resumed to a confirmed candidate
    ],
)
def test_an_interrupted_run_leaves_no_process_and_can_be_resumed(
    tmp_path: Path, sent: signal.Signals, budget: str, go_on: list[str]
) -> None:
    journal = tmp_path / "run" / "journal.jsonl"
    command = [*COMPILOT, "tune", TINY, "--budget", budget, "--out", "run"]
    started = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts)
    with started as process:
        wait_for(lambda: journal.exists() and b'"trial"' in journal.read_bytes(), process)
        workers = psutil.Process(process.pid).children(recursive=True)
        begin = time.monotonic()
        process.send_signal(sent)
        _, stderr = process.communicate(timeout=60)
        _, alive = psutil.wait_procs(workers, timeout=10)
        gone_after_s = time.monotonic() - begin
    assert process.returncode == 130
    assert stderr.endswith(f"interrupted; resume with: compilot tune {TINY} --resume run\n")
    assert workers
    assert not [worker for worker in alive if worker.status() != psutil.STATUS_ZOMBIE]
    assert gone_after_s < GONE_WITHIN_S
    assert not (tmp_path / "run" / "plan.json").exists()

    command = ["tune", TINY, "--budget", SHORTEST, "--resume", "run", "--json", *go_on]
    document = json.loads(compilot(*command, cwd=tmp_path).stdout)
    assert [row["candidate"] for row in document["rows"]].count("eager") == 1
    assert (tmp_path / "run" / "plan.json").exists()


@pytest.mark.measures
def test_ctrl_c_once_something_is_faster_confirms_it_and_leaves_no_process(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    journal = tmp_path / "run" / "journal.jsonl"
    command = ["tune", CERTAIN, "--budget", "10m", "--engines", "onnxruntime,inductor", "--out", "run", "--json"]
    program = [sys.executable, "-c", PATIENT, *command]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    alone: dict[str, Any] = {"process_group": 0, "preexec_fn": heed_interrupts}
    with subprocess.Popen(program, cwd=tmp_path, **pipes, text=True, **alone) as process:
        wait_for(lambda: journal.exists() and faster(journal), process)
        tried = journal.read_bytes().count(b'"trial"')
        time.sleep(2.0)  # into the next trial
        os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to all of the group
        out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    document = json.loads(out)
    assert document["verdict"]["decision"] == "use"
    assert "; ended early, after " in document["verdict"]["because"]
    assert "note: ended early: the best so far is confirmed now" in err
    assert journal.read_bytes().count(b'"trial"') <= tried + 2
    assert not [row for row in document["rows"] if row["state"] == "crashed"]
    [entry] = load_plan(tmp_path / "run" / "plan.json").entries
    assert entry.evidence.versus_eager is not None
    assert not [p for p in psutil.process_iter(["cwd"]) if p.info["cwd"] == str(tmp_path) and p.pid != os.getpid()]


def faster(journal: Path) -> bool:
    """Whether some candidate is clearly faster than eager in what the journal has so far."""
    with journal.open(encoding="utf-8") as lines:
        pairs = [trial.get("screening") or () for trial in map(trial_in, lines) if trial["state"] == "ok"]
    return any(statistics.median(a / b for a, b in screening) > 1.5 for screening in pairs if screening)


def trial_in(line: str) -> dict[str, Any]:
    """The trial of a journal's line; one without a state for any other line, or for half of one."""
    with contextlib.suppress(ValueError):
        if (found := json.loads(line)).get("type") == "trial":
            return found["trial"]  # type: ignore[no-any-return]
    return {"state": ""}


def heed_interrupts() -> None:
    """A shell's background jobs ignore Ctrl-C, and so would everything started from there."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_for(ready: object, process: subprocess.Popen[str]) -> None:
    while not ready():  # type: ignore[operator]
        assert process.poll() is None, "the run ended before it could be interrupted"
        time.sleep(0.05)


def test_keeping_eager_is_a_result_and_not_an_error(tmp_path: Path) -> None:
    slower = ("--engines", "dynamo:eager")  # eager's own code behind guards
    done = compilot("tune", TINY, *slower, "--budget", "20s", "--json", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0
    assert json.loads(done.stdout)["verdict"]["decision"] == "keep-eager"
    assert not load_plan(tmp_path / "run" / "plan.json").entries


def test_a_factory_that_the_file_does_not_have_is_one_sentence(tmp_path: Path) -> None:
    command = [*COMPILOT, "tune", f"{EXAMPLES / 'tiny.py'}:nothing", "--quiet", "--out", "run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "nothing" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_env_finds_compiler_engines_and_noise(tmp_path: Path) -> None:
    document = json.loads(compilot("env", "--json", "--aa-pairs", "20", cwd=tmp_path).stdout)
    assert document["engines"]["inductor"]["ok"]
    assert document["aa"]["pairs"] == 20
    assert document["machine"]["cores"] == len(os.sched_getaffinity(0))


def test_the_python_example_runs(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "python_api.py"), "--budget", SHORTEST, "--out", str(tmp_path / "run")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "same answers as eager" in done.stdout
    assert (tmp_path / "run" / "plan.json").exists()
