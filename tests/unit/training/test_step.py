"""One step is the loop that a user writes by hand: windows, clipping, losses, and nothing halfway."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from small_training import Batch, by_hand, farthest, loss_of, make_batches, twin
from torch import nn

from compilot.errors import InputError
from compilot.records import StepRules
from compilot.training import make_step
from compilot.workload.eager_step import EagerStep


@pytest.mark.parametrize(("accumulate", "clip"), [(1, None), (3, None), (2, 0.1)])
def test_it_is_the_loop_by_hand(model: nn.Module, batches: list[Batch], accumulate: int, clip: float | None) -> None:
    other, optimizer = twin(model)
    wanted = by_hand(other, optimizer, batches, accumulate=accumulate, clip=clip)
    mine, own = twin(model)
    step = make_step(mine, loss_of, own, accumulate=accumulate, clip_norm=clip)
    assert [step(batch).item() for batch in batches] == wanted
    assert farthest(mine, other) == 0
    assert step.stats()[:3] == (6, 6 // accumulate, 6)


def test_the_loss_is_detached_and_not_divided(model: nn.Module, batches: list[Batch]) -> None:
    expected = loss_of(copy.deepcopy(model), batches[0]).item()
    step = make_step(*_parts_of(model), accumulate=2)
    loss = step(batches[0])
    assert loss.item() == expected
    assert not loss.requires_grad


def test_parameters_move_at_the_end_of_a_window_only(model: nn.Module, batches: list[Batch]) -> None:
    step = make_step(*_parts_of(model), accumulate=2)
    before = copy.deepcopy(model.state_dict())
    step(batches[0])
    assert not step.at_window_start
    assert all(torch.equal(before[name], own) for name, own in model.named_parameters())
    step(batches[1])
    assert step.at_window_start
    assert not any(torch.equal(before[name], own) for name, own in model.named_parameters() if "conv" not in name)


def test_gradients_of_before_do_not_count(model: nn.Module, batches: list[Batch]) -> None:
    other, optimizer = twin(model)
    by_hand(other, optimizer, batches[:1])
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    mine = make_step(*_parts_of(model))
    mine(batches[0])
    assert farthest(model, other) == 0


def test_an_error_leaves_parameters_and_drops_the_window(model: nn.Module, batches: list[Batch]) -> None:
    failing = [False]

    def loss(own: nn.Module, batch: Batch) -> torch.Tensor:
        if failing[0]:
            raise ValueError("a bad batch")
        return loss_of(own, batch)

    _, _, optimizer = _parts_of(model)
    step = make_step(model, loss, optimizer, accumulate=2)
    step(batches[0])
    before, failing[0] = {name: own.clone() for name, own in model.named_parameters()}, True
    with pytest.raises(ValueError, match="a bad batch"):
        step(batches[1])
    failing[0] = False
    assert all(torch.equal(before[name], own) for name, own in model.named_parameters())
    assert step.at_window_start  # the next batch starts anew
    step(batches[2])
    assert step.stats().steps == 0


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (lambda model, batch: model(batch[0]), "shape"),
        (lambda model, batch: 1.0, "float"),
        (lambda model, batch: loss_of(model, batch).detach(), "no gradients"),
    ],
)
def test_what_is_no_loss_is_refused(model: nn.Module, batches: list[Batch], loss: Any, said: str) -> None:
    _, _, optimizer = _parts_of(model)
    with pytest.raises(InputError, match=said):
        make_step(model, loss, optimizer)(batches[0])


def test_a_step_needs_gradients(model: nn.Module, batches: list[Batch]) -> None:
    step = make_step(*_parts_of(model))
    with torch.no_grad(), pytest.raises(InputError, match="no_grad"):
        step(batches[0])


def test_a_window_has_at_least_one_batch(model: nn.Module) -> None:
    with pytest.raises(InputError, match="accumulate=0"):
        make_step(*_parts_of(model), accumulate=0)


def test_an_optimizer_that_calls_the_loss_itself_is_refused(model: nn.Module) -> None:
    with pytest.raises(InputError, match=r"LBFGS calls the loss itself.*inplace=True"):
        make_step(model, loss_of, torch.optim.LBFGS(model.parameters()))


def test_any_size_of_batch_is_taken_without_a_guard(model: nn.Module, batches: list[Batch]) -> None:
    step = make_step(*_parts_of(model))
    for batch in (*batches[:2], *make_batches(1, size=2)):
        step(batch)
    assert step.stats().fallbacks == {}


def test_update_ends_a_partial_window(model: nn.Module, batches: list[Batch]) -> None:
    other, optimizer = twin(model)
    for window in (batches[:2], batches[2:5]):
        optimizer.zero_grad()
        for batch in window:
            (loss_of(other, batch) / 3).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(other.parameters(), 0.1)
        optimizer.step()
    mine, own = twin(model)
    plain, users = twin(model)
    eager = EagerStep(plain, loss_of, users, StepRules(accumulate=3, clip_norm=0.1))
    for step in (make_step(mine, loss_of, own, accumulate=3, clip_norm=0.1), eager):
        for batch in batches[:2]:
            step(batch)
        assert step.update()
        for batch in batches[2:5]:
            step(batch)
    assert farthest(mine, other) == 0
    assert farthest(plain, other) == 0


def test_after_update_the_next_batch_starts_a_window(model: nn.Module, batches: list[Batch]) -> None:
    step = make_step(*_parts_of(model), accumulate=3)
    step(batches[0])
    assert step.update()
    assert step.at_window_start
    assert step.stats().steps == 1


@pytest.mark.parametrize("clip", [None, 0.1])
@pytest.mark.parametrize("kind", ["train_step", "eager"])
def test_update_moves_nothing_twice(model: nn.Module, batches: list[Batch], kind: str, clip: float | None) -> None:
    """Gradients stay until the next window begins: an update at the end of each epoch takes them once."""
    other, optimizer = twin(model)
    by_hand(other, optimizer, batches[:2], accumulate=2, clip=clip)
    mine, own = twin(model)
    step = _made(kind, mine, loss_of, own, accumulate=2, clip=clip)
    assert not step.update()  # before the first batch
    for batch in batches[:2]:
        step(batch)
    assert not step.update()
    assert farthest(mine, other) == 0
    step(batches[2])
    assert step.update()
    assert not step.update()
    assert {int(state["step"]) for state in own.state.values()} == {2}


@pytest.mark.parametrize("kind", ["train_step", "eager"])
def test_update_applies_nothing_of_a_window_that_an_error_has_dropped(
    model: nn.Module, batches: list[Batch], kind: str
) -> None:
    def loss(own: nn.Module, batch: Batch) -> torch.Tensor:
        if batch is batches[1]:
            raise ValueError("a bad batch")
        return loss_of(own, batch)

    other, optimizer = twin(model)
    mine, own = twin(model)
    step = _made(kind, mine, loss, own, accumulate=3)
    step(batches[0])
    with pytest.raises(ValueError, match="a bad batch"):
        step(batches[1])
    assert not step.update()
    assert all(torch.equal(p, q) for p, q in zip(mine.parameters(), model.parameters(), strict=True))
    other.load_state_dict(mine.state_dict())  # statistics of the dropped batch
    (loss_of(other, batches[2]) / 3).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    step(batches[2])
    assert step.update()
    assert farthest(mine, other) == 0


def test_update_without_a_window_is_no_step_and_no_fallback(model: nn.Module, batches: list[Batch]) -> None:
    step = make_step(*_parts_of(model), accumulate=3)
    step(batches[0])
    step.restart_window()
    assert not step.update()
    assert (step.stats().steps, step.stats().optimizer_fallbacks) == (0, {})


def test_a_norm_to_clip_to_is_above_zero(model: nn.Module) -> None:
    with pytest.raises(InputError, match="clip_norm=0"):
        make_step(*_parts_of(model), clip_norm=0)


def _made(
    kind: str, model: nn.Module, loss: Any, optimizer: torch.optim.Optimizer, *, accumulate: int, clip: Any = None
) -> Any:
    if kind == "eager":
        return EagerStep(model, loss, optimizer, StepRules(accumulate=accumulate, clip_norm=clip))
    return make_step(model, loss, optimizer, accumulate=accumulate, clip_norm=clip)


def _parts_of(model: nn.Module) -> tuple[nn.Module, Any, torch.optim.Optimizer]:
    return model, loss_of, torch.optim.AdamW(model.parameters(), lr=0.01)
