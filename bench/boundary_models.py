"""Models with repeated blocks for bench/boundary.py, as targets: `boundary_models.py:gpt2_24`, and six more.

In: nothing. Out: per model a factory that returns (model, args, kwargs): transformers' configurations and plain torch,
random weights, nothing is downloaded. The six have six layers each (the U-Net ten blocks of three sizes): what is asked
of them is which boundary is best, and that needs no deeper ones. BOUNDARY_TINY=1 makes all of them so small that the
bench itself can be tried in minutes.
"""

from __future__ import annotations

import os

import torch
from torch import nn
from torch.nn import functional

from engines_models import Made, library, seeded

TINY = os.environ.get("BOUNDARY_TINY", "") not in ("", "0")
VOCABULARY = 512 if TINY else 8192
TOKENS = 16 if TINY else 64
PIXELS = 32 if TINY else 160
LAYERS = 3 if TINY else 6
MASKED = 8  # tokens at the end: for a mask of ones alone Hugging Face gives its layers none


def sized(full: int, tiny: int) -> int:
    return tiny if TINY else full


def ids() -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (1, TOKENS))


def gpt(layers: int, width: int) -> Made:
    lib = library()
    config = lib.GPT2Config(
        n_layer=layers,
        n_embd=width,
        n_head=width // 32,
        vocab_size=VOCABULARY,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    return lib.GPT2LMHeadModel(config), (), {"input_ids": ids()}


@seeded
def gpt2_24() -> Made:
    """Of the depth that the first aim names."""
    return gpt(sized(24, 4), sized(512, 64))


@seeded
def gpt2() -> Made:
    return gpt(LAYERS, sized(512, 64))


@seeded
def bert() -> Made:
    lib = library()
    width = sized(384, 64)
    config = lib.BertConfig(
        hidden_size=width,
        num_hidden_layers=LAYERS,
        num_attention_heads=width // 32,
        intermediate_size=4 * width,
        vocab_size=VOCABULARY,
    )
    tokens = ids()
    mask = torch.ones_like(tokens)
    mask[:, -MASKED:] = 0
    return lib.BertModel(config), (), {"input_ids": tokens, "attention_mask": mask}


@seeded
def vit() -> Made:
    lib = library()
    width = sized(384, 64)
    config = lib.ViTConfig(
        image_size=PIXELS,
        patch_size=16,
        hidden_size=width,
        num_attention_heads=width // 32,
        num_hidden_layers=LAYERS,
        intermediate_size=4 * width,
        num_labels=10,
    )
    return lib.ViTForImageClassification(config), (torch.randn(1, 3, PIXELS, PIXELS),), {}


@seeded
def llama() -> Made:
    lib = library()
    width = sized(512, 64)
    config = lib.LlamaConfig(
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=LAYERS,
        num_attention_heads=width // 32,
        num_key_value_heads=width // 64,
        vocab_size=VOCABULARY,
        use_cache=False,
    )
    return lib.LlamaForCausalLM(config), (), {"input_ids": ids()}


# --------------------------------------------------------------------------------------------------------- plain torch


class Residual(nn.Module):
    """Two convolutions around which the input goes, too."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.norms = nn.ModuleList(nn.GroupNorm(8, channels) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = functional.silu(self.norms[0](self.first(x)))
        return x + functional.silu(self.norms[1](self.second(inner)))


class UNet(nn.Module):
    """Down, a middle, up again; two like blocks at each size, and what was seen on the way down is added."""

    def __init__(self, channels: int, sizes: int) -> None:
        super().__init__()
        widths = [channels * 2**level for level in range(sizes)]
        self.first = nn.Conv2d(3, channels, 3, padding=1)
        self.down = nn.ModuleList(self._pair(width) for width in widths)
        self.narrow = nn.ModuleList(nn.Conv2d(w, 2 * w, 2, stride=2) for w in widths[:-1])
        self.wide = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in widths[:-1])
        self.up = nn.ModuleList(self._pair(width) for width in widths[:-1])
        self.last = nn.Conv2d(channels, 3, 1)

    @staticmethod
    def _pair(width: int) -> nn.Sequential:
        return nn.Sequential(Residual(width), Residual(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, seen = self.first(x), []
        for level, blocks in enumerate(self.down):
            x = blocks(x)
            if level < len(self.narrow):
                seen.append(x)
                x = self.narrow[level](x)
        for level in reversed(range(len(self.up))):
            x = self.up[level](self.wide[level](x) + seen[level])
        return self.last(x)


@seeded
def unet() -> Made:
    side = sized(96, 16)
    return UNet(sized(32, 8), 3), (torch.randn(1, 3, side, side),), {}


class Mixing(nn.Module):
    """A layer of an MLP-Mixer: over patches, then over channels."""

    def __init__(self, patches: int, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.over_patches = self._mlp(patches, 2 * patches)
        self.over_channels = self._mlp(width, 4 * width)

    @staticmethod
    def _mlp(width: int, inner: int) -> nn.Sequential:
        return nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.over_patches(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.over_channels(self.norms[1](x))


class Mixer(nn.Module):
    def __init__(self, patches: int, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Mixing(patches, width) for _ in range(layers))
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


@seeded
def mixer() -> Made:
    patches, width = sized(196, 16), sized(384, 64)
    return Mixer(patches, width, LAYERS), (torch.randn(1, patches, width),), {}
