"""bench/engines.py: arms by hand that are given the plan's settings, the mean over models, steps, runs of others."""

from __future__ import annotations

import math
import random
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

import engines
import engines_mean
import engines_table as table
from compilot.records import ProcessSamples, ProcessSettings
from engines_journal import GIVEN_SCREENING, JUDGED, SCREENING, Built, Journal, Raced, Tuned
from stepping import DONE, MORE

RESULTS = Path(engines.__file__).parent / "results" / "engines"
ONE_THREAD = ProcessSettings(threads=1, keep_memory=True)
MS = {"eager": 4.0, "compile": 3.0, "tuned": 3.0, "onnxruntime": 1.0, "openvino": 1.5, "aoti": 3.0, "compilot": 1.0}


class Machine:
    """Arms take as long as they are told; one with the plan's settings a share of that."""

    def __init__(self, given: float = 0.8, plan_ms: float = 0.8) -> None:
        self.ms = {**MS, "compilot": plan_ms, **{f"{arm}_given": given * MS[arm] for arm in table.BY_HAND}}
        self.built: list[str] = []
        self.raced: list[tuple[str, tuple[str, ...]]] = []

    def build(self, work: Path, model: str, arm: str) -> Built:
        self.built.append(arm)
        return Built(model=model, arm=arm, ok=True)

    def race_once(self, work: Path, model: str, arms: Sequence[str], *, name: str, process: int, pairs: int) -> Raced:
        self.raced.append((name, tuple(arms)))
        noise = random.Random(process)
        rows = tuple(tuple(self.ms[arm] * noise.uniform(0.995, 1.005) for arm in arms) for _ in range(pairs))
        samples = ProcessSamples(rounds=rows)
        return Raced(model=model, race=name, process=process, arms=tuple(arms), samples=samples)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    found = Machine()
    monkeypatch.setattr(engines.engines_arms, "build", found.build)
    monkeypatch.setattr(engines.engines_arms, "race_once", found.race_once)
    return found


def planned(out: Path, process: ProcessSettings = ONE_THREAD, source: str = "") -> list[str]:
    """A journal that has the tune already; the command line that goes on with it."""
    tuned = Tuned(model="mlp", ok=True, wall_s=1.0, budget="2m", label="plan", process=process, source=source)
    Journal(out / "journal.jsonl").append(tuned)
    return ["--only", "mlp", "--out", str(out), "--work", str(out / "work")]


def test_arms_by_hand_are_given_the_plans_settings_in_a_screening_of_their_own(
    machine: Machine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert engines.main(planned(tmp_path)) == DONE
    screenings = dict(machine.raced)
    assert screenings[SCREENING] == engines.ARMS
    assert screenings[GIVEN_SCREENING] == ("eager", *table.BY_HAND_GIVEN)
    assert screenings[JUDGED] == ("compile", "onnxruntime", "compilot", "onnxruntime_given")
    row = table.row(Journal(tmp_path / "journal.jsonl"), "mlp")
    assert (row.best, row.best_given) == ("onnxruntime", "onnxruntime_given")
    assert row.plan_best is not None
    assert row.plan_given is not None
    assert row.plan_best.ratio == pytest.approx(1.25, rel=0.01)  # settings to the plan only
    assert row.plan_given.ratio == pytest.approx(1.0, rel=0.01)  # to both
    assert row.settings == "1 thread, memory kept"
    assert "ONNX Runtime with its settings" in capsys.readouterr().out


def test_settings_that_harm_the_arms_by_hand_are_not_held_against_them(machine: Machine, tmp_path: Path) -> None:
    machine.ms.update(Machine(given=1.5).ms)
    engines.main(planned(tmp_path))
    row = table.row(Journal(tmp_path / "journal.jsonl"), "mlp")
    assert row.best_given == "onnxruntime"
    assert row.plan_given == row.plan_best


def test_a_plan_without_settings_has_nothing_to_give(machine: Machine, tmp_path: Path) -> None:
    engines.main(planned(tmp_path, ProcessSettings()))
    assert not [arm for arm in machine.built if arm.endswith("_given")]
    row = table.row(Journal(tmp_path / "journal.jsonl"), "mlp")
    assert row.plan_given == row.plan_best is not None


def test_a_plan_that_is_below_only_where_its_settings_are_given_is_raced_again_and_marked(
    machine: Machine, tmp_path: Path
) -> None:
    machine.ms["compilot"] = 0.9
    engines.main(planned(tmp_path))
    row = table.row(Journal(tmp_path / "journal.jsonl"), "mlp")
    assert row.verdict == "met"
    assert row.again_given is not None
    assert table.shown_below(row)
    assert table.markdown([row]).splitlines()[2].endswith("| yes |")


def test_steps_and_exit_codes(machine: Machine, tmp_path: Path) -> None:
    argv = planned(tmp_path)
    codes = [engines.main([*argv, "--steps", "4"])]
    while codes[-1] == MORE:
        codes.append(engines.main([*argv, "--steps", "4"]))
        assert len(codes) < 20
    steps = len(machine.built) + len(machine.raced)
    assert steps == 7 + 5 + 1 + 1 + 3
    assert len(codes) == math.ceil(steps / 4)
    assert len(set(machine.built)) == len(machine.built)
    assert engines.main([*argv, "--steps", "0"]) == DONE


# ---------------------------------------------------------------------------------------------- runs of another bench


@pytest.fixture
def runs(tmp_path: Path, run_dir: Path) -> Path:
    """What bench/regret.py leaves: a run folder per model."""
    shutil.copytree(run_dir, tmp_path / "runs" / "mlp")
    return tmp_path / "runs"


def test_runs_of_another_bench_are_taken_as_they_are(
    machine: Machine, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(engines.TUNE, "")
    monkeypatch.setattr(engines.tune_runs, "tune", lambda *given: pytest.fail("tuned again"))
    argv = ["--only", "mlp", "--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]
    assert engines.main([*argv, "--tune-from", str(runs)]) == DONE
    tuned = Journal(tmp_path / "out" / "journal.jsonl").tuned("mlp")
    assert tuned is not None
    assert tuned.ok
    assert tuned.source == str(runs.resolve())
    with pytest.raises(SystemExit, match=r"the journal has a plan for mlp from .*; name another --out"):
        engines.main(argv)


def test_a_run_that_is_not_there_is_refused_before_anything_starts(machine: Machine, tmp_path: Path) -> None:
    argv = ["--only", "mlp", "--out", str(tmp_path / "out"), "--tune-from", str(tmp_path)]
    with pytest.raises(SystemExit, match=r"has no plan for mlp; run bench/regret\.py for it first"):
        engines.main(argv)
    assert machine.built == []


# ------------------------------------------------------------------------------------------------ the mean over models


def logs(ratio: float, seed: int, spread: float = 0.005) -> list[list[float]]:
    noise = random.Random(seed)
    return [[math.log(ratio) + noise.gauss(0.0, spread) for _ in range(40)] for _ in range(3)]


def test_the_mean_is_geometric_and_its_interval_covers_models_too() -> None:
    alike = engines_mean.mean_over([logs(1.05, n) for n in range(12)])
    apart = engines_mean.mean_over([logs(1.05**2 if n % 2 else 1.0, n) for n in range(12)])
    assert alike is not None
    assert apart is not None
    assert alike.ratio == pytest.approx(1.05, abs=0.003)
    assert apart.ratio == pytest.approx(1.05, abs=0.003)
    assert alike.low < alike.ratio < alike.high
    assert apart.high - apart.low > 5 * (alike.high - alike.low)
    assert (alike.models, engines_mean.mean_over([])) == (12, None)


def test_a_model_without_an_interval_leaves_the_mean_open() -> None:
    assert engines_mean.mean_over([logs(1.05, 1), [[0.1, 0.1]]]) is None


@pytest.mark.parametrize(("ratio", "met"), [(1.05, "met"), (1.01, "not met")])
def test_the_line_says_whether_the_aim_is_met_and_what_is_missing(tmp_path: Path, ratio: float, met: str) -> None:
    row = table.row(Journal(tmp_path / "journal.jsonl"), "mlp")
    rows = [row._replace(logs_best=logs(ratio, n), logs_given=None) for n in range(4)]
    plan_only, both = engines_mean.lines([*rows, row._replace(model="lstm")])
    told = re.search(r"settings to the plan only: (\S+)x", plan_only)
    assert told is not None
    assert float(told[1]) == pytest.approx(ratio, abs=0.003)
    assert "geometric mean of 4 models; without lstm" in plan_only
    assert plan_only.endswith(f": {met}")
    assert both.endswith("settings given to both: not measured")


# -------------------------------------------------------------------------------------------------- journals of before


def test_a_journal_of_before_is_read_as_it_is() -> None:
    old = Journal(RESULTS / "journal.jsonl")
    row = table.row(old, "mlp")
    assert row.plan_best is not None
    assert row.plan_best.ratio == pytest.approx(1.09, abs=0.01)  # as its table.md has it
    assert row.plan_given == row.plan_best
    assert row.settings == ""


def test_a_journal_of_another_bench_is_refused(tmp_path: Path) -> None:
    line = msgspec.json.encode({"type": "looked", "model": "mlp"})
    (tmp_path / "journal.jsonl").write_bytes(line + b"\n")
    with pytest.raises(SystemExit, match="line 1 was written by another version of this bench"):
        engines.main(["--table", "--out", str(tmp_path)])
