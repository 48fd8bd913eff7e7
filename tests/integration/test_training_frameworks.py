"""Trainer, accelerate and Lightning: their examples train with a plan as without, and checkpoints cross over."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from compilot._tree import Call
from compilot.errors import InputError
from compilot.identity.machine import machine_fingerprint
from compilot.identity.model import model_fingerprint
from compilot.records import (
    PLAN_SCHEMA,
    Candidate,
    CompiledWay,
    Evidence,
    Fingerprint,
    Kind,
    OptimizerWay,
    Plan,
    PlanEntry,
    Settings,
    Shapes,
    StepParts,
    StepRules,
    WorkloadRef,
)
from compilot.runtime.guards import make_guard

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:::(lightning|accelerate|transformers|torch)")]
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
AOT = Settings(engine="dynamo:aot_eager")  # traced and differentiated as by the compiler, but run by eager


def plan_for(model: nn.Module, batch: Any) -> Plan:
    candidate = Candidate(
        settings=AOT,
        label="compiled",
        rationale="a test",
        step=StepParts(compiled=CompiledWay.MODEL, optimizer=OptimizerWay.FUSED),
    )
    guard = make_guard(model, Call((batch,), {}), dynamic=(), shapes=Shapes.STATIC, grad=True)
    return Plan(
        schema=PLAN_SCHEMA,
        compilot="0",
        created="2026-01-01T00:00:00Z",
        workload=WorkloadRef(label="model", kind=Kind.TRAINING, step=StepRules()),
        fingerprint=Fingerprint(
            machine=machine_fingerprint(engines={AOT.engine, "inductor"}), model=model_fingerprint(model)
        ),
        because="a test",
        entries=(PlanEntry(guard=guard, candidate=candidate, evidence=Evidence(), sentence=""),),
    )


def assert_alike(one: nn.Module, other: nn.Module) -> None:
    """Within the rounding of some updates of Adam."""
    mine, theirs = one.state_dict(), other.state_dict()
    assert list(mine) == list(theirs)
    for name, tensor in mine.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=1e-3, atol=1e-4)


def test_trainer(tmp_path: Path) -> None:
    import trainer_plan as example

    data = example.make_data()
    batch = {name: torch.stack([row[name] for row in data[:4]]) for name in data[0]}
    plan = plan_for(example.make_model(), batch)
    plain, _ = example.train(None, str(tmp_path / "plain"))
    fast, callback = example.train(plan, str(tmp_path / "fast"))
    assert_alike(fast.model, plain.model)
    stats = callback.stats()
    assert stats.fast == 4
    assert stats.fallbacks == {"sizes other than those of the first call": 2}  # the last batch of each epoch
    assert all(module._compiled_call_impl is None for module in fast.model.modules())
    saved = sorted((tmp_path / "fast").glob("checkpoint-*"))
    without = example.make_model().from_pretrained(saved[-1])
    assert_alike(without, plain.model)
    groups = [
        torch.load(tmp_path / name / saved[-1].name / "optimizer.pt")["param_groups"] for name in ("fast", "plain")
    ]
    assert groups[0] == groups[1]


def test_accelerate() -> None:
    import accelerate_plan as example

    plan = plan_for(example.make_model(), example.make_data()[0])
    plain, wanted, _ = example.train(None)
    fast, losses, stats = example.train(plan)
    assert losses == pytest.approx(wanted, rel=1e-5)
    assert_alike(fast, plain)
    assert (stats.fast, stats.fallbacks) == (5, {})
    plain.load_state_dict(fast.state_dict())


def test_an_accelerator_that_compiles_itself_is_refused() -> None:
    import accelerate_plan as example
    from compilot.training.accelerating import apply_prepared

    class Compiling:
        class state:  # as accelerate names it
            class dynamo_plugin:
                class backend:
                    value = "INDUCTOR"

    model = example.make_model()
    with pytest.raises(InputError, match="dynamo_backend"):
        apply_prepared(Compiling(), model, torch.optim.SGD(model.parameters()), "plan.json")


def test_lightning(tmp_path: Path) -> None:
    import lightning_plan as example

    plan = plan_for(example.make_model(), example.make_data()[0])
    plain, _, _ = example.train(None, str(tmp_path))
    fast, callback, trainer = example.train(plan, str(tmp_path))
    assert fast.losses == pytest.approx(plain.losses, rel=1e-5)
    assert_alike(fast, plain)
    assert (callback.stats().fast, callback.stats().fallbacks) == (5, {})
    trainer.save_checkpoint(tmp_path / "fast.ckpt")
    without = example.Classifier.load_from_checkpoint(tmp_path / "fast.ckpt")
    assert_alike(without, plain)
