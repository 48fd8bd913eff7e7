"""Settings that only calls with a certain input read: a plan without that input is used whatever they are, one with it
is out of date and says why. A library and an engine of the tests' own; one real model of transformers."""

from __future__ import annotations

import copy
import importlib
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

from compilot._tree import Call
from compilot.artifacts.planfile import save_plan
from compilot.diagnose.cachemiss import why_cold
from compilot.engines import registry
from compilot.engines.protocol import Follows, Loaded, LoadRequest
from compilot.engines.traits import EngineTraits
from compilot.errors import FallbackWarning, StalePlanWarning
from compilot.identity import known_settings
from compilot.identity.input_settings import as_calls_read
from compilot.identity.keys import key_components
from compilot.identity.machine import machine_fingerprint
from compilot.identity.model import model_fingerprint
from compilot.packing.writing import publish, seal
from compilot.records import (
    BUNDLE_SCHEMA,
    PLAN_SCHEMA,
    BundleEntry,
    Candidate,
    Evidence,
    Fingerprint,
    Golden,
    Manifest,
    Plan,
    PlanEntry,
    Settings,
    Shapes,
    Shipment,
    Weights,
    WorkloadRef,
)
from compilot.runtime import compile as apply_plan
from compilot.runtime import golden
from compilot.runtime.gate import FILES_OF_OTHER_CODE, LEARNING
from compilot.runtime.guards import make_guard
from compilot.runtime.weight_watch import INSPECT_EVERY
from compilot.trials.protocol import PROTOCOL, Open
from compilot.trials.steps import trial
from compilot.workload import Workload

pytestmark = pytest.mark.usefixtures("no_grad", "baking")
X, Y = torch.randn(2, 3), torch.tensor([0, 1])
WITHOUT, WITH = Call((X,), {}), Call((X,), {"labels": Y})
LIBRARY = """
import torch
from torch import nn

class Config:
    problem_type = None

    def __init__(self):
        self.problem_type = None
        self.width = 3

class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.config = Config()
        self.layer = nn.Linear(3, 3)

    def forward(self, x, labels=None):
        logits = self.layer(x)
        if labels is None:
            return logits
        if self.config.problem_type is None:
            self.config.problem_type = "single_label_classification"
        scale = 1.0 if self.config.problem_type == "single_label_classification" else 2.0
        return nn.functional.cross_entropy(logits, labels) * scale
"""
SETTING = "the model's setting 'config.problem_type', which calls with 'labels' use, changed from None to "


class Baking:
    """Answers as a copy of the model does that was made when it was loaded: nothing of it is followed."""

    TRAITS = EngineTraits(version="1")

    def load(self, request: LoadRequest) -> Loaded:
        baked = copy.deepcopy(request.model)
        return Loaded(call=baked, frozen_weights=True, needs_model=False, follows=Follows.NOTHING)


@pytest.fixture
def baking() -> Iterator[None]:
    registry.register("baking", None, Baking())
    yield
    registry.unregister("baking")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A model of an installed library, whose loss notes what it chose."""
    package = tmp_path / "site-packages" / "fakeformers"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(package.parent)
    rule = known_settings.RULES[0]._replace(package="fakeformers")
    monkeypatch.setattr(known_settings, "RULES", (rule,))
    yield importlib.import_module("fakeformers").Classifier().eval()
    del sys.modules["fakeformers"]


def plan_of(model: nn.Module, call: Call) -> Plan:
    """As the worker of a run that tunes for this call has it made."""
    fingerprint = as_calls_read(model_fingerprint(model), model, [call])
    guard = make_guard(model, call, dynamic=(), shapes=Shapes.STATIC, grad=False)
    candidate = Candidate(settings=Settings(engine="baking"), label="baking", rationale="test")
    return Plan(
        schema=PLAN_SCHEMA,
        compilot="0",
        created="2026-01-01T00:00:00Z",
        workload=WorkloadRef(label="Classifier"),
        fingerprint=Fingerprint(machine=machine_fingerprint(), model=fingerprint),
        because="test",
        entries=(PlanEntry(guard=guard, candidate=candidate, evidence=Evidence(), sentence="fast"),),
    )


def bundle_of(folder: Path, model: nn.Module, call: Call) -> Path:
    plan = plan_of(model, call)
    right = copy.deepcopy(model)(*call.args, **call.kwargs)
    (folder / "golden").mkdir(parents=True)
    golden.save(golden.input_tensors(call), folder / "golden/in.safetensors")
    golden.save(golden.output_tensors(right), folder / "golden/out.safetensors")
    known = Golden(
        inputs="golden/in.safetensors", outputs="golden/out.safetensors", expected=golden.expected(right, right)
    )
    save_plan(plan, folder / "plan.json")
    manifest = Manifest(
        schema=BUNDLE_SCHEMA,
        compilot="0",
        created="2026-01-01T00:00:00Z",
        label="Classifier",
        engine="baking",
        fingerprint=plan.fingerprint,
        weights=Weights.MODEL,
        entries=(BundleEntry(folder="", golden=known),),
    )
    seal(folder, manifest, None)
    publish(folder, out := folder.parent / "model.cpbundle", as_folder=False)
    return out


def as_plan(folder: Path, model: nn.Module, call: Call) -> Any:
    return plan_of(model, call)


@pytest.fixture(params=[as_plan, bundle_of], ids=["plan", "bundle"])
def made(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setenv("COMPILOT_CACHE", str(tmp_path / "cache"))
    return lambda model, call: request.param(tmp_path / "run", model, call)


def test_without_labels_the_plan_is_used_after_a_call_with_labels(model: Any, made: Callable[..., Any]) -> None:
    plan = made(model, WITHOUT)
    model(X, labels=Y)
    assert model.config.problem_type is not None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fast = apply_plan(model, plan)
    assert torch.equal(fast(X), model(X))
    assert fast.stats().fast == 1


def test_with_labels_it_is_out_of_date_and_the_setting_is_named(model: Any, made: Callable[..., Any]) -> None:
    plan = made(model, WITH)
    model.config.problem_type = "regression"
    with pytest.warns(StalePlanWarning, match=SETTING + "'regression'"):
        fast = apply_plan(model, plan)
    assert torch.equal(fast(X, labels=Y), model(X, labels=Y))
    assert fast.stats().fast == 0


def test_another_setting_is_no_less_than_it_was(model: Any, made: Callable[..., Any]) -> None:
    plan = made(model, WITHOUT)
    model.config.width = 4
    with pytest.warns(StalePlanWarning, match=r"attribute 'config\.width' from 3 to 4"):
        apply_plan(model, plan)


def through_the_plan(fast: Any, model: Any) -> None:
    fast(X, labels=Y)


def beside_the_plan(fast: Any, model: Any) -> None:
    model(X, labels=Y)


def after_much_eager(fast: Any, model: Any) -> None:
    """Long after compilot has stopped to learn from eager's answers what the model changes by itself."""
    for size in range(3, LEARNING + 4):
        fast(torch.randn(size, 3))
    fast(X, labels=Y)


@pytest.mark.parametrize("use", [through_the_plan, beside_the_plan, after_much_eager])
def test_a_call_with_labels_is_eagers_and_the_next_without_is_fast(model: Any, use: Callable[..., None]) -> None:
    fast = apply_plan(model, plan_of(model, WITHOUT))
    fast(X)
    use(fast, model)
    assert model.config.problem_type == "single_label_classification"
    before = fast.stats().fast
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(INSPECT_EVERY + 1):
            fast(X)
    assert fast.stats().fast - before == INSPECT_EVERY + 1


def test_a_running_plan_with_labels_sees_the_setting_change(model: Any) -> None:
    model.config.problem_type = "single_label_classification"
    fast = apply_plan(model, plan_of(model, WITH))
    assert torch.equal(fast(X, labels=Y), model(X, labels=Y))
    assert fast.stats().fast == 1
    model.config.problem_type = "regression"
    with pytest.warns(FallbackWarning, match=r"code or attributes \(problem_type\) changed"):
        answers = [fast(X, labels=Y) for _ in range(INSPECT_EVERY + 1)]
    assert torch.equal(answers[-1], model(X, labels=Y))
    assert FILES_OF_OTHER_CODE in fast.stats().fallbacks


def test_a_running_plan_sees_every_other_setting_change(model: Any) -> None:
    fast = apply_plan(model, plan_of(model, WITHOUT))
    fast(X)
    model.config.width = 4
    with pytest.warns(FallbackWarning, match=r"code or attributes \(width\) changed"):
        [fast(X) for _ in range(INSPECT_EVERY + 1)]


def test_the_setting_is_a_reason_for_a_cold_start_where_both_read_it(model: Any) -> None:
    def components(call: Call) -> Any:
        found = as_calls_read(model_fingerprint(model), model, [call])
        return msgspec.structs.replace(key_components(), model=found)

    before, without = components(WITH), components(WITHOUT)
    model.config.problem_type = "regression"
    [cause] = why_cold(before, components(WITH))
    assert cause.component == "setting config.problem_type"
    assert why_cold(without, components(WITHOUT)) == ()


def test_a_real_model_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=16, num_attention_heads=2, intermediate_size=16, num_hidden_layers=1, vocab_size=30, num_labels=3
    )
    model = transformers.BertForSequenceClassification(config).eval()
    ids = torch.ones(2, 3, dtype=torch.long)
    without, with_labels = Call((), {"input_ids": ids}), Call((), {"input_ids": ids, "labels": Y})
    plain, labelled = plan_of(model, without), plan_of(model, with_labels)
    model(input_ids=ids, labels=Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fast = apply_plan(model, plain)
        fast(input_ids=ids)
        fast(input_ids=ids, labels=Y)
        fast(input_ids=ids)
    assert fast.stats().fast == 2
    with pytest.warns(StalePlanWarning, match=SETTING + "'single_label_classification'"):
        apply_plan(model, labelled)


@pytest.mark.parametrize(("call", "kept"), [(WITHOUT, {}), (WITH, {"config.problem_type": "None"})])
def test_a_runs_fingerprint_has_the_settings_that_its_calls_read(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call, kept: dict[str, str]
) -> None:
    worker: Any = types.SimpleNamespace()
    monkeypatch.setattr(trial, "unship", lambda _: Workload(model, call.args, call.kwargs))
    eager = Candidate(settings=Settings(), label="eager", rationale="test")
    shipment = Shipment(sys_path=(), cwd="")
    request = Open(protocol=PROTOCOL, shipment=shipment, candidate=eager, workspace=str(tmp_path))
    trial.open_workload(worker, request)
    assert worker.model_fingerprint.input_settings == kept
