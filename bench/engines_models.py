"""The twelve models of bench/engines.py, as targets: `compilot tune bench/engines_models.py:resnet18`.

In: nothing. Out: per model a factory that returns (model, args, kwargs): ten from transformers' configurations with
random weights (nothing is downloaded) and two plain ones. Weights and inputs are seeded in the factory itself, so that
every process and every arm has the same ones. Batch 1 (the MLP 16), images of 224 pixels, 128 tokens (GPT-2 64).
"""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # models are made from their configurations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

TOKENS = 128
GPT_TOKENS = 64
PIXELS = 224

Made = tuple[nn.Module, tuple[torch.Tensor, ...], dict[str, torch.Tensor]]


def seeded(make: Callable[[], Made]) -> Callable[[], Made]:
    """The factory with fixed random numbers and the model in eval mode."""

    def factory() -> Made:
        torch.manual_seed(0)
        model, args, kwargs = make()
        return model.eval(), args, kwargs

    factory.__name__ = make.__name__
    return factory


def library() -> Any:
    """transformers, without its remarks."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    return transformers


def spread(model: nn.Module) -> nn.Module:
    """Convolutions that keep the size of what they pass on.

    The initial weights of transformers let these deep nets fade to denormal numbers, which are many times slower on a
    CPU than what a trained net computes with.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
    return model


def image() -> tuple[torch.Tensor, ...]:
    return (torch.randn(1, 3, PIXELS, PIXELS),)


def tokens(vocabulary: int, length: int = TOKENS) -> torch.Tensor:
    return torch.randint(0, vocabulary, (1, length))


@seeded
def resnet18() -> Made:
    lib = library()
    config = lib.ResNetConfig(
        embedding_size=64, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic", num_labels=1000
    )
    return lib.ResNetForImageClassification(config), image(), {}


@seeded
def mobilenetv2() -> Made:
    lib = library()
    return spread(lib.MobileNetV2ForImageClassification(lib.MobileNetV2Config(num_labels=1000))), image(), {}


@seeded
def efficientnet_b0() -> Made:
    """transformers' default is b7; b0 is the same net without its scaling."""
    lib = library()
    config = lib.EfficientNetConfig(
        image_size=PIXELS, width_coefficient=1.0, depth_coefficient=1.0, hidden_dim=1280, num_labels=1000
    )
    return spread(lib.EfficientNetForImageClassification(config)), image(), {}


@seeded
def convnext_tiny() -> Made:
    lib = library()
    return lib.ConvNextForImageClassification(lib.ConvNextConfig(num_labels=1000)), image(), {}


@seeded
def vit_small() -> Made:
    lib = library()
    config = lib.ViTConfig(
        hidden_size=384, num_attention_heads=6, num_hidden_layers=12, intermediate_size=1536, num_labels=1000
    )
    return lib.ViTForImageClassification(config), image(), {}


@seeded
def segformer_b0() -> Made:
    lib = library()
    return lib.SegformerForSemanticSegmentation(lib.SegformerConfig(num_labels=150)), image(), {}


@seeded
def bert_small() -> Made:
    lib = library()
    config = lib.BertConfig(
        hidden_size=512, num_hidden_layers=4, num_attention_heads=8, intermediate_size=2048, vocab_size=30522
    )
    ids = tokens(config.vocab_size)
    return lib.BertModel(config), (), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@seeded
def gpt2_small() -> Made:
    lib = library()
    config = lib.GPT2Config(use_cache=False)
    return lib.GPT2LMHeadModel(config), (), {"input_ids": tokens(config.vocab_size, GPT_TOKENS)}


@seeded
def t5_small() -> Made:
    """One forward of encoder and decoder."""
    lib = library()
    config = lib.T5Config(use_cache=False, decoder_start_token_id=0)
    ids, decoder_ids = tokens(config.vocab_size), tokens(config.vocab_size, TOKENS // 4)
    return lib.T5ForConditionalGeneration(config), (), {"input_ids": ids, "decoder_input_ids": decoder_ids}


@seeded
def whisper_tiny_encoder() -> Made:
    """Thirty seconds of sound: 80 bands x 3000 frames, as the model always takes."""
    lib = library()
    config = lib.WhisperConfig(
        d_model=384,
        encoder_layers=4,
        decoder_layers=4,
        encoder_attention_heads=6,
        decoder_attention_heads=6,
        encoder_ffn_dim=1536,
        decoder_ffn_dim=1536,
    )
    return lib.WhisperModel(config).get_encoder(), (torch.randn(1, 80, 3000),), {}


class Lstm(nn.Module):
    """Two LSTM layers over a sequence, and a head on the last step."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(128, 256, num_layers=2, batch_first=True)
        self.head = nn.Linear(256, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0][:, -1])


@seeded
def lstm() -> Made:
    return Lstm(), (torch.randn(1, TOKENS, 128),), {}


@seeded
def mlp() -> Made:
    layers = [part for _ in range(4) for part in (nn.Linear(256, 256), nn.GELU())]
    return nn.Sequential(*layers, nn.Linear(256, 16)), (torch.randn(16, 256),), {}
