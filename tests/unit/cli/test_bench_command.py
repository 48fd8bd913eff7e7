"""`compilot bench`: eager, plain torch.compile and plans side by side, with a runner that needs no process."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compilot.artifacts.planfile import save_plan
from compilot.records import Diagnosis, DynamicDim, Finding
from compilot.showing.live import LiveObserver
from compilot.trials.runner import Inspection


def test_arms_stand_side_by_side_with_a_sentence_each(fake_runner: Any, compilot: Any) -> None:
    result = compilot("bench", "net.py:net", "--plan", "plan.json", "--out", "b")
    assert result.exit_code == 0, result.stderr
    assert fake_runner.races[-1] == ("inductor", "inductor freezing")
    text = " ".join(result.stdout.split())
    assert "inductor: 1.25x faster than eager (95 % 1.24-1.26; 3 processes x 20 pairs" in text
    assert "inductor freezing (plan.json): 1.99x faster than eager" in text
    assert "pays back after" in text
    with Path("b/trials.csv").open(newline="") as file:
        assert [row["candidate"] for row in csv.DictReader(file)] == ["eager", "inductor", "inductor freezing"]


def test_progress_says_what_was_timed_as_the_sentences_do(fake_runner: Any, compilot: Any, monkeypatch: Any) -> None:
    asked: list[str] = []
    confirm = fake_runner.confirm
    monkeypatch.setattr(
        fake_runner, "confirm", lambda self, t, rules: (asked.append(rules.purpose), confirm(self, t, rules))[1]
    )
    result = compilot("bench", "net.py:net", "--plan", "plan.json", "--out", "b")
    assert "bench: 3 processes x 20 pairs\n" in result.stderr
    assert "; 3 processes x 20 pairs" in " ".join(result.stdout.split())
    assert asked == ["bench"] * 3  # and so it is called while it goes on


def test_an_eager_that_varies_much_is_said_before_the_arms(fake_runner: Any, compilot: Any, small_run: Any) -> None:
    noise = random.Random(0)
    eager = small_run.trials[0]
    rough = tuple(0.02 * noise.lognormvariate(0.0, 0.8) for _ in range(100))
    measured = msgspec.structs.replace(eager.measurement, call_s=rough)
    small_run.trials = (msgspec.structs.replace(eager, measurement=measured), *small_run.trials[1:])
    said = compilot("bench", "net.py:net", "--plan", "plan.json", "--out", "b").stderr
    assert said.index("eager's own calls vary much") < said.index("trying 2: inductor")


def test_a_steady_eager_is_not_mentioned(fake_runner: Any, compilot: Any) -> None:
    assert "vary much" not in compilot("bench", "net.py:net", "--plan", "plan.json", "--out", "b").stderr


def test_a_forgotten_eval_is_said_once(fake_runner: Any, compilot: Any, monkeypatch: Any) -> None:
    train = Finding(kind="train-mode", where="", explanation="it trains", advice="call model.eval()")
    seen = Inspection(Diagnosis(training=True, findings=(train,)), fake_runner.small.header.fingerprint)
    monkeypatch.setattr(fake_runner, "inspect", lambda self: seen)
    result = compilot("bench", "net.py:net", "--plan", "plan.json", "--out", "b")
    assert (result.stderr + result.stdout).count("call model.eval()") == 1
    assert "note: it trains; call model.eval()" in result.stderr


def test_json_has_rows_and_sentences(fake_runner: Any, compilot: Any) -> None:
    document = json.loads(compilot("bench", "net.py:net", "--plan", "plan.json", "--json").stdout)
    assert [row["speedup_from"] for row in document["rows"]] == ["baseline", "bench", "bench"]
    assert len(document["sentences"]) == 2


def test_an_arm_that_crashes_is_told_and_not_raced(fake_runner: Any, compilot: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(fake_runner, "broken", ("inductor",))
    result = compilot("bench", "net.py:net", "--plan", "plan.json")
    assert result.exit_code == 0
    assert fake_runner.races[-1] == ("inductor freezing",)
    assert "inductor: crashed: SIGSEGV while building" in " ".join(result.stdout.split())


def test_an_arm_that_dies_in_the_race_is_told_and_the_race_goes_on_without_it(
    fake_runner: Any, compilot: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(fake_runner, "dying", ("inductor",))
    result = compilot("bench", "net.py:net", "--plan", "plan.json", "--out", "b")
    assert result.exit_code == 0, result.stderr
    assert fake_runner.races == [("inductor", "inductor freezing"), ("inductor freezing",)]
    text = " ".join(result.stdout.split())
    assert "inductor: crashed: in a race: SIGBUS while timing" in text
    assert "inductor freezing (plan.json): 1.99x faster than eager" in text
    with Path("b/trials.csv").open(newline="") as file:
        assert [row["state"] for row in csv.DictReader(file)] == ["ok", "crashed", "ok"]


def test_with_every_arm_lost_the_table_still_has_eager(fake_runner: Any, compilot: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(fake_runner, "dying", ("inductor", "inductor freezing"))
    result = compilot("bench", "net.py:net", "--plan", "plan.json", "--json")
    assert result.exit_code == 0, result.stderr
    assert fake_runner.races[-1] == ()
    rows = json.loads(result.stdout)["rows"]
    assert [(row["candidate"], row["state"]) for row in rows] == [
        ("eager", "ok"),
        ("inductor", "crashed"),
        ("inductor freezing", "crashed"),
    ]


def with_workload(plan: Any, path: str, **fields: Any) -> None:
    """Save the plan as if it had been tuned for another workload."""
    workload = msgspec.structs.replace(plan.workload, **fields)
    save_plan(msgspec.structs.replace(plan, workload=workload), Path(path))


def test_plans_are_measured_with_the_dimensions_they_declare(fake_runner: Any, compilot: Any, small_run: Any) -> None:
    short, long = (DynamicDim(input="x", dim=0, min=low, max=high) for low, high in ((2, 8), (4, 64)))
    other = DynamicDim(input="y", dim=1, min=1, max=3)
    with_workload(small_run.plan, "short.json", dynamic=(short, other))
    with_workload(small_run.plan, "long.json", dynamic=(long,))
    plans = ("--plan", "short.json", "--plan", "long.json")
    assert compilot("bench", "net.py:net", *plans).exit_code == 0
    assert fake_runner.shipment.extra_dynamic == (DynamicDim(input="x", dim=0, min=2, max=64), other)
    assert fake_runner.shipment.seed is None

    compilot("bench", "net.py:net", *plans, "--dynamic", "x:0=1..4", "--seed", "7")
    assert fake_runner.shipment.extra_dynamic == (DynamicDim(input="x", dim=0, min=1, max=4), other)
    assert fake_runner.shipment.seed == 7


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_drawn_on_a_terminal_as_for_tune(
    fake_runner: Any, compilot: Any, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    begun: list[float | None] = []

    class Drawing(LiveObserver):
        def __init__(self, budget_s: float | None, *, result: bool) -> None:
            begun.append(budget_s)
            super().__init__(budget_s, result=result)

    monkeypatch.setattr("compilot.showing.live.LiveObserver", Drawing)
    monkeypatch.setattr("compilot.showing.is_terminal", lambda: terminal)
    result = compilot("bench", "net.py:net", "--plan", "plan.json", "--out", "b")
    assert result.exit_code == 0, result.stderr
    assert begun == [None] * terminal
    assert "ok: inductor freezing" in result.stderr
    assert ("[0:00]" in result.stderr) is not terminal
    assert compilot("bench", "net.py:net", "--quiet", "--out", "q").stderr == ""


def test_a_shorthand_stands_after_the_plans_dimensions_so_that_it_counts(
    fake_runner: Any, compilot: Any, small_run: Any
) -> None:
    declared = DynamicDim(input="x", dim=0, min=2, max=8)
    with_workload(small_run.plan, "dims.json", dynamic=(declared,))
    compilot("bench", "net.py:net", "--plan", "dims.json", "--dynamic", "batch=1..4")
    assert fake_runner.shipment.extra_dynamic == (declared, DynamicDim(input="*", dim=0, min=1, max=4))


def test_a_plan_tuned_for_other_inputs_says_so(fake_runner: Any, compilot: Any, small_run: Any) -> None:
    with_workload(small_run.plan, "other.json", dynamic=(DynamicDim(input="x", dim=0, min=2, max=8),), seed=5)
    result = compilot("bench", "net.py:net", "--plan", "other.json")
    assert "tuned with dynamic dimensions x:0=2..8, measured here with none" in result.stderr
    assert "tuned with seed 5, measured here with seed 0" in result.stderr


def test_a_dynamic_option_that_cannot_be_read_is_one_sentence(fake_runner: Any, compilot: Any) -> None:
    result = compilot("bench", "net.py:net", "--dynamic", "x")
    assert result.exit_code == 2
    assert "cannot read the dynamic dimension 'x'" in result.stderr


def test_arms_that_do_not_fit_in_memory_are_raced_in_groups(fake_runner: Any, compilot: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(fake_runner, "room", 2)
    result = compilot("bench", "net.py:net", "--plan", "plan.json")
    assert result.exit_code == 0, result.stderr
    assert fake_runner.races == [("inductor",), ("inductor freezing",)]
    assert "at most 2 of 4 workers live at once" in " ".join(result.stderr.split())


def test_a_plan_made_elsewhere_is_measured_and_its_differences_told(
    fake_runner: Any, compilot: Any, small_run: Any
) -> None:
    print_ = small_run.plan.fingerprint
    machine = msgspec.structs.replace(print_.machine, torch="2.12.1")
    moved = msgspec.structs.replace(small_run.plan, fingerprint=msgspec.structs.replace(print_, machine=machine))
    save_plan(moved, Path("old.json"))
    result = compilot("bench", "net.py:net", "--plan", "old.json")
    assert result.exit_code == 0
    assert "note: old.json: torch: the plan was made with 2.12.1" in result.stderr


def test_a_plan_that_keeps_eager_adds_no_arm(fake_runner: Any, compilot: Any, small_run: Any) -> None:
    save_plan(msgspec.structs.replace(small_run.plan, entries=()), Path("eager.json"))
    result = compilot("bench", "net.py:net", "--plan", "eager.json")
    assert fake_runner.races[-1] == ("inductor",)
    assert "eager.json keeps the model eager" in result.stderr


def test_a_missing_plan_is_one_sentence(fake_runner: Any, compilot: Any) -> None:
    result = compilot("bench", "net.py:net", "--plan", "none.json")
    assert result.exit_code == 2
    assert "cannot read plan none.json" in result.stderr


def test_a_trace_is_what_every_arm_replays(fake_runner: Any, compilot: Any, tmp_path: Path) -> None:
    (tmp_path / "sizes.txt").write_text("x:0=4\n" * 300 + "x:0=9\n" * 100)
    how = ("--trace", "sizes.txt", "--plan", "plan.json", "--quiet")
    result = compilot("bench", "net.py:net", *how, "--out", "one", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["sizes"]
    assert [row["policy"] for row in found["rows"]] == ["eager", "plan.json"]  # a whole plan, with its own files
    assert (found["requests"], found["calls"], found["distinct"], found["processes"]) == (128, 400, 2, 3)
    assert found["rows"][1]["versus_eager"]["pairs"] == 128
    shown = compilot("bench", "net.py:net", *how, "--out", "again").stdout
    assert "128 requests of the trace (400 calls, 2 sizes" in " ".join(shown.split())
    shipment = fake_runner.shipment
    sizes = [call.sizes["x:0"] for call in shipment.replay]
    assert (sizes.count(4), sizes.count(9)) == (96, 32)
    assert (shipment.replay_ranges["x:0"].min, shipment.replay_ranges["x:0"].max) == (4, 9)
    (tmp_path / "sizes.txt").write_text("x:0=4\nx:0=-9\n")
    refused = compilot("bench", "net.py:net", "--trace", "sizes.txt", "--out", "two", "--quiet")
    assert refused.exit_code == 2
    assert "line 2 of the shape trace: the size -9 of x:0 is negative" in refused.stderr


# --------------------------------------------------------------------------------------------------------- batch sizes


def test_batch_sizes_are_a_table_of_their_own_with_a_recommendation(fake_runner: Any, compilot: Any) -> None:
    how = ("--plan", "plan.json", "--batch-sizes", "4,1,2", "--out", "b")
    result = compilot("bench", "net.py:net", *how)
    assert result.exit_code == 0, result.stderr
    assert fake_runner.shipment.extra_dynamic[-1] == DynamicDim(input="*", dim=0, min=1, max=4, widens=True)
    text = " ".join(result.stdout.split())
    assert "batch sizes" in text
    assert "eager: max_batch_size 1 (100" in text  # the fake takes as long for each sample
    assert "batches.csv" in text
    with Path("b/batches.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["batch"] for row in rows] == ["1", "2", "4"] * 3


def test_batch_sizes_in_json(fake_runner: Any, compilot: Any) -> None:
    document = json.loads(compilot("bench", "net.py:net", "--batch-sizes", "1,2", "--json", "--quiet").stdout)
    assert [(point["candidate"], point["batch"]) for point in document["batches"]["points"]][:2] == [
        ("eager", 1),
        ("eager", 2),
    ]
    assert json.loads(compilot("bench", "net.py:net", "--json", "--quiet").stdout)["batches"] is None


def test_a_declared_batch_counts_more_than_the_sizes(fake_runner: Any, compilot: Any) -> None:
    how = ("--batch-sizes", "1,2", "--dynamic", "batch=1..64")
    assert compilot("bench", "net.py:net", *how).exit_code == 0
    assert fake_runner.shipment.extra_dynamic == (DynamicDim(input="*", dim=0, min=1, max=64),)


@pytest.mark.parametrize("sizes", ["", "0", "1,x", "1.5", "-2", ",".join(map(str, range(1, 40)))])
def test_what_is_no_batch_size_is_refused(fake_runner: Any, compilot: Any, sizes: str) -> None:
    result = compilot("bench", "net.py:net", "--batch-sizes", sizes)
    assert result.exit_code == 2
    assert "batch size" in result.stderr
