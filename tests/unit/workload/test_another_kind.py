"""A new kind of work is a class and a row in `UNITS`: it is timed, referenced, judged, diagnosed and made golden."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from compilot import diagnose
from compilot._tree import Call
from compilot.diagnose import trusted
from compilot.measure import sampling
from compilot.measure.correctness import check, make_reference
from compilot.measure.expected import load_expected
from compilot.runtime import golden
from compilot.trials.protocol import MakeGolden
from compilot.trials.steps.packing import make_golden
from compilot.trials.steps.state import WorkerState
from compilot.workload import Unit, Workload
from compilot.workload.unit import UNITS
from compilot.workload.variations import cases


class Layer(nn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 2)
        self.register_buffer("steps", torch.zeros(1))


class Counted(Unit):
    """Steps the model's counter, which is part of the answer: work on a state that was not put back shows."""

    def call(self) -> None:
        for example in self.examples:
            self.work(Call(*example))

    def work(self, call: Call) -> dict[str, Tensor]:
        self.model.steps += 1
        return {"sum": self.fn(*call.args) + self.model.steps, "steps": self.model.steps}


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Workload:
    monkeypatch.setitem(UNITS, "counted", Counted)  # type: ignore[arg-type]
    workload = Workload(Layer().eval(), examples=[torch.randn(3, 4), torch.randn(3, 4)])
    workload.kind = "counted"  # type: ignore[assignment]
    return workload


def judge(load: Workload, fn: Any, folder: Path) -> Any:
    return check(fn, load, cases(load), folder, make_reference(load, cases(load), folder))


def test_the_kind_stays_with_the_workload(load: Workload) -> None:
    assert isinstance(load.replaced(seed=5).unit(load.model), Counted)
    assert load.ref.kind == "counted"


def test_it_is_timed_and_put_back(load: Workload) -> None:
    with load.unit(load.model).restored() as unit:
        sampling.time_batch(unit.call, 3)
        assert load.model.steps == 3 * unit.calls == 6
    assert load.model.steps == 0


def test_its_reference_is_made_from_the_same_state_for_every_case(load: Workload, tmp_path: Path) -> None:
    found = cases(load)
    reference = make_reference(load, found, tmp_path)
    assert reference.kind == "float64"
    assert reference.notes == ("every call changes the model's buffers (steps); they are put back each time",)
    for index, case in enumerate(found):
        expected = load_expected(tmp_path, index)
        right = load.model(*case.call.args).detach() + 1
        torch.testing.assert_close(expected.eager["output['sum']"], right, equal_nan=True)
        assert expected.eager["output['steps']"] == 1, "the value that the work left, though the buffer is put back"
        assert expected.exact["output['sum']"].dtype is torch.float64
        assert expected.state == {"steps": torch.ones(1)}
    assert load.model.steps == 0


def test_it_is_judged(load: Workload, tmp_path: Path) -> None:
    assert judge(load, lambda x: load.model(x), tmp_path).passed
    assert "at output['sum']" in judge(load, lambda x: load.model(x) * 1.01, tmp_path).why

    def steps_too(x: Tensor) -> Tensor:
        load.model.steps.add_(1)
        return load.model(x) - 1

    assert "output['steps']" in judge(load, steps_too, tmp_path).why
    assert load.model.steps == 0


def test_the_diagnosis_leaves_nothing_behind(load: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trusted.Cores, "starved", lambda self: False)  # whatever else runs on the machine:
    monkeypatch.setattr(trusted, "TWICE", float("inf"))  # a busy one would leave the time out
    reference = make_reference(load, cases(load), tmp_path)
    random = torch.get_rng_state()
    assert diagnose.inspect(load, reference).eager_call_s > 0
    assert load.model.steps == 0
    assert torch.equal(torch.get_rng_state(), random)


def test_its_golden_call_is_answered_from_the_same_state_by_both(load: Workload, tmp_path: Path) -> None:
    steps = WorkerState.__new__(WorkerState)  # its __init__ installs an audit hook for the life of the process
    steps.workload, steps.fn = load, lambda x: load.model(x)
    made = make_golden(steps, MakeGolden(folder=str(tmp_path), inputs="inputs", outputs="outputs"))
    kept = golden.read(tmp_path / "outputs")
    assert torch.equal(kept["output['sum']"], load.model(*load.call.args) + 1)
    assert kept["output['steps']"] == 1
    assert golden.difference(made.golden, load.unit(load.model).answer(load.call), kept) is None
