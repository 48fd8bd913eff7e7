"""A plan of a training in Lightning: one callback. Run: python examples/lightning_plan.py PLAN"""

from __future__ import annotations

import sys
from typing import Any

import lightning as L
import torch
import torch.nn.functional as F

from accelerate_plan import make_data, make_model
from compilot.training.lightning import PlanCallback


class Classifier(L.LightningModule):
    """The tuned model is its attribute `model`."""

    def __init__(self) -> None:
        super().__init__()
        self.model = make_model()
        self.losses: list[float] = []

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        loss = F.cross_entropy(self.model(batch[0]), batch[1])
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def train(
    plan: Any, folder: str, *, epochs: int = 1, go_on_from: str | None = None
) -> tuple[Classifier, PlanCallback | None, L.Trainer]:
    """plan=None: as without compilot. go_on_from: a checkpoint, of a training with or without a plan."""
    callback = None if plan is None else PlanCallback(plan, module="model")
    trainer = L.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        callbacks=[] if callback is None else [callback],
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = Classifier()
    trainer.fit(module, torch.utils.data.DataLoader(make_data(), batch_size=None), ckpt_path=go_on_from)
    return module, callback, trainer


if __name__ == "__main__":
    _, done, _ = train(sys.argv[1], ".")
    assert done is not None
    print(done.stats())
