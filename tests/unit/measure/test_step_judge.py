"""The judge of a training step: right ways pass, wrong ones are refused with the tensor and the step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from measure.trainings import Net, adamw, loss, momentum, one_cycle, training
from torch import Tensor, nn

from compilot import Training
from compilot.measure import step_reference
from compilot.measure.step_check import check_steps
from compilot.measure.step_compare import judge_step
from compilot.measure.step_seen import StepSeen, see_step
from compilot.records import Check, OptimizerWay, Reference, StepParts
from compilot.training import make_step
from compilot.workload.eager_step import EagerStep
from compilot.workload.loop import Loop, MakeStep


def judged(load: Training, make: MakeStep | None, folder: Path, *, reference: Reference | None = None) -> Check:
    """As a worker does it: the reference, the candidate's first step, then the others."""
    reference = reference or step_reference.make_reference(load, folder)
    loop = Loop(load, make)
    begin = loop.save()
    first = see_step(loop, step_reference.window(load, 0), step_reference.seed_of(load, 0))
    try:
        return check_steps(loop, load, folder, reference, first=first)
    finally:
        loop.restore(begin)


def faulty(kind: type[EagerStep], load: Training) -> MakeStep:
    return lambda model, loss, optimizer: kind(model, loss, optimizer, load.rules)


class OffByOnePercent(EagerStep):
    """A backward whose gradient of one layer is 1 % too large."""

    def clip_and_step(self) -> None:
        with torch.no_grad():
            self.model.inner.weight.grad.mul_(1.01)  # type: ignore[union-attr, operator]
        super().clip_and_step()


class AllOffByOnePercent(EagerStep):
    """The same for every gradient: an optimizer that scales gradients away does not hide it."""

    def clip_and_step(self) -> None:
        for parameter in self._parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(1.01)
        super().clip_and_step()


class SkippedUpdate(EagerStep):
    """Every fourth update is left out."""

    count = 0

    def clip_and_step(self) -> None:
        self.count += 1
        if self.count % 4:
            super().clip_and_step()


class StaleState(EagerStep):
    """The optimizer's averages are those of the step before."""

    def clip_and_step(self) -> None:
        kept = {p: {k: v.clone() for k, v in self.optimizer.state[p].items()} for p in self._parameters}
        super().clip_and_step()
        with torch.no_grad():
            for parameter, state in kept.items():
                for name, value in state.items():
                    if name != "step":
                        self.optimizer.state[parameter][name].copy_(value)


class DroppedGradient(EagerStep):
    """The embedding gets no gradient: what one graph for all did to embeddings."""

    def clip_and_step(self) -> None:
        self.model.words.weight.grad = None  # type: ignore[union-attr]
        super().clip_and_step()


class FrozenStatistics(EagerStep):
    """The batch norm's averages do not move."""

    def __call__(self, batch: Any) -> Tensor:
        kept = {name: buffer.clone() for name, buffer in self.model.named_buffers()}
        value = super().__call__(batch)
        for name, buffer in self.model.named_buffers():
            buffer.copy_(kept[name])
        return value


FAULTS = [
    (OffByOnePercent, "inner.weight"),
    (AllOffByOnePercent, "gradient of"),
    (SkippedUpdate, "move of"),
    (StaleState, "optimizer "),
    (DroppedGradient, "words.weight has no gradient"),
    (FrozenStatistics, "buffer norm"),
]


@pytest.mark.parametrize(("optimizer", "times"), [(adamw, 5), (momentum, 2)])
def test_a_fault_is_refused_each_time_and_eager_never(optimizer: Any, times: int, tmp_path: Path) -> None:
    for seed in range(times):
        load = training(optimizer=optimizer).replaced(seed=100 * seed)
        reference = step_reference.make_reference(load, tmp_path)
        right = judged(load, None, tmp_path, reference=reference)
        assert right.passed, right.why
        for fault, told in FAULTS:
            found = judged(load, faulty(fault, load), tmp_path, reference=reference)
            assert not found.passed
            assert told in found.why
            assert "step" in found.why or "update" in found.why


@pytest.mark.parametrize("way", [OptimizerWay.AS_IS, OptimizerWay.LOOP, OptimizerWay.FOREACH, OptimizerWay.FUSED])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_other_ways_of_the_optimizer_pass(way: OptimizerWay, dropout: float, tmp_path: Path) -> None:
    load = training(dropout=dropout, accumulate=2, clip_norm=0.5, scheduler=one_cycle)

    def make(model: nn.Module, loss: Any, optimizer: Any) -> Any:
        return make_step(model, loss, optimizer, StepParts(optimizer=way), accumulate=2, clip_norm=0.5, strict=True)

    found = judged(load, make, tmp_path)
    assert found.passed, found.why
    assert found.reference == "float64"
    assert "optimizer state" in found.why


def test_a_fault_is_refused_in_a_model_with_dropout(tmp_path: Path) -> None:
    load = training(dropout=0.3, accumulate=2, clip_norm=0.5)
    found = judged(load, faulty(OffByOnePercent, load), tmp_path)
    assert not found.passed


def test_rounding_alone_passes(tmp_path: Path) -> None:
    """Another order of the same sums: threads, as a candidate may have them."""
    load = training()
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        found = judged(load, None, tmp_path)
    finally:
        torch.set_num_threads(before)
    assert found.passed, found.why


def test_a_training_that_cannot_run_in_float64_is_judged_by_eager(tmp_path: Path) -> None:
    def single(model: nn.Module, batch: Any) -> Tensor:
        logits = model(batch[0])
        if logits.dtype is torch.float64:
            raise TypeError("float32 only")
        return nn.functional.cross_entropy(logits, batch[1])

    load = training()
    load.loss = single
    found = judged(load, None, tmp_path)
    assert found.passed
    assert found.reference == "eager"
    assert any("float64" in note for note in found.notes)
    assert not judged(load, faulty(OffByOnePercent, load), tmp_path).passed


def test_the_reference_leaves_everything_as_it_was(tmp_path: Path) -> None:
    load = training(dropout=0.2, scheduler=one_cycle)
    before = {name: value.clone() for name, value in load.model.state_dict().items()}
    random = torch.get_rng_state()
    step_reference.make_reference(load, tmp_path)
    assert all(torch.equal(before[name], value) for name, value in load.model.state_dict().items())
    assert torch.equal(random, torch.get_rng_state())
    assert all(parameter.grad is None for parameter in load.model.parameters())


class NaNWhereNoGradientIs(EagerStep):
    """An update that ruins rows of the embedding that no word of the batch has used."""

    def clip_and_step(self) -> None:
        unused = self.model.words.weight.grad.abs().sum(1) == 0  # type: ignore[union-attr, operator]
        super().clip_and_step()
        with torch.no_grad():
            self.model.words.weight[unused] = float("nan")  # type: ignore[index, union-attr, operator]


@pytest.mark.parametrize("optimizer", [adamw, momentum])
def test_a_nan_where_the_gradient_is_zero_is_refused(optimizer: Any, tmp_path: Path) -> None:
    made = torch.Generator().manual_seed(0)
    words = torch.randint(0, 5, (12, 6), generator=made)  # of ten: half of the rows have no gradient
    load = Training(Net(), loss, optimizer, [(words, words[:, 0])])
    assert judged(load, None, tmp_path).passed
    found = judged(load, faulty(NaNWhereNoGradientIs, load), tmp_path)
    assert not found.passed
    assert "words.weight moved by up to nan" in found.why


def test_a_loss_or_a_norm_that_is_no_number_is_refused_unless_the_reference_is_none() -> None:
    def seen(value: float, norm: float) -> StepSeen:
        return StepSeen((value,), {}, {"weight": norm}, {}, {})

    right, nan = seen(1.0, 2.0), float("nan")
    assert not judge_step(right, right, [right, seen(nan, nan)], "step 1").failure
    assert "has norm nan" in judge_step(seen(1.0, nan), right, [right], "step 1").failure
    assert "the loss is nan" in judge_step(seen(nan, 2.0), right, [right], "step 1").failure
    assert not judge_step(seen(nan, nan), seen(nan, nan), [seen(nan, nan)], "step 1").failure
