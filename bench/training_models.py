"""Six trainings for bench/training.py, as targets: `bench/training_models.py:gpt2`.

GPT-2-like, BERT fine-tuning, ResNet-18, ViT, an LSTM classifier, an MLP; AdamW or SGD as people train them. Random
weights and data made from seeds: the speed of a step depends on neither. Dropout is on where the model has it.
COMPILOT_BENCH_TINY=1 makes all of them small, to try the bench itself.
"""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from compilot import Training

TINY = bool(os.environ.get("COMPILOT_BENCH_TINY"))
NAMES = ("gpt2", "bert", "resnet18", "vit", "lstm", "mlp")


def pick(large: int, tiny: int) -> int:
    """A size, or the one for trying."""
    return tiny if TINY else large


def made(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=3e-4)


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-4)


def classify(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def labelled(model: nn.Module, batch: Any) -> Tensor:
    """A Hugging Face model computes its own loss."""
    return model(**batch).loss


def gpt2() -> Training:
    """A language model of 4 layers of 256, as a first experiment has it."""
    from transformers import GPT2Config, GPT2LMHeadModel

    size, tokens, words = pick(256, 32), pick(64, 8), pick(5000, 64)
    config = GPT2Config(
        n_layer=pick(4, 2), n_embd=size, n_head=4, n_positions=tokens, vocab_size=words, use_cache=False
    )

    def batch(seed: int) -> dict[str, Tensor]:
        ids = torch.randint(0, words, (4, tokens), generator=made(seed))
        return {"input_ids": ids, "labels": ids}

    return Training(GPT2LMHeadModel(config).train(), labelled, adamw, batch, clip_norm=1.0)


def bert() -> Training:
    """Fine-tuning of a small BERT for two classes."""
    from transformers import BertConfig, BertForSequenceClassification

    size, tokens, words = pick(256, 32), pick(64, 8), pick(8000, 64)
    config = BertConfig(
        num_hidden_layers=pick(4, 2),
        hidden_size=size,
        num_attention_heads=4,
        intermediate_size=4 * size,
        vocab_size=words,
        max_position_embeddings=tokens,
    )

    def batch(seed: int) -> dict[str, Tensor]:
        ids = torch.randint(0, words, (8, tokens), generator=made(seed))
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids[:, 0] % 2}

    return Training(BertForSequenceClassification(config).train(), labelled, adamw, batch, clip_norm=1.0)


class Block(nn.Module):
    """Two convolutions around a short cut."""

    def __init__(self, before: int, size: int, stride: int) -> None:
        super().__init__()
        self.first, self.norm1 = nn.Conv2d(before, size, 3, stride, 1, bias=False), nn.BatchNorm2d(size)
        self.second, self.norm2 = nn.Conv2d(size, size, 3, 1, 1, bias=False), nn.BatchNorm2d(size)
        same = stride == 1 and before == size
        short = nn.Sequential(nn.Conv2d(before, size, 1, stride, bias=False), nn.BatchNorm2d(size))
        self.short = nn.Identity() if same else short

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm2(self.second(F.relu(self.norm1(self.first(x)))))
        return F.relu(inner + self.short(x))


class ResNet18(nn.Module):
    """As the paper has it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.pool = nn.MaxPool2d(3, 2, 1)
        sizes = [width, width, 2 * width, 2 * width, 4 * width, 4 * width, 8 * width, 8 * width]
        strides = [1, 1, 2, 1, 2, 1, 2, 1]
        befores = [width, *sizes[:-1]]
        self.blocks = nn.Sequential(*(Block(*shape) for shape in zip(befores, sizes, strides, strict=True)))
        self.head = nn.Linear(8 * width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.pool(self.stem(x))).mean((2, 3)))


def resnet18() -> Training:
    """ResNet-18 with SGD on small images."""
    pixels = pick(96, 32)

    def batch(seed: int) -> tuple[Tensor, Tensor]:
        generator = made(seed)
        return torch.randn(4, 3, pixels, pixels, generator=generator), torch.randint(0, 10, (4,), generator=generator)

    return Training(ResNet18(pick(64, 8)), classify, sgd, batch)


class ViT(nn.Module):
    """A small vision transformer."""

    def __init__(self, layers: int, size: int, pixels: int, patch: int = 8) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, size, patch, patch)
        self.places = nn.Parameter(torch.randn(1, (pixels // patch) ** 2, size) * 0.02)
        layer = nn.TransformerEncoderLayer(size, 3, 4 * size, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.ModuleList([layer, *(_again(layer) for _ in range(layers - 1))])
        self.head = nn.Linear(size, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2) + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


def _again(layer: nn.Module) -> nn.Module:
    import copy

    new = copy.deepcopy(layer)
    for module in new.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    return new


def vit() -> Training:
    """6 layers of 192 on images of 64 pixels."""
    pixels = pick(64, 16)

    def batch(seed: int) -> tuple[Tensor, Tensor]:
        generator = made(seed)
        return torch.randn(8, 3, pixels, pixels, generator=generator), torch.randint(0, 10, (8,), generator=generator)

    return Training(ViT(pick(6, 2), pick(192, 24), pixels), classify, adamw, batch)


class LSTMClassifier(nn.Module):
    """Words, a recurrent layer, a head."""

    def __init__(self, words: int, size: int) -> None:
        super().__init__()
        self.words, self.lstm = nn.Embedding(words, size), nn.LSTM(size, size, batch_first=True)
        self.head = nn.Linear(size, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(self.words(x))[0][:, -1])


def lstm() -> Training:
    """A classifier of short texts."""
    words, size, tokens = pick(5000, 50), pick(128, 16), pick(64, 8)

    def batch(seed: int) -> tuple[Tensor, Tensor]:
        ids = torch.randint(0, words, (16, tokens), generator=made(seed))
        return ids, ids[:, 0] % 2

    return Training(LSTMClassifier(words, size), classify, adamw, batch, clip_norm=1.0)


def mlp() -> Training:
    """6 layers of 512 with LayerNorm."""
    size = pick(512, 32)
    layers = [part for _ in range(6) for part in (nn.Linear(size, size), nn.LayerNorm(size), nn.GELU())]

    def batch(seed: int) -> tuple[Tensor, Tensor]:
        generator = made(seed)
        return torch.randn(64, size, generator=generator), torch.randint(0, 10, (64,), generator=generator)

    return Training(nn.Sequential(*layers, nn.Linear(size, 10)), classify, adamw, batch)
