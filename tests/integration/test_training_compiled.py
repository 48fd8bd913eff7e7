"""Parts of a training step behind the real compiler, in use: they train as eager does, and compile once.

Tiny models, and one cache of compiled code for all of them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from training_plans import plan_of_step

import compilot
from compilot._torch.compiling import graphs_built
from compilot._tree import Call
from compilot.records import CompiledWay, MemoryFormat, OptimizerWay, Region, Settings, Shapes, StepParts
from compilot.runtime.guards import make_guard
from compilot.runtime.model_part import in_place, put_in_place, take_out
from compilot.training import TrainStep, make_step

pytestmark = pytest.mark.compiles
INDUCTOR = Settings(engine="inductor")
MODEL = StepParts(compiled=CompiledWay.MODEL)
REGIONS = (Region(selector="blocks.*", settings=INDUCTOR),)
EPOCHS = 3
Batch = tuple[Tensor, Tensor]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.compiler.reset()
    return tmp_path_factory.mktemp("compiled-training")


class Blocks(nn.Module):
    """Blocks that are alike."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)  # so that the first block's input has a gradient, as the second's
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(2)])
        self.out = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return self.out(x)


class Tied(nn.Module):
    """The output layer has the embedding's weights; a layer in between is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.inner, self.out = nn.Embedding(7, 6), nn.Linear(6, 6), nn.Linear(6, 7, bias=False)
        self.out.weight = self.words.weight
        self.inner.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.inner(self.words(x)).tanh())


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.out = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.norm(self.conv(x)).relu().mean((2, 3)))


def loss_of(model: nn.Module, batch: Batch) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def rows(size: int = 4) -> Batch:
    return torch.randn(size, 6), torch.randint(0, 3, (size,))


def words() -> Batch:
    return torch.randint(0, 7, (4,)), torch.randint(0, 7, (4,))


def images() -> Batch:
    return torch.randn(4, 2, 5, 5), torch.randint(0, 3, (4,))


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def trained_alike(
    model: nn.Module, make: Callable[[], Batch], parts: StepParts, cache: Path, **more: Any
) -> tuple[nn.Module, TrainStep]:
    """Five batches with these parts and with eager: the same losses and weights; no batch was eager's."""
    plain, mine = copy.deepcopy(model), copy.deepcopy(model)
    rules = {name: more[name] for name in ("accumulate", "clip_norm") if name in more}
    loop = make_step(plain, loss_of, sgd(plain), **rules)
    given = {"settings": INDUCTOR, "artifacts": cache, "strict": True, **more}
    step = make_step(mine, loss_of, sgd(mine), parts, **given)
    for batch in [make() for _ in range(5)]:
        torch.testing.assert_close(step(batch), loop(batch), rtol=1e-4, atol=1e-5)
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(mine.state_dict()[name], value, rtol=1e-3, atol=1e-4)
    stats = step.stats()
    assert (stats.fast, stats.fallbacks, stats.optimizer_fallbacks, stats.recompiles) == (5, {}, {}, 0)
    assert stats.compiles > 0
    return mine, step


def test_blocks_that_are_alike_share_a_program(cache: Path) -> None:
    _, step = trained_alike(Blocks(), rows, StepParts(compiled=CompiledWay.REGIONS), cache, regions=REGIONS)
    assert step.stats().compiles == 1


@pytest.mark.parametrize("way", [CompiledWay.MODEL, CompiledWay.WITH_LOSS, CompiledWay.ONE_GRAPH])
def test_gradients_add_up_over_a_window_and_are_clipped_as_eagers(way: CompiledWay, cache: Path) -> None:
    """The last window stays open: what it has added up is there for the next batch."""
    torch.manual_seed(0)
    mine, step = trained_alike(Blocks(), rows, StepParts(compiled=way), cache, accumulate=2, clip_norm=0.5)
    assert (step.stats().batches, step.stats().steps) == (5, 2)
    assert all(parameter.grad is not None for parameter in mine.parameters())


def test_compiled_autograd(cache: Path) -> None:
    trained_alike(Blocks(), rows, StepParts(compiled=CompiledWay.MODEL, compiled_autograd=True), cache)


def test_channels_last_with_the_fused_optimizer(cache: Path) -> None:
    settings = Settings(engine="inductor", memory_format=MemoryFormat.CHANNELS_LAST)
    parts = StepParts(compiled=CompiledWay.MODEL, optimizer=OptimizerWay.FUSED)
    mine, _ = trained_alike(Images(), images, parts, cache, settings=settings)
    assert mine.conv.weight.is_contiguous(memory_format=torch.channels_last)


def test_frozen_and_tied_parameters_with_the_optimizer_compiled_whole(cache: Path) -> None:
    model = Tied()
    parts = StepParts(compiled=CompiledWay.MODEL, optimizer=OptimizerWay.COMPILED)
    mine, _ = trained_alike(model, words, parts, cache)
    assert mine.out.weight is mine.words.weight
    assert torch.equal(mine.inner.weight, model.inner.weight)
    assert mine.inner.weight.grad is None
    assert not torch.equal(mine.words.weight, model.words.weight)


def test_in_place_forward_and_backward_are_built_together_and_kept(tmp_path: Path) -> None:
    """Before the loop's own backward, so that nothing of it can fail there; and found by whoever comes later."""
    from torch._dynamo.utils import counters

    def misses() -> int:
        return int(counters["inductor"]["fxgraph_cache_miss"])

    model, batch = Blocks(), rows()
    plain = copy.deepcopy(model)
    loss_of(plain, batch).backward()
    for built in (2, 0):
        torch.compiler.reset()
        before = misses()
        (door,) = put_in_place(model, CompiledWay.MODEL, INDUCTOR, (), tmp_path).values()
        loss = loss_of(model, batch)
        assert misses() - before == built
        loss.backward()
        assert misses() - before == built
        assert (door.stats().fast, door.stats().compiles) == (1, 1)
        for own, wanted in zip(model.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(own.grad, wanted.grad, rtol=1e-4, atol=1e-6)
        model.zero_grad()
        take_out(model)


def built_by_epoch(model: nn.Module, optimizer: torch.optim.Optimizer, train: Callable[[Batch], Any]) -> list[int]:
    """Programs of this process after each epoch: a schedule, a smaller last batch, a validation of yet another size."""
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=EPOCHS * 4 + 1)
    built = []
    for _ in range(EPOCHS):
        for batch in (rows(), rows(), rows(), rows(2)):
            train(batch)
            scheduler.step()
        with torch.no_grad():
            loss_of(model.eval(), rows(3))
        model.train()
        built.append(graphs_built())
    return built


@pytest.mark.parametrize("update", [OptimizerWay.COMPILED, OptimizerWay.KERNEL])
@pytest.mark.parametrize("way", [way for way in CompiledWay if way is not CompiledWay.NOTHING])
def test_a_schedule_a_validation_and_a_smaller_last_batch_compile_nothing_again(
    way: CompiledWay, update: OptimizerWay, cache: Path
) -> None:
    model = Blocks()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    guard = make_guard(model, Call((rows(),), {}), dynamic=(), shapes=Shapes.STATIC, grad=True)
    parts = StepParts(compiled=way, optimizer=update)
    regions = REGIONS if way is CompiledWay.REGIONS else ()
    step = make_step(
        model, loss_of, optimizer, parts, settings=INDUCTOR, regions=regions, artifacts=cache, guard=guard, strict=True
    )
    before, own = graphs_built(), []
    built = built_by_epoch(model, optimizer, lambda batch: (step(batch), own.append(step.stats().compiles)))
    stats = step.stats()
    assert built == [built[0]] * EPOCHS
    assert own[0] > 0
    assert own[4:] == [own[3]] * 8 == [built[0] - before] * 8
    assert stats.recompiles == 0
    assert (stats.batches, stats.steps, stats.fast) == (12, 12, 9)
    assert stats.fallbacks == {"shape of args[0][0]: 2x6, plan has 4x6": EPOCHS}
    assert stats.optimizer_fallbacks == {}


@pytest.mark.parametrize("way", [CompiledWay.MODEL, CompiledWay.REGIONS])
def test_in_place_they_compile_nothing_again_either(way: CompiledWay, cache: Path) -> None:
    model, before = Blocks(), graphs_built()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    regions = REGIONS if way is CompiledWay.REGIONS else ()
    plan = plan_of_step(
        model, rows(), StepParts(compiled=way), settings=INDUCTOR, regions=regions, artifacts_dir="in-place"
    )
    assert compilot.compile(model, plan, inplace=True, folder=cache) is model

    def train(batch: Batch) -> None:
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()

    built = built_by_epoch(model, optimizer, train)
    assert built == [before + 1] * EPOCHS
    doors = in_place(model).values()
    assert sum(door.stats().compiles for door in doors) == 1
    for door in doors:
        assert door.stats().fast == 9
        assert door.stats().fallbacks == {"sizes other than those of the first call": EPOCHS, "eval mode": EPOCHS}
    take_out(model)
