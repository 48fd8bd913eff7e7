"""A plan at `compilot.compile`: changed behaviour makes it out of date and is named; what decides nothing does not."""

from __future__ import annotations

import itertools
import types
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from projects import FILES, NET, changed, imported
from torch import nn

from compilot._tree import Call
from compilot.errors import CompilotWarning, StalePlanWarning
from compilot.identity.machine import machine_fingerprint
from compilot.identity.model import model_fingerprint
from compilot.identity.uncovered import uncovered
from compilot.records import (
    PLAN_SCHEMA,
    Candidate,
    Evidence,
    Fingerprint,
    Plan,
    PlanEntry,
    Settings,
    Shapes,
    WorkloadRef,
)
from compilot.runtime import compile as apply_plan
from compilot.runtime.guards import make_guard

X = torch.randn(2, 3)
pytestmark = [pytest.mark.usefixtures("engine", "no_grad")]
CHANGES = {
    "helper in the same file": ("net.py", "return x * FACTOR", "return x / FACTOR", "double"),
    "helper in an imported file": ("helpers.py", "x * 1.5", "x * 1.25", "scale"),
    "helper in a package's submodule": ("pkg/sub.py", "x * 0.875", "x * 0.8", "leaf"),
    "closure": ("net.py", "add_one = make(1.0)", "add_one = make(2.0)", "added"),
    "default": ("net.py", "by=3.0", "by=4.0", "with_default"),
    "global constant": ("net.py", "FACTOR = 2.0", "FACTOR = 3.0", "double"),
    "base class": ("net.py", "return x - 1.0", "return x - 2.0", r"Base\.finish"),
    "decorator": ("net.py", "fn(*args) + 0.25", "fn(*args) + 0.5", r"Block\.forward"),
    "static method": ("net.py", "x + 0.0625", "x + 0.06", r"Block\.fixed"),
}
HARMLESS = {
    "comment": ("net.py", "    return x * FACTOR", "    # twice\n    return x * FACTOR"),
    "docstring": ("net.py", '"""Runs."""', '"""Runs fast."""'),
    "whitespace": ("net.py", "\ndef double", "\n\n\n\n\ndef double"),
}


def plan_for(model: nn.Module) -> Plan:
    guard = make_guard(model, Call((X,), {}), dynamic=(), shapes=Shapes.STATIC, grad=False)
    candidate = Candidate(settings=Settings(engine="fake"), label="fake", rationale="test")
    entry = PlanEntry(guard=guard, candidate=candidate, evidence=Evidence(), sentence="fast", artifacts_dir="")
    return Plan(
        schema=PLAN_SCHEMA,
        compilot="0",
        created="2026-01-01T00:00:00Z",
        workload=WorkloadRef(label="Net"),
        fingerprint=Fingerprint(machine=machine_fingerprint(), model=model_fingerprint(model)),
        because="test",
        entries=(entry,),
    )


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    with imported(tmp_path / "before") as kind:
        return plan_for(kind().eval())


@pytest.mark.parametrize("case", CHANGES)
def test_changed_code_makes_the_plan_out_of_date_and_is_named(plan: Plan, tmp_path: Path, case: str) -> None:
    file, old, new, label = CHANGES[case]
    with imported(tmp_path / "after", changed(file, old, new)) as kind:
        model = kind().eval()
        with pytest.warns(StalePlanWarning, match=rf"functions they call changed: {label}\. "):
            fast = apply_plan(model, plan)
        assert torch.equal(fast(X), model(X))
        assert fast.stats().fast == 0


@pytest.mark.parametrize("case", HARMLESS)
def test_what_decides_nothing_leaves_the_plan_in_use(plan: Plan, tmp_path: Path, case: str) -> None:
    with imported(tmp_path / "after", changed(*HARMLESS[case])) as kind:
        assert_served(kind().eval(), plan)


def test_another_file_name_leaves_the_plan_in_use(plan: Plan, tmp_path: Path) -> None:
    files = {("moved_net.py" if name == "net.py" else name): text for name, text in FILES.items()}
    with imported(tmp_path / "after", files, "moved_net") as kind:
        assert_served(kind().eval(), plan)


@pytest.mark.parametrize("name", ["__main__", "a_notebook"])
def test_a_class_from_a_notebook_uses_its_plan(plan: Plan, tmp_path: Path, name: str) -> None:
    with imported(tmp_path / "after"):
        space: dict[str, Any] = {"__name__": name}
        exec(compile(NET, "<cell 3>", "exec"), space)
        assert_served(space["Block"]().eval(), plan)


def assert_served(model: nn.Module, plan: Plan) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fast = apply_plan(model, plan)
    fast(X)
    assert fast.stats().fast == 1


class Net(nn.Module):
    def __init__(self, table: Any) -> None:
        super().__init__()
        self.line, self.table = nn.Linear(3, 3), table

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.line(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (1.0, 2.0, "attribute 'table' from 1.0 to 2.0"),
        (torch.ones(2), torch.zeros(2), "attribute 'table'"),
        (np.ones(2), np.zeros(2), "attribute 'table'"),
        (types.SimpleNamespace(a=[1.0]), types.SimpleNamespace(a=[2.0]), "attribute 'table'"),
        (1.0, torch.ones(1), "attribute 'table' from 1.0 to Tensor"),
    ],
)
def test_a_changed_attribute_makes_the_plan_out_of_date_and_is_named(old: Any, new: Any, says: str) -> None:
    plan = plan_for(Net(old).eval())
    assert_served(Net(old).eval(), plan)
    with pytest.warns(StalePlanWarning, match=says):
        apply_plan(Net(new).eval(), plan)


def test_what_cannot_be_read_is_named_once_when_the_plan_is_applied() -> None:
    model = Net(itertools.count()).eval()
    with pytest.warns(CompilotWarning, match=r"table \(it is an iterator") as caught:
        fast = apply_plan(model, plan_for(model))
    assert len(caught) == 1
    fast(X)
    assert fast.stats().fast == 1


def test_a_model_that_was_compiled_in_place_is_still_itself() -> None:
    model = Net(1.0).eval()
    before = model_fingerprint(model)
    apply_plan(model, plan_for(model), inplace=True)
    assert model_fingerprint(model) == before
    assert uncovered(model) == ()
