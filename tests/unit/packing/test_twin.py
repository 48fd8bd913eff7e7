"""The ahead-of-time twin of a torch.compile candidate: same settings, another engine, measured again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from compilot import report
from compilot.artifacts import journal
from compilot.engines.aoti.build import validate
from compilot.packing import twin as twins
from compilot.packing.runs import FinishedRun
from compilot.packing.twin import Twin, find_twin, twin_of
from compilot.progress import Observer
from compilot.records import (
    Candidate,
    MemoryFormat,
    OptionValue,
    Precision,
    ProcessSettings,
    RaceLine,
    Region,
    Settings,
    Shapes,
    Shipment,
    State,
    TrialLine,
)
from compilot.testing.runner import FakeRunner, Fate


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
        (
            compiled(max_fusion_size=16, layout_optimization=False),
            {"max_fusion_size": 16, "layout_optimization": False},
        ),
        (compiled(asserts=False, light_guards=True), {}),  # neither has a meaning without torch.compile
        (compiled(cpp_wrapper=True), {}),  # ahead of time there is no other wrapper
    ],
)
def test_a_twin_has_the_winners_settings(winner: Candidate, options: dict[str, OptionValue]) -> None:
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


class TwinRunner(FakeRunner):
    """A winner twice as fast as eager, and its twin as it is told; nothing varies."""

    def __init__(self, twin_s: float, state: State = State.OK, lost: bool = False) -> None:
        def fate(candidate: Candidate) -> Fate:
            if candidate.settings.engine != "aoti":
                return Fate(speed=2.0)
            reason = "" if state is State.OK else "cannot be exported"
            died = "in a race: died of SIGSEGV" if lost else ""
            return Fate(speed=0.02 / twin_s, state=state, reason=reason, cold_s=9.0, warm_s=0.05, lost=died)

        super().__init__(fate, eager_call_s=0.02, noise=0.0)


@pytest.fixture
def run(run_dir: Path, small_run: Any) -> FinishedRun:
    return FinishedRun(run_dir, small_run.plan, Shipment(sys_path=(), cwd=""))


def look(run: FinishedRun, runner: TwinRunner, monkeypatch: pytest.MonkeyPatch) -> Twin:
    monkeypatch.setattr(twins, "LocalRunner", lambda *_, **__: runner)
    return find_twin(run, run.plan.entries[0], Observer())


def test_a_twin_that_is_not_slower_is_taken_and_the_run_still_reports_what_it_confirmed(
    run: FinishedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = report.read_run(run.folder).rows
    twin = look(run, TwinRunner(twin_s=0.01), monkeypatch)
    assert twin.entry is not None
    assert twin.entry.candidate.label == "aoti freezing"
    assert twin.because.startswith("packed as its twin, not shown slower: aoti freezing against inductor freezing")
    assert "pays back after 899 calls, with kept artifacts after 4; " in twin.entry.sentence
    assert twin.entry.sentence.endswith("1 candidate tried.")
    after = report.read_run(run.folder).rows
    assert after[:-1] == before
    assert (after[-1]["candidate"], after[-1]["speedup_from"]) == ("aoti freezing", "twin")


def test_a_twin_is_measured_with_the_callers_of_the_plan(
    run: FinishedRun, small_run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    small_run.header = msgspec.structs.replace(small_run.header, objective="throughput", concurrency=4)
    folder, asked = small_run.write(tmp_path / "four"), list[int]()

    def runner(*_: Any, callers: int, **__: Any) -> TwinRunner:
        asked.append(callers)
        return TwinRunner(twin_s=0.01)

    monkeypatch.setattr(twins, "LocalRunner", runner)
    twin = find_twin(run._replace(folder=folder), run.plan.entries[0], Observer())
    assert asked == [4]
    assert twin.entry is not None
    assert "4 callers" in twin.entry.sentence


def test_a_twin_that_was_tried_before_is_not_built_again(run: FinishedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    look(run, TwinRunner(twin_s=0.01), monkeypatch)
    again = TwinRunner(twin_s=0.01)
    assert look(run, again, monkeypatch).entry is not None
    assert again.tried == ["eager"]
    lines = journal.read(run.folder / "journal.jsonl")
    twin = [line for line in lines if isinstance(line, TrialLine) and line.trial.candidate.settings.engine == "aoti"]
    assert len(twin) == 1
    assert [line.race.purpose for line in lines if isinstance(line, RaceLine)] == ["confirm", "twin", "twin"]


@pytest.mark.parametrize(
    ("runner", "why"),
    [
        (TwinRunner(twin_s=0.015), "so the measured plan is packed as it is"),
        (TwinRunner(twin_s=0.01, state=State.INFEASIBLE), "aoti freezing: infeasible, cannot be exported"),
        (TwinRunner(twin_s=0.01, lost=True), "the measurement was lost: in a race: died of SIGSEGV"),
    ],
    ids=["slower", "impossible", "lost"],
)
def test_without_a_usable_twin_the_reason_is_told(
    run: FinishedRun, monkeypatch: pytest.MonkeyPatch, runner: TwinRunner, why: str
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
    runner = TwinRunner(twin_s=0.01)
    twin = look(run._replace(plan=plan), runner, monkeypatch)
    assert (twin.entry, runner.tried) == (None, [])
    assert "aoti has no bf16" in twin.because


def in_regions(*engines: str) -> Candidate:
    regions = tuple(Region(selector=f"part{n}", settings=compiled(name).settings) for n, name in enumerate(engines))
    return Candidate(
        settings=Settings(), label="parts", rationale="", regions=regions, process=ProcessSettings(threads=1)
    )


def test_a_twin_of_regions_is_the_same_regions_ahead_of_time() -> None:
    found = twin_of(in_regions("inductor", "onnxruntime"))
    assert found is not None
    assert [(region.selector, region.settings.engine) for region in found.regions] == [
        ("part0", "aoti"),
        ("part1", "onnxruntime"),
    ]
    assert (found.settings, found.label, found.process.threads) == (Settings(), "parts, ahead of time", 1)
    assert found.regions[0].settings.memory_format is MemoryFormat.CHANNELS_LAST
    assert twin_of(in_regions("inductor", "dynamo:other")) is None
