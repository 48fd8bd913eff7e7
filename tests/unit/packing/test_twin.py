"""The ahead-of-time twin of a torch.compile candidate: same settings, another engine, measured again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compilot import report
from compilot.artifacts import journal
from compilot.engines.aoti.build import validate
from compilot.engines.eager.build import EAGER
from compilot.packing import twin as twins
from compilot.packing.runs import FinishedRun
from compilot.packing.twin import Twin, find_twin, twin_of
from compilot.progress import Observer
from compilot.records import (
    Candidate,
    Guard,
    Measurement,
    MemoryFormat,
    OptionValue,
    Precision,
    ProcessSamples,
    ProcessSettings,
    Race,
    RaceLine,
    Settings,
    Shapes,
    Shipment,
    State,
    Trial,
    TrialLine,
)
from compilot.trials.runner import ArmLost


def compiled(engine: str = "inductor", mode: str | None = None, **options: OptionValue) -> Candidate:
    settings = Settings(
        engine=engine,
        mode=mode,
        options=options,
        shapes=Shapes.DYNAMIC,
        memory_format=MemoryFormat.CHANNELS_LAST,
    )
    return Candidate(settings=settings, label="winner", rationale="", process=ProcessSettings(threads=1))


@pytest.mark.parametrize(
    ("winner", "options"),
    [
        (compiled(), {}),
        (compiled(freezing=True), {"freezing": True}),
        (compiled(freezing=True, max_autotune=True), {"freezing": True, "max_autotune": True}),
        (compiled(mode="max-autotune-no-cudagraphs"), {"max_autotune": True}),
        (compiled(cpp_wrapper=True), {}),  # ahead of time there is no other wrapper
    ],
)
def test_a_twin_has_the_winners_settings(winner: Candidate, options: dict[str, bool]) -> None:
    twin = twin_of(winner)
    assert twin is not None
    assert twin.settings.engine == "aoti"
    assert twin.settings.options == options
    assert twin.settings.shapes is winner.settings.shapes
    assert twin.settings.memory_format is winner.settings.memory_format
    assert twin.process == winner.process
    assert validate(twin.settings) is None


def test_other_backends_have_none() -> None:
    assert twin_of(compiled("dynamo:something")) is None


# ---------------------------------------------------------------------------------------------- measured beside it


class FakeRunner:
    """Stands in for the runner: trials and races whose ends are known."""

    def __init__(self, twin_s: float, state: State = State.OK, lost: bool = False) -> None:
        self.twin_s = twin_s
        self.state = state
        self.lost = lost
        self.tried: list[Candidate] = []

    def open_eager(self) -> None: ...
    def prepare_toolchain(self) -> None: ...
    def close(self) -> None: ...

    def trial(self, candidate: Candidate, known_code: dict[str, str], cap_s: float) -> Trial:
        self.tried.append(candidate)
        state = State.OK if candidate.is_eager else self.state
        return Trial(
            candidate=candidate,
            state=state,
            reason="" if state is State.OK else "cannot be exported",
            measurement=Measurement(cold_s=0.1 if candidate.is_eager else 9.0, cold_cache=True),
            guard=Guard(positional=1, keywords=(), tensors=()),
        )

    def confirm(self, candidates: Sequence[Candidate], *, pairs: int, enough: Callable[[Race], bool]) -> Any:
        winner, twin = candidates
        if self.lost:
            raise ArmLost(twin.id, State.CRASHED, "in a race: died of SIGSEGV")
        rounds = tuple((0.02, 0.02 + i * 1e-5, 0.01, self.twin_s + i * 1e-5) for i in range(pairs))
        arms = (EAGER.id, EAGER.id, winner.id, twin.id)
        race = Race(arms=arms, with_aa=True, processes=(ProcessSamples(rounds=rounds),) * 3, purpose="confirm")
        assert enough(race)
        return race, {twin.id: [Measurement(cold_s=0.05, cold_cache=False)]}


@pytest.fixture
def run(run_dir: Path, small_run: Any) -> FinishedRun:
    return FinishedRun(run_dir, small_run.plan, Shipment(sys_path=(), cwd=""))


def look(run: FinishedRun, runner: FakeRunner, monkeypatch: pytest.MonkeyPatch) -> Twin:
    monkeypatch.setattr(twins, "LocalRunner", lambda *_, **__: runner)
    return find_twin(run, run.plan.entries[0], Observer())


def test_a_twin_that_is_not_slower_is_taken_and_the_run_still_reports_what_it_confirmed(
    run: FinishedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = report.read_run(run.folder).rows
    twin = look(run, FakeRunner(twin_s=0.01), monkeypatch)
    assert twin.entry is not None
    assert twin.entry.candidate.label == "aoti freezing"
    assert twin.because.startswith("packed as its twin, not shown slower: aoti freezing against inductor freezing")
    assert "pays back after 909 calls (1 with kept artifacts)" in twin.entry.sentence
    assert twin.entry.sentence.endswith("1 candidate tried.")
    after = report.read_run(run.folder).rows
    assert after[:-1] == before
    assert (after[-1]["candidate"], after[-1]["speedup_from"]) == ("aoti freezing", "twin")


def test_a_twin_that_was_tried_before_is_not_built_again(run: FinishedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    look(run, FakeRunner(twin_s=0.01), monkeypatch)
    again = FakeRunner(twin_s=0.01)
    assert look(run, again, monkeypatch).entry is not None
    assert again.tried == [EAGER]
    lines = journal.read(run.folder / "journal.jsonl")
    twin = [line for line in lines if isinstance(line, TrialLine) and line.trial.candidate.settings.engine == "aoti"]
    assert len(twin) == 1
    assert [line.race.purpose for line in lines if isinstance(line, RaceLine)] == ["confirm", "twin", "twin"]


@pytest.mark.parametrize(
    ("runner", "why"),
    [
        (FakeRunner(twin_s=0.015), "so the measured plan is packed as it is"),
        (FakeRunner(twin_s=0.01, state=State.INFEASIBLE), "aoti freezing: infeasible, cannot be exported"),
        (FakeRunner(twin_s=0.01, lost=True), "the measurement was lost: in a race: died of SIGSEGV"),
    ],
    ids=["slower", "impossible", "lost"],
)
def test_without_a_usable_twin_the_reason_is_told(
    run: FinishedRun, monkeypatch: pytest.MonkeyPatch, runner: FakeRunner, why: str
) -> None:
    twin = look(run, runner, monkeypatch)
    assert twin.entry is None
    assert why in twin.because


def test_a_precision_that_the_twin_does_not_have_is_not_measured(
    run: FinishedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    [entry] = run.plan.entries
    lower = msgspec.structs.replace(entry.candidate.settings, precision=Precision.BF16)
    plan = msgspec.structs.replace(
        run.plan,
        entries=(msgspec.structs.replace(entry, candidate=msgspec.structs.replace(entry.candidate, settings=lower)),),
    )
    runner = FakeRunner(twin_s=0.01)
    twin = look(run._replace(plan=plan), runner, monkeypatch)
    assert (twin.entry, runner.tried) == (None, [])
    assert "aoti has no bf16" in twin.because
