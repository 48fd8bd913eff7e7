"""A plan of a training in Hugging Face's Trainer: one callback. Run: python examples/trainer_plan.py PLAN"""

from __future__ import annotations

import sys
import tempfile
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from compilot.training.huggingface import PlanCallback


def make_model() -> BertForSequenceClassification:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=64, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, num_labels=2
    )
    config.use_cache = False  # as Trainer sets it for a training: tune the model that is trained
    return BertForSequenceClassification(config)


def make_data(rows: int = 10) -> list[dict[str, torch.Tensor]]:
    """Ten rows in batches of four: the last batch is smaller."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 64, (rows, 6), generator=generator)
    return [
        {"input_ids": row, "attention_mask": torch.ones(6, dtype=torch.long), "labels": row.sum() % 2} for row in ids
    ]


def train(
    plan: Any, folder: str, *, model: Any = None, resume: str | None = None
) -> tuple[Trainer, PlanCallback | None]:
    """plan=None: as without compilot. resume: a checkpoint, of a training with or without a plan."""
    callback = None if plan is None else PlanCallback(plan)
    arguments = TrainingArguments(
        folder,
        per_device_train_batch_size=4,
        num_train_epochs=2,
        learning_rate=1e-3,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="epoch",
        seed=0,
    )
    callbacks = [] if callback is None else [callback]
    trainer = Trainer(model or make_model(), arguments, train_dataset=make_data(), callbacks=callbacks)
    trainer.train(resume_from_checkpoint=resume)
    return trainer, callback


if __name__ == "__main__":
    _, done = train(sys.argv[1], tempfile.mkdtemp())
    assert done is not None
    print(done.stats())
