"""Trainer, accelerate and Lightning: their examples train with a plan as without, and checkpoints cross over."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from training_plans import plan_of_step

from compilot.errors import InputError
from compilot.records import CompiledWay, OptimizerWay, Plan, StepParts

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:::(lightning|accelerate|transformers|torch)")]
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
BOTH = StepParts(compiled=CompiledWay.MODEL, optimizer=OptimizerWay.FUSED)
BERTS_PROGRAMS = 2  # its first call writes problem_type into its config, so that the second one builds another


def plan_for(model: nn.Module, batch: Any, step: StepParts = BOTH) -> Plan:
    return plan_of_step(model, batch, step)


def assert_alike(one: nn.Module, other: nn.Module) -> None:
    """Within the rounding of some updates of Adam."""
    mine, theirs = one.state_dict(), other.state_dict()
    assert list(mine) == list(theirs)
    for name, tensor in mine.items():
        torch.testing.assert_close(tensor, theirs[name], rtol=1e-3, atol=1e-4)


def trainers_batch(example: Any) -> dict[str, torch.Tensor]:
    data = example.make_data()
    return {name: torch.stack([row[name] for row in data[:4]]) for name in data[0]}


def assert_states_alike(one: Any, other: Any) -> None:
    """What two optimizers know of their parameters, in order; accelerate's wrap the real ones."""
    assert_saved_alike(one.state_dict(), other.state_dict())


def assert_saved_alike(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Settings of the groups, and what is known of every parameter."""
    assert one["param_groups"] == other["param_groups"]
    mine, theirs = one["state"], other["state"]
    assert mine.keys() == theirs.keys()
    for number, state in mine.items():
        for name, value in state.items():
            torch.testing.assert_close(value, theirs[number][name], rtol=1e-3, atol=1e-5)


def test_trainer(tmp_path: Path) -> None:
    import trainer_plan as example

    plan = plan_for(example.make_model(), trainers_batch(example))
    plain, _ = example.train(None, str(tmp_path / "plain"))
    fast, callback = example.train(plan, str(tmp_path / "fast"))
    assert_alike(fast.model, plain.model)
    stats = callback.stats()
    assert (stats.fast, stats.compiles) == (4, BERTS_PROGRAMS)
    assert stats.fallbacks == {"sizes other than those of the first call": 2}  # the last batch of each epoch
    assert all(module._compiled_call_impl is None for module in fast.model.modules())
    saved = sorted((tmp_path / "fast").glob("checkpoint-*"))
    without = example.make_model().from_pretrained(saved[-1])
    assert_alike(without, plain.model)
    groups = [
        torch.load(tmp_path / name / saved[-1].name / "optimizer.pt")["param_groups"] for name in ("fast", "plain")
    ]
    assert groups[0] == groups[1]


def test_trainer_goes_on_with_a_plan_from_a_checkpoint_without_one(tmp_path: Path) -> None:
    import trainer_plan as example

    plan = plan_for(example.make_model(), trainers_batch(example))
    plain, _ = example.train(None, str(tmp_path / "plain"))
    first = min((tmp_path / "plain").glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    fast, callback = example.train(plan, str(tmp_path / "fast"), resume=str(first))
    assert_alike(fast.model, plain.model)
    assert_states_alike(fast.optimizer, plain.optimizer)
    assert callback.stats().fast == 2  # of the second epoch
    assert callback.stats().compiles == BERTS_PROGRAMS


def test_trainer_with_a_model_from_pretrained(tmp_path: Path) -> None:
    """It is in eval mode when the training begins."""
    import trainer_plan as example

    example.make_model().save_pretrained(tmp_path / "model")

    def load() -> Any:
        loaded = example.make_model().from_pretrained(tmp_path / "model")
        loaded.config.use_cache = False
        return loaded

    plan = plan_for(load().train(), trainers_batch(example))
    model = load()
    assert not model.training
    fast, callback = example.train(plan, str(tmp_path / "fast"), model=model)
    plain, _ = example.train(None, str(tmp_path / "plain"))
    assert_alike(fast.model, plain.model)
    assert callback.stats().fast == 4


def test_accelerate() -> None:
    import accelerate_plan as example

    plan = plan_for(example.make_model(), example.make_data()[0])
    plain, wanted, _ = example.train(None)
    fast, losses, stats = example.train(plan)
    assert losses == pytest.approx(wanted, rel=1e-5)
    assert_alike(fast, plain)
    assert (stats.fast, stats.fallbacks, stats.compiles) == (5, {}, 1)
    plain.load_state_dict(fast.state_dict())


def test_accelerate_goes_on_with_a_plan_from_a_state_without_one(tmp_path: Path) -> None:
    import accelerate_plan as example

    plan = plan_for(example.make_model(), example.make_data()[0])
    _, wanted, _ = example.train(None, save_to=str(tmp_path / "state"))
    further, losses, _ = example.train(None, go_on_from=str(tmp_path / "state"))
    assert losses[0] < wanted[0]  # it went on
    fast, own, stats = example.train(plan, go_on_from=str(tmp_path / "state"))
    assert own == pytest.approx(losses, rel=1e-4)
    assert_alike(fast, further)
    assert (stats.fast, stats.fallbacks, stats.compiles) == (5, {}, 1)


def test_accelerate_goes_on_without_a_plan_from_a_state_with_one(tmp_path: Path) -> None:
    import accelerate_plan as example

    plan = plan_for(example.make_model(), example.make_data()[0])
    (_, wanted, _), (_, own, _) = [
        example.train(given, save_to=str(tmp_path / name)) for given, name in ((None, "plain"), (plan, "fast"))
    ]
    (plain, losses, _), (further, again, _) = [
        example.train(None, go_on_from=str(tmp_path / name), save_to=str(tmp_path / f"{name}-later"))
        for name in ("plain", "fast")
    ]
    assert own == pytest.approx(wanted, rel=1e-5)
    assert losses[0] < wanted[0]  # it went on
    assert again == pytest.approx(losses, rel=1e-4)
    assert_alike(further, plain)
    for name in ("{}", "{}-later"):
        assert_saved_alike(*(torch.load(tmp_path / name.format(side) / "optimizer.bin") for side in ("fast", "plain")))


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
    stats = callback.stats()
    assert (stats.fast, stats.fallbacks, stats.compiles) == (5, {}, 1)
    trainer.save_checkpoint(tmp_path / "fast.ckpt")
    without = example.Classifier.load_from_checkpoint(tmp_path / "fast.ckpt")
    assert_alike(without, plain)


def test_lightning_goes_on_with_a_plan_from_a_checkpoint_without_one(tmp_path: Path) -> None:
    import lightning_plan as example

    plan = plan_for(example.make_model(), example.make_data()[0])
    _, _, trainer = example.train(None, str(tmp_path))
    trainer.save_checkpoint(tmp_path / "plain.ckpt")
    sides = [
        example.train(given, str(tmp_path), epochs=2, go_on_from=str(tmp_path / "plain.ckpt")) for given in (None, plan)
    ]
    (plain, _, one), (fast, callback, other) = sides
    assert len(fast.losses) == 5  # the second epoch alone
    assert fast.losses == pytest.approx(plain.losses, rel=1e-4)
    assert_alike(fast, plain)
    assert_states_alike(other.optimizers[0], one.optimizers[0])
    stats = callback.stats()
    assert (stats.fast, stats.fallbacks, stats.compiles) == (5, {}, 1)


def test_lightning_goes_on_without_a_plan_from_a_checkpoint_with_one(tmp_path: Path) -> None:
    import lightning_plan as example

    plan = plan_for(example.make_model(), example.make_data()[0])
    sides = []
    for name, given in (("plain", None), ("fast", plan)):
        path = tmp_path / f"{name}.ckpt"
        example.train(given, str(tmp_path))[2].save_checkpoint(path)
        sides.append(example.train(None, str(tmp_path), epochs=2, go_on_from=str(path)))
    (plain, _, one), (further, _, other) = sides
    assert len(further.losses) == 5  # the second epoch alone
    assert further.losses == pytest.approx(plain.losses, rel=1e-4)
    assert_alike(further, plain)
    assert_states_alike(other.optimizers[0], one.optimizers[0])


def test_lightnings_step_is_chosen_by_its_own_gradients(tmp_path: Path) -> None:
    """Its optimizers get a closure that makes them; torch's fused SGD takes no sparse ones."""
    import lightning as L

    from compilot.training.lightning import PlanCallback

    class Rows(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = nn.EmbeddingBag(6, 2, sparse=True)

        def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
            return self.model(batch).square().sum()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    module, data = Rows(), [torch.tensor([[1, 2]]), torch.tensor([[3, 4]])]
    before = module.model.weight.detach().clone()
    plan = plan_for(module.model, data[0], StepParts(optimizer=OptimizerWay.FUSED))
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = L.Trainer(
        max_epochs=1,
        accelerator="cpu",
        callbacks=[PlanCallback(plan, module="model")],
        default_root_dir=str(tmp_path),
        enable_model_summary=False,
        **quiet,
    )
    trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=None))
    assert (module.model.weight != before).any(dim=1).tolist() == [False, True, True, True, True, False]
