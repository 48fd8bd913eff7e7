"""compilot.runtime.compile: from a plan to a fast model, or to eager with the reason said."""

from __future__ import annotations

import warnings
from pathlib import Path

import msgspec
import pytest
import torch
from torch import nn

from compilot._tree import Call
from compilot.api.tracing import read_trace
from compilot.artifacts.homes import home_of, remember
from compilot.artifacts.planfile import save_plan
from compilot.errors import CompilotWarning, InputError, PlanError, StalePlan, StalePlanWarning, UnprovenSpeedWarning
from compilot.identity.machine import machine_fingerprint
from compilot.identity.model import model_fingerprint
from compilot.records import (
    PLAN_SCHEMA,
    Candidate,
    Evidence,
    Fingerprint,
    Plan,
    PlanEntry,
    ProcessSettings,
    Settings,
    Shapes,
    WorkloadRef,
)
from compilot.runtime import Fast, apply_process
from compilot.runtime import compile as apply_plan
from compilot.runtime.fast import restore
from compilot.runtime.guards import make_guard

X = torch.randn(2, 3)
replace = msgspec.structs.replace


@pytest.fixture
def model() -> nn.Module:
    return nn.Linear(3, 3).eval()


@pytest.fixture
def plan(model, engine) -> Plan:
    """A plan for the fake engine, made here and now."""
    guard = make_guard(model, Call((X,), {}), dynamic=(), shapes=Shapes.STATIC, grad=False)
    candidate = Candidate(settings=Settings(engine="fake"), label="fake", rationale="test")
    entry = PlanEntry(
        guard=guard, candidate=candidate, evidence=Evidence(), sentence="fast", artifacts_dir="artifacts/fake"
    )
    return Plan(
        schema=PLAN_SCHEMA,
        compilot="0",
        created="2026-01-01T00:00:00Z",
        workload=WorkloadRef(label="Linear"),
        fingerprint=Fingerprint(machine=machine_fingerprint(), model=model_fingerprint(model)),
        because="test",
        entries=(entry,),
    )


def with_machine(plan: Plan, **changes: object) -> Plan:
    machine = replace(plan.fingerprint.machine, **changes)
    return replace(plan, fingerprint=replace(plan.fingerprint, machine=machine))


def with_process(plan: Plan, process: ProcessSettings) -> Plan:
    return replace(plan, process=process)


@pytest.mark.usefixtures("no_grad")
@pytest.mark.parametrize("form", ["record", "file", "text", "run directory"])
def test_a_plan_can_be_given_as_record_file_or_run_directory(model, plan, tmp_path, form):
    save_plan(plan, tmp_path / "plan.json")
    path = tmp_path / "plan.json"
    given = {"record": plan, "file": path, "text": str(path), "run directory": tmp_path}[form]
    fast = apply_plan(model, given)
    assert torch.equal(fast(X), model(X))
    assert fast.stats() == (1, 1, {}, 1, (), {}, {})


def test_artifacts_beside_the_plan_are_handed_to_the_engine(model, plan, engine, tmp_path, monkeypatch):
    seen: list[Path | None] = []
    load = engine.load
    monkeypatch.setattr(engine, "load", lambda request: (seen.append(request.artifacts), load(request))[1])
    save_plan(plan, tmp_path / "plan.json")
    apply_plan(model, tmp_path)
    (tmp_path / "artifacts" / "fake").mkdir(parents=True)
    apply_plan(model, tmp_path)
    apply_plan(model, plan)
    apply_plan(model, plan, folder=tmp_path)
    there = tmp_path / "artifacts" / "fake"
    assert seen == [None, there, None, there]


def test_a_plan_without_entries_keeps_eager(model, plan):
    fast = apply_plan(model, replace(plan, entries=()))
    assert isinstance(fast, Fast)
    assert torch.equal(fast(X), model(X))
    assert fast.stats() == (1, 0, {"the plan keeps the model eager": 1}, 0, (), {}, {})


def test_a_directory_without_a_plan_says_so(model, tmp_path):
    with pytest.raises(PlanError, match=r"no plan\.json"):
        apply_plan(model, tmp_path)


def test_row_9_another_model_is_explained_and_answered_by_eager(plan):
    other = nn.Linear(3, 4).eval()
    with pytest.warns(StalePlanWarning, match="parameters.*compilot tune"):
        fast = apply_plan(other, plan)
    assert torch.equal(fast(X), other(X))
    assert fast.stats().fast == 0
    [reason] = fast.stats().fallbacks
    assert reason.startswith("plan out of date")


def test_row_7_another_torch_is_explained_and_answered_by_eager(model, plan):
    with pytest.warns(StalePlanWarning, match=r"1\.0\.0"):
        fast = apply_plan(model, with_machine(plan, torch="1.0.0"))
    assert torch.equal(fast(X), model(X))
    assert fast.stats().fast == 0


def test_strict_raises_and_names_every_difference(model, plan):
    with pytest.raises(StalePlan) as caught:
        apply_plan(model, with_machine(plan, torch="1.0.0", python="3.1.0"), strict=True)
    assert len(caught.value.differences) == 2


@pytest.mark.usefixtures("no_grad")
def test_allow_stale_goes_on_and_says_so(model, plan):
    with pytest.warns(CompilotWarning, match="unproven"):
        fast = apply_plan(model, with_machine(plan, torch="1.0.0"), allow_stale=True)
    fast(X)
    assert fast.stats().fast == 1


@pytest.mark.usefixtures("no_grad")
def test_a_difference_that_only_touches_speed_is_one_warning(model, plan):
    with pytest.warns(CompilotWarning, match="unproven") as caught:
        fast = apply_plan(model, with_machine(plan, cpu_model="Another CPU", cores=1000))
    assert len(caught) == 1
    fast(X)
    assert fast.stats().fast == 1


def test_an_engine_that_cannot_be_loaded_leaves_eager(model, plan, engine, monkeypatch):
    def fail(request):
        raise RuntimeError("library is missing")

    monkeypatch.setattr(engine, "load", fail)
    with pytest.warns(CompilotWarning, match="library is missing"):
        fast = apply_plan(model, plan)
    assert torch.equal(fast(X), model(X))
    assert fast.stats().fast == 0
    with pytest.raises(RuntimeError, match="library is missing"):
        apply_plan(model, plan, strict=True)


def test_an_entry_for_a_part_of_the_model_is_refused_in_one_sentence(model, plan):
    part = replace(plan, entries=(replace(plan.entries[0], module="encoder.layers"),))
    said = r"this plan has an entry for a part of the model, encoder\.layers, which this version .* cannot apply yet"
    with pytest.raises(InputError, match=said):
        apply_plan(model, part, strict=True)
    with pytest.warns(CompilotWarning, match=f"the plan is not used: .*{said}.*eager answers"):
        fast = apply_plan(model, part)
    assert torch.equal(fast(X), model(X))
    assert fast.stats().fast == 0


def test_process_settings_are_reported_and_changed_only_on_request(model, plan):
    before = torch.get_num_threads()
    wanted = with_process(plan, ProcessSettings(threads=before + 1))
    try:
        with pytest.warns(CompilotWarning, match="apply_process"):
            apply_plan(model, wanted)
        assert torch.get_num_threads() == before
        assert apply_process(wanted) == {"threads": (before, before + 1)}
        assert torch.get_num_threads() == before + 1
        assert apply_process(wanted) == {}
    finally:
        torch.set_num_threads(before)


@pytest.mark.usefixtures("no_grad")
def test_a_process_with_the_plans_own_thread_count_is_as_it_was_measured(model, plan):
    """The plan was made by a process with all threads, and measured with one more."""
    before = torch.get_num_threads()
    wanted = with_process(plan, ProcessSettings(threads=before + 1))
    try:
        apply_process(wanted)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert torch.equal(apply_plan(model, wanted)(X), model(X))
    finally:
        torch.set_num_threads(before)


def test_a_program_that_makes_errors_of_warnings_gets_the_warning_itself(model, plan):
    """It is not taken for an engine that cannot be loaded."""
    wanted = with_process(plan, ProcessSettings(threads=torch.get_num_threads() + 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UnprovenSpeedWarning, match=r"^the plan was measured with threads = "):
            apply_plan(model, wanted)


def test_denormals_are_set_and_told(plan):
    tiny = torch.tensor(1e-39)
    try:
        assert apply_process(with_process(plan, ProcessSettings(flush_denormals=True))) == {
            "flush_denormals": (False, True)
        }
        assert tiny * 1.0 == 0
    finally:
        assert apply_process(with_process(plan, ProcessSettings(flush_denormals=False)))
    assert tiny * 1.0 != 0


def test_a_plan_object_of_this_process_finds_its_artifacts(plan, tmp_path):
    assert home_of(plan) is None
    assert home_of(remember(plan, tmp_path)) == tmp_path
    assert home_of(msgspec.structs.replace(plan, because="another")) is None


@pytest.mark.usefixtures("no_grad")
def test_in_place(model, plan):
    fast = apply_plan(model, plan, inplace=True)
    assert fast is model
    model(X)
    assert model.stats().fast == 1


def test_a_good_plan_warns_about_nothing(model, plan):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fast = apply_plan(model, plan)
        with torch.no_grad():
            assert torch.equal(fast(X), model(X))
    assert fast.stats() == (1, 1, {}, 1, (), {}, {})


@pytest.mark.usefixtures("no_grad")
@pytest.mark.parametrize("inplace", [False, True])
def test_the_sizes_of_all_calls_are_recorded_whoever_answers(model, plan, tmp_path, inplace):
    fast = apply_plan(model, plan, record=tmp_path / "sizes.jsonl", inplace=inplace)
    assert isinstance(fast, Fast)
    assert (fast is model) is inplace
    for _ in range(250):
        fast(X)
    fast(torch.randn(7, 3))
    fast.close()
    trace = read_trace(tmp_path / "sizes.jsonl")
    assert {one.sizes["input:0"]: one.calls for one in trace.sizes} == {2: 250, 7: 1}
    assert trace.header.model == "Linear"
    assert (fast.stats().calls, fast.stats().fast) == (251, 250)
    fast(X)  # which is not counted any more
    assert fast.stats().fast == 251
    assert type(restore(model)) is nn.Linear


@pytest.mark.usefixtures("no_grad")
def test_eager_in_place_of_a_plan_that_does_not_fit_is_recorded_too(model, plan, tmp_path):
    with pytest.warns(StalePlanWarning):
        fast = apply_plan(model, with_machine(plan, torch="1.0"), record=tmp_path / "sizes.jsonl")
    fast(X)
    fast.close()
    assert read_trace(tmp_path / "sizes.jsonl").calls == 1


def test_a_file_that_cannot_be_written_leaves_the_model_as_it_was(model, plan, tmp_path):
    with pytest.raises(InputError, match="cannot write the trace"):
        apply_plan(model, plan, record=tmp_path / "nowhere" / "sizes.jsonl", inplace=True)
    assert type(model) is nn.Linear
