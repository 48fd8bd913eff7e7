"""The bench of the prior: recorded trials are played again, a model's own runs never help it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.candidates.conftest import MadeUp, points

import prior as bench
from compilot.engines import registry
from compilot.engines.eager.build import EAGER
from compilot.engines.traits import BuildCost, EngineTraits
from compilot.records import Candidate, Diagnosis, Features, Settings, State, Trial
from prior_cases import Case, from_folders, from_regret, usable

CONV = Features(
    conv_share=0.8,
    matmul_share=0.0,
    memory_share=0.15,
    overhead_share=0.05,
    call_s=0.03,
    operators=90,
    parameter_bytes=46_000_000,
    input_bytes=600_000,
    batch=1,
)
TEXT = Features(
    conv_share=0.0,
    matmul_share=0.85,
    memory_share=0.1,
    overhead_share=0.05,
    call_s=0.08,
    operators=400,
    parameter_bytes=440_000_000,
    input_bytes=1024,
    batch=1,
)
FOR_CONV = {"one": 1.1, "two": 2.0}
FOR_TEXT = {"one": 2.0, "two": 1.1}


@pytest.fixture(autouse=True)
def _two_engines(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("one", "two"):
        half: Any = MadeUp(points("a"))
        registry.register(name, half, half, EngineTraits(build_cost=BuildCost.SECONDS))
    monkeypatch.setattr("compilot.candidates.guided.usable_engines", lambda names: ["one", "two"])
    yield
    for name in ("one", "two"):
        registry.unregister(name)


def trial(engine: str, ratio: float, wall_s: float = 10.0) -> Trial:
    candidate = Candidate(settings=Settings(engine=engine, options={"n": "a"}), label=engine, rationale="")
    return Trial(candidate=candidate, state=State.OK, reason="", screening=((ratio, 1.0),) * 8, wall_s=wall_s)


def case(features: Features, ratios: dict[str, float]) -> Case:
    diagnosis = Diagnosis(cores=1, threads=1, features=features)
    eager = Trial(candidate=EAGER, state=State.OK, reason="", wall_s=3.0)
    return Case(diagnosis, [eager, *(trial(engine, ratio) for engine, ratio in ratios.items())])


def test_what_models_alike_have_taught_finds_the_winner_sooner() -> None:
    found = bench.rows({f"conv{n}": case(CONV, FOR_CONV) for n in range(3)})
    assert [(row.usual.winner_s, row.learned.winner_s) for row in found] == [(20.0, 10.0)] * 3
    text = bench.table(found)
    assert "| conv0 | 2 | two | 20.0 | 10.0 | 20.0 | 10.0 | two: right (conv1, conv2) |" in text
    assert "| **all 3** | | | **60.0** | **30.0** | **60.0** | **30.0** | |" in text
    assert text.endswith("Learned order: 0.50 of the usual seconds (a gain); sooner on 3, later on 0, of 3 models.")


def test_a_models_own_runs_are_left_out() -> None:
    (found,) = bench.rows({"alone": case(CONV, FOR_CONV)})
    assert (found.usual.winner_s, found.learned.winner_s) == (20.0, 20.0)
    assert found.learned.expected is None
    assert "nothing: no model is alike" in bench.table([found])


def test_what_misleads_is_said_to_be_no_gain() -> None:
    others = {f"conv{n}": case(CONV, FOR_CONV) for n in range(4)}
    odd = bench.row("odd", {**others, "odd": case(CONV, FOR_TEXT)})
    assert (odd.usual.winner_s, odd.learned.winner_s) == (10.0, 20.0)
    assert "Learned order: 2.00 of the usual seconds (no gain); sooner on 0, later on 1" in bench.table([odd])
    assert "two: wrong" in bench.table([odd])


def test_other_kinds_of_models_teach_next_to_nothing() -> None:
    cases = {**{f"text{n}": case(TEXT, FOR_TEXT) for n in range(4)}, "conv": case(CONV, FOR_CONV)}
    assert bench.row("conv", cases).learned.winner_s == bench.row("conv", cases).usual.winner_s


def test_what_was_not_recorded_costs_nothing_and_is_not_answered() -> None:
    only = case(CONV, {"two": 2.0})
    (found,) = bench.rows({"m": only})
    assert (found.usual.winner_s, found.trials) == (10.0, 1)


def test_a_model_without_a_winner_is_no_row_and_close_ones_are_close() -> None:
    assert bench.rows({"m": case(CONV, {"one": 0.9, "two": 0.8})}) == []
    (found,) = bench.rows({"m": case(CONV, {"one": 1.995, "two": 2.0})})
    assert (found.usual.winner_s, found.usual.close_s) == (20.0, 10.0)


def test_run_folders_of_one_machine_are_taken_together(
    small_run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = small_run.write(tmp_path / "first")
    machine = msgspec.structs.replace(small_run.header.fingerprint.machine, torch="1")
    fingerprint = msgspec.structs.replace(small_run.header.fingerprint, machine=machine)
    small_run.header = msgspec.structs.replace(small_run.header, fingerprint=fingerprint)
    other = small_run.write(tmp_path / "other")
    found = from_folders([first, other, tmp_path / "nothing", first])
    assert list(found) == ["net"]
    assert len(found["net"].trials) == 2 * len(small_run.trials)
    assert usable(found) == {}  # written before there were features
    said = capsys.readouterr().err
    assert "other: left out: another machine" in said
    assert "there is no journal" in said
    assert "net: left out: no features" in said


def test_the_journal_of_the_regret_bench_is_read(tmp_path: Path) -> None:
    seen = case(CONV, FOR_CONV)
    lines = [
        {"type": "begun", "argv": [], "machine": {}},
        {"type": "looked", "model": "m", "diagnosis": seen.diagnosis, "wall_s": 1.0, "code": "abc"},
        *({"type": "tried", "model": "m", "stage": "seeds", "trial": one} for one in seen.trials),
        {"type": "rebuilt", "model": "m", "trial": seen.trials[1]},
    ]
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"\n".join([*map(msgspec.json.encode, lines), b'{"type":"tri']))
    assert from_regret(path) == {"m": seen}
    bench.main(["--regret", str(path), "--out", str(tmp_path / "table.md")])
    assert "| m | 2 | two |" in (tmp_path / "table.md").read_text()
