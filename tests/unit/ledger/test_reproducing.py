"""A claim is measured again on a runner that runs nothing: it holds, it does not hold, or nobody can say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from compilot.artifacts.rundir import RunDir
from compilot.engines.eager.build import EAGER
from compilot.ledger.entries import RunState, read_entry
from compilot.ledger.repeating import Repeat, Reproduced, judged
from compilot.progress import Observer
from compilot.records import (
    PLAN_SCHEMA,
    Candidate,
    Comparison,
    Evidence,
    Fingerprint,
    Guard,
    Outcome,
    Plan,
    PlanEntry,
    Settings,
    Shipment,
    State,
    WorkloadRef,
)
from compilot.testing.runner import FakeRunner, Fate, fake_fingerprint
from compilot.trials.runner import Inspection
from compilot.tuning.budget import Budget
from compilot.tuning.reproducing import Claimed, reproduce

FAST = Candidate(settings=Settings(engine="inductor"), label="fast", rationale="a test")


def comparison(ratio: float, width: float = 0.01, outcome: Outcome = Outcome.FASTER) -> Comparison:
    return Comparison(
        candidate_id=FAST.id,
        baseline_id=EAGER.id,
        ratio=ratio,
        low=ratio * (1 - width),
        high=ratio * (1 + width),
        outcome=outcome,
        margin=0.02,
        mde=0.02,
        aa_noise=0.01,
        processes=3,
        pairs=40,
    )


def plan(claimed: Comparison | None, fingerprint: Fingerprint) -> Plan:
    guard = Guard(positional=1, keywords=(), tensors=())
    entry = PlanEntry(guard=guard, candidate=FAST, evidence=Evidence(versus_eager=claimed), sentence="2x")
    return Plan(
        schema=PLAN_SCHEMA,
        compilot="0",
        created="2026-01-01T00:00:00+00:00",
        workload=WorkloadRef(label="Fake"),
        fingerprint=fingerprint,
        because="2x",
        entries=(entry,),
    )


def again(
    folder: Path,
    fate: Fate,
    *,
    claimed: Comparison | None = comparison(2.0),  # noqa: B008  # a record
    made_for: Fingerprint | None = None,
    budget_s: float = 120.0,
    rebuild: str = "its files are not there",
    **how: Any,
) -> tuple[Reproduced, FakeRunner]:
    """The claim measured on a machine where the candidate behaves so."""
    made = plan(claimed, made_for or fake_fingerprint())
    runner = FakeRunner({"fast": fate}, eager_call_s=0.02, **how)
    claim = Claimed(made, made.entries[0], Shipment(sys_path=(), cwd=""), rebuild)
    budget = Budget(budget_s, clock=runner.clock)
    with runner:
        return reproduce(claim, runner, RunDir.make(folder / "again"), budget, Observer()), runner


def test_a_claim_holds(tmp_path: Path) -> None:
    found, runner = again(tmp_path, Fate(speed=2.0))
    assert found.result is Repeat.HOLDS
    assert found.claimed == comparison(2.0)
    assert found.measured is not None
    assert found.measured.low < 2.0 < found.measured.high
    assert "claimed 2.00x" in found.because
    assert runner.tried == ["eager", "fast"]
    assert len(runner.confirmed) >= 3
    entry = read_entry(RunDir(found.run_dir))
    assert (entry.state, entry.trials) == (RunState.COMPARED, {"ok": 2})


def test_the_runs_own_files_are_not_built_again(tmp_path: Path) -> None:
    found, runner = again(tmp_path, Fate(speed=2.0), rebuild="")
    assert (found.result, found.rebuilt) == (Repeat.HOLDS, "")
    assert runner.tried == ["eager"]
    assert runner.confirmed[0] == ("fast",)


@pytest.mark.parametrize("speed", [1.0, 1.5, 0.8])
def test_a_smaller_gain_does_not_hold_and_both_intervals_are_there(tmp_path: Path, speed: float) -> None:
    found, _ = again(tmp_path, Fate(speed=speed))
    assert found.result is Repeat.DOES_NOT_HOLD
    assert found.measured is not None
    assert found.measured.high < comparison(2.0).low
    assert "below what was claimed" in found.because


def test_a_short_budget_is_inconclusive(tmp_path: Path) -> None:
    found, runner = again(tmp_path, Fate(speed=2.0, cold_s=30.0), budget_s=20.0)
    assert (found.result, found.measured) == (Repeat.INCONCLUSIVE, None)
    assert "budget was used up" in found.because
    assert runner.confirmed == []


def test_a_wide_interval_is_inconclusive(tmp_path: Path) -> None:
    found, runner = again(tmp_path, Fate(speed=1.15), claimed=comparison(1.2), budget_s=8.0, noise=1.5)
    assert found.result is Repeat.INCONCLUSIVE
    assert found.measured is not None
    assert found.measured.low < 1.0 < 1.2 < found.measured.high
    assert len(runner.confirmed) == 1  # the budget was used by then


def test_an_edited_model_does_not_hold_and_is_not_timed(tmp_path: Path) -> None:
    here = fake_fingerprint()
    before = msgspec.structs.replace(here.model, code_sha256="1", code={"Net.forward": "ab"})
    found, runner = again(tmp_path, Fate(speed=2.0), made_for=msgspec.structs.replace(here, model=before))
    assert (found.result, found.measured) == (Repeat.DOES_NOT_HOLD, None)
    assert "the code of the model's classes" in found.because
    assert "Net.forward is gone" in found.because
    assert runner.tried == []


def test_another_machine_is_measured_and_told(tmp_path: Path) -> None:
    here = fake_fingerprint()
    before = msgspec.structs.replace(here, machine=msgspec.structs.replace(here.machine, cpu_model="older CPU"))
    found, _ = again(tmp_path, Fate(speed=2.0), made_for=before)
    assert found.result is Repeat.HOLDS
    assert found.changes == ("CPU: the plan was made with older CPU, this process has none.",)


@pytest.mark.parametrize(
    ("fate", "result", "words"),
    [
        (Fate(state=State.WRONG, reason="RMSE 1"), Repeat.DOES_NOT_HOLD, "it is wrong: RMSE 1"),
        (Fate(lost="SIGSEGV"), Repeat.DOES_NOT_HOLD, "it no longer runs: SIGSEGV"),
        (Fate(cold_s=5000.0), Repeat.INCONCLUSIVE, "could not be built again in time"),
    ],
)
def test_a_candidate_that_fails_now(tmp_path: Path, fate: Fate, result: Repeat, words: str) -> None:
    found, _ = again(tmp_path, fate)
    assert found.result is result
    assert words in found.because


def test_the_layers_that_changed_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from compilot.records import Diagnosis

    seen = Inspection(Diagnosis(layers={"fc": "Linear(8)"}), fake_fingerprint())
    monkeypatch.setattr(FakeRunner, "inspect", lambda self: seen)
    made = plan(comparison(2.0), fake_fingerprint())
    runner = FakeRunner({"fast": Fate(speed=2.0)}, eager_call_s=0.02)
    claim = Claimed(made, made.entries[0], Shipment(sys_path=(), cwd=""), "gone", layers={"fc": "Linear(4)"})
    found = reproduce(claim, runner, RunDir.make(tmp_path), Budget(60.0, clock=runner.clock), Observer())
    assert found.changes == ("layer 'fc': Linear(4) -> Linear(8).",)


NO_GAIN = Outcome.NO_DIFFERENCE


@pytest.mark.parametrize(
    ("claimed", "now", "result"),
    [
        (comparison(2.0), comparison(1.95), Repeat.HOLDS),  # days differ
        (comparison(2.0), comparison(2.5), Repeat.HOLDS),
        (comparison(2.0), comparison(1.8), Repeat.DOES_NOT_HOLD),
        (comparison(1.2), comparison(1.1, 0.2, NO_GAIN), Repeat.INCONCLUSIVE),
        (comparison(2.0), comparison(1.0, 0.0, Outcome.UNDECIDED), Repeat.INCONCLUSIVE),
        (comparison(2.0), None, Repeat.INCONCLUSIVE),
        (None, comparison(2.0), Repeat.INCONCLUSIVE),
        (comparison(1.0, 0.01, NO_GAIN), comparison(0.99, 0.01, NO_GAIN), Repeat.HOLDS),  # of a plan for less memory
        (comparison(1.0, 0.01, NO_GAIN), comparison(0.95, 0.2, NO_GAIN), Repeat.INCONCLUSIVE),
        (comparison(1.0, 0.01, NO_GAIN), comparison(0.8, 0.01, Outcome.SLOWER), Repeat.DOES_NOT_HOLD),
    ],
)
def test_what_counts_as_holding(claimed: Comparison | None, now: Comparison | None, result: Repeat) -> None:
    assert judged(claimed, now)[0] is result
