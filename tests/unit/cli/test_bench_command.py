"""`compilot bench`: eager, plain torch.compile and plans side by side, with a runner that needs no process."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from compilot.artifacts.planfile import save_plan
from compilot.records import Candidate, Diagnosis, Measurement, Race, State, Trial
from compilot.trials import runner as runners


class FakeRunner:
    """Answers with the small run's figures."""

    small: Any = None
    broken: tuple[str, ...] = ()  # labels whose trial crashes
    raced: tuple[str, ...] = ()

    def __init__(self, shipment: Any, run_dir: Path, **_: Any) -> None:
        self.known = {t.candidate.id: t for t in self.small.trials}

    def open_eager(self) -> tuple[Any, Any]:
        header = self.small.header
        opened = SimpleNamespace(ref=header.workload, notes=("the model is in train mode",))
        return opened, SimpleNamespace(fingerprint=header.fingerprint, diagnosis=Diagnosis())

    def prepare_toolchain(self) -> Any:
        return SimpleNamespace(problem=None, wall_s=1.0)

    def trial(self, candidate: Candidate, known_code: dict[str, str], cap_s: float) -> Trial:
        if candidate.label in self.broken:
            return Trial(candidate=candidate, state=State.CRASHED, reason="SIGSEGV while building")
        return self.known[candidate.id]  # type: ignore[no-any-return]

    def keep_only(self, ids: Sequence[str]) -> None: ...

    def confirm(
        self, arms: Sequence[Candidate], *, pairs: int, enough: Callable[[Race], bool]
    ) -> tuple[Race, dict[str, list[Measurement]]]:
        FakeRunner.raced = tuple(arm.label for arm in arms)
        return self.small.confirm, {arm.id: [self.known[arm.id].measurement] for arm in arms}

    def close(self) -> None: ...

    def abort(self) -> None: ...


@pytest.fixture
def fake_runner(fake: Any, small_run: Any, monkeypatch: pytest.MonkeyPatch) -> type[FakeRunner]:
    monkeypatch.setattr(runners, "LocalRunner", FakeRunner)
    monkeypatch.setattr(FakeRunner, "small", small_run)
    save_plan(small_run.plan, Path("plan.json"))
    return FakeRunner


def test_arms_stand_side_by_side_with_a_sentence_each(fake_runner: Any, compilot: Any) -> None:
    result = compilot("bench", "net.py:net", "--plan", "plan.json", "--out", "b")
    assert result.exit_code == 0, result.stderr
    assert fake_runner.raced == ("inductor", "inductor freezing")
    text = " ".join(result.stdout.split())
    assert "inductor: 1.25x faster than eager (95 % 1.24-1.26; 3 processes x 20 pairs" in text
    assert "inductor freezing (plan.json): 1.99x faster than eager" in text
    assert "pays back after" in text
    with Path("b/trials.csv").open(newline="") as file:
        assert [row["candidate"] for row in csv.DictReader(file)] == ["eager", "inductor", "inductor freezing"]


def test_json_has_rows_and_sentences(fake_runner: Any, compilot: Any) -> None:
    document = json.loads(compilot("bench", "net.py:net", "--plan", "plan.json", "--json").stdout)
    assert [row["speedup_from"] for row in document["rows"]] == ["baseline", "bench", "bench"]
    assert len(document["sentences"]) == 2


def test_an_arm_that_crashes_is_told_and_not_raced(fake_runner: Any, compilot: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(fake_runner, "broken", ("inductor",))
    result = compilot("bench", "net.py:net", "--plan", "plan.json")
    assert result.exit_code == 0
    assert fake_runner.raced == ("inductor freezing",)
    assert "inductor: crashed: SIGSEGV while building" in " ".join(result.stdout.split())


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
    assert fake_runner.raced == ("inductor",)
    assert "eager.json keeps the model eager" in result.stderr


def test_a_missing_plan_is_one_sentence(fake_runner: Any, compilot: Any) -> None:
    result = compilot("bench", "net.py:net", "--plan", "none.json")
    assert result.exit_code == 2
    assert "cannot read plan none.json" in result.stderr
