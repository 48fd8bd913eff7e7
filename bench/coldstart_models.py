"""Models of bench/coldstart.py: Hugging Face configurations with random weights, 10 to 100 MB."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

Made = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]


def resnet18() -> Made:
    from transformers import ResNetConfig, ResNetForImageClassification

    torch.manual_seed(0)
    config = ResNetConfig(layer_type="basic", hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], return_dict=False)
    return ResNetForImageClassification(config).eval(), (torch.randn(1, 3, 224, 224),), {}


def bert() -> Made:
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024)
    ids = torch.randint(0, 1000, (1, 64))
    return BertModel(config).eval(), (), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def vit() -> Made:
    from transformers import ViTConfig, ViTForImageClassification

    torch.manual_seed(0)
    config = ViTConfig(hidden_size=192, num_hidden_layers=6, num_attention_heads=3, intermediate_size=768)
    return ViTForImageClassification(config).eval(), (torch.randn(1, 3, 224, 224),), {}


def mlp() -> Made:
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
    return nn.Sequential(*layers).eval(), (torch.randn(16, 1024),), {}
