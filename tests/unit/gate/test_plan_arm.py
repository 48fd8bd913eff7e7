"""A plan's own engine in an arm: a fake engine, which answers as the model does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from tests.unit.gate.test_arm import Net, ask, opened

from compilot.api import gating
from compilot.engines import registry
from compilot.engines.protocol import Baked, BuildRequest, Loaded, LoadRequest
from compilot.engines.traits import EngineTraits
from compilot.errors import InputError
from compilot.gate.arm import Arm, Work
from compilot.gate.plan_arm import callable_of
from compilot.gate.sides import head_side, with_dimensions
from compilot.records import Candidate, DynamicDim, PlanEntry, Settings, Shapes
from compilot.workload import Workload

NAME = "as-the-model"
BATCH = DynamicDim(input="x", dim=0, min=2, max=16)


class AsTheModel:
    """Both halves of an engine that changes nothing."""

    TRAITS = EngineTraits(version="1")

    def build(self, request: BuildRequest) -> tuple[()]:
        return ()

    def load(self, request: LoadRequest) -> Loaded:
        def prepare(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return request.model(*args, **kwargs)

        return Loaded(call=request.model, prepare=prepare, builds=lambda: 1, baked=Baked.AT_PREPARE)


@pytest.fixture(autouse=True)
def engine() -> Iterator[None]:
    registry.register(NAME, AsTheModel(), AsTheModel())
    yield
    registry.unregister(NAME)


def planned(tmp_path: Path, shapes: Shapes, made: Any, *dynamic: DynamicDim) -> Arm:
    arm = opened(Net(), torch.randn(3, 4))
    arm.work = Work(made, "net.py:net")
    candidate = Candidate(settings=Settings(engine=NAME, shapes=shapes), label="planned", rationale="")
    arm.candidate, arm.workspace = msgspec.to_builtins(candidate), tmp_path
    arm.dynamic = msgspec.to_builtins(dynamic)
    return arm


def test_a_plan_answers_with_its_engine(tmp_path: Path) -> None:
    model, x = Net().eval(), torch.randn(3, 4)
    fast = callable_of(planned(tmp_path, Shapes.STATIC, (model, (x,))))
    with torch.no_grad():
        assert torch.equal(fast(x)["y"], model(x)["y"])
        fast(torch.randn(5, 4))
    assert fast.stats().fast == 1  # type: ignore[attr-defined]
    assert sum(fast.stats().fallbacks.values()) == 1  # type: ignore[attr-defined]


def test_the_dimensions_that_vary_are_the_plans(tmp_path: Path) -> None:
    x = torch.randn(3, 4)
    wide, narrow = BATCH, msgspec.structs.replace(BATCH, max=4)
    for declared, own, fallbacks in ((narrow, wide, 0), (wide, narrow, 1)):
        load = Workload(Net().eval(), (x,), dynamic=[declared])
        fast: Any = callable_of(planned(tmp_path, Shapes.DYNAMIC, load, own))
        with torch.no_grad():
            fast(torch.randn(9, 4))
        assert sum(fast.stats().fallbacks.values()) == fallbacks


def test_fallbacks_are_those_of_a_fixed_number_of_calls(tmp_path: Path) -> None:
    calls = [(torch.randn(3, 4),), (torch.randn(5, 4),)]
    arm = planned(tmp_path, Shapes.STATIC, Workload(Net().eval(), examples=calls))
    ask(arm, "Build")
    counted = ask(arm, "Look").facts.fallbacks
    assert counted == 2  # the second example, in every drive
    ask(arm, "Warm", for_s=0.05)
    assert ask(arm, "Look").facts.fallbacks == counted


def test_a_check_takes_plans_of_one_program(small_run: Any) -> None:
    plan = small_run.plan
    declared = msgspec.structs.replace(plan, workload=msgspec.structs.replace(plan.workload, dynamic=(BATCH,)))
    asked = gating._asked((), declared)
    assert asked.candidates == [plan.entries[0].candidate]
    assert with_dimensions(head_side(f"{__file__}:net"), asked.dynamic).shipment.extra_dynamic == (BATCH,)


@pytest.mark.parametrize("kind", ["entries", "sizes", "padding", "module"])
def test_a_plan_of_several_programs_is_refused(small_run: Any, kind: str) -> None:
    entry: PlanEntry = small_run.plan.entries[0]
    sized = msgspec.structs.replace(entry.candidate, sizes={"x:0": 4})
    entries = {
        "entries": (entry, entry),
        "sizes": (msgspec.structs.replace(entry, candidate=sized),),
        "padding": (msgspec.structs.replace(entry, padding=SimpleNamespace(dims=())),),
        "module": (msgspec.structs.replace(entry, module="layers.0"),),
    }
    with pytest.raises(InputError, match="a check builds one for the whole"):
        gating._asked((), msgspec.structs.replace(small_run.plan, entries=entries[kind]))
