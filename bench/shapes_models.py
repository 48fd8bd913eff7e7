"""Models and traces of bench/shapes.py. In: names. Out: factories for `compilot tune`, calls of a size, traces.

bert    an encoder with a mask, sizes: batch and length        gpt2   a prefill, the same without a mask
conv    a small ResNet, sizes: batch, and height and width of an image
lengths heavy-tailed text lengths: log-normal with a mean of 69.5 tokens, as LMSYS-Chat-1M reports for prompts (Zheng et
        al. 2023), cut at 512; of images the same draw as multiples of 32 pixels, 64 to 256
bursts  batch sizes: mostly 1, now and then a burst of 4 to 32, of about 20 calls

Everything is seeded. SHAPES_TINY=1 makes the models tiny and the sizes small. No weights are downloaded.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

import compilot

TINY = bool(os.environ.get("SHAPES_TINY"))
MODELS, TRACES = ("bert", "gpt2", "conv"), ("lengths", "bursts")
LONGEST = 48 if TINY else 512
MOST_ROWS = 8 if TINY else 32
MEAN_TOKENS, SIGMA = 69.5, 1.17
IMAGES = (32, 64) if TINY else (64, 256)
LENGTH = 16 if TINY else 64  # of calls whose batch varies
CALLS = 400 if TINY else 5000

Sizes = dict[str, int]


def bert() -> Any:
    """Encoder with a mask; what varies comes from the trace."""
    from transformers import BertConfig, BertModel

    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    usual = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
    torch.manual_seed(0)
    model = BertModel(BertConfig(**(small if TINY else usual), max_position_embeddings=512), add_pooling_layer=False)
    ids = torch.randint(5, 1000, (1, LENGTH))
    call = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return compilot.Workload(model.eval(), (), call, padding={"input_ids": 0, "attention_mask": 0})


def gpt2() -> Any:
    """Prefill: all positions at once, no cache."""
    from transformers import GPT2Config, GPT2Model

    size = {"n_embd": 32, "n_layer": 1, "n_head": 2} if TINY else {"n_embd": 256, "n_layer": 4, "n_head": 4}
    torch.manual_seed(0)
    model = GPT2Model(GPT2Config(**size, use_cache=False)).eval()
    return compilot.Workload(model, (), {"input_ids": torch.randint(5, 1000, (1, LENGTH))}, padding={"input_ids": 0})


class Conv(nn.Module):
    """Convolutions with skips, and one vector per image."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 7, stride=4, padding=3)
        self.blocks = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(1 if TINY else 6))
        self.last = nn.Linear(width, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """One vector for each image."""
        x = torch.relu(self.first(image))
        for block in self.blocks:
            x = torch.relu(x + block(x))
        return self.last(x.mean((2, 3)))


def conv() -> Any:
    """Images of several sizes."""
    torch.manual_seed(0)
    side = IMAGES[0]
    return compilot.Workload(Conv(8 if TINY else 64).eval(), (torch.randn(1, 3, side, side),))


def calls_of(model: str, trace: str, seed: int = 0) -> list[Sizes]:
    """The calls of a trace, in order; their sizes by NAME:DIM."""
    draw = random.Random(f"{model} {trace} {seed}")
    if trace == "bursts":
        return [_named(model, rows, _usual(model)) for rows in _bursts(draw)]
    return [_named(model, 1, _length(model, draw)) for _ in range(CALLS)]


def _usual(model: str) -> int:
    return IMAGES[0] if model == "conv" else LENGTH


def _length(model: str, draw: random.Random) -> int:
    mu = math.log(MEAN_TOKENS) - SIGMA**2 / 2
    tokens = max(1, min(512, round(draw.lognormvariate(mu, SIGMA))))
    if model != "conv":
        return max(1, min(LONGEST, tokens))
    low, high = IMAGES
    return min(high, low + 32 * (tokens // 48))


def _bursts(draw: random.Random) -> list[int]:
    found: list[int] = []
    while len(found) < CALLS:
        found += [1] * draw.randint(20, 80)
        top = draw.choice([rows for rows in (4, 8, 16, 32) if rows <= MOST_ROWS])
        found += [draw.randint(2, top) for _ in range(20)]
    return found[:CALLS]


def _named(model: str, rows: int, size: int) -> Sizes:
    if model == "conv":
        return {"image:0": rows, "image:2": size, "image:3": size}
    names = ["input_ids", *(["attention_mask"] if model == "bert" else [])]
    return {name: value for one in names for name, value in ((f"{one}:0", rows), (f"{one}:1", size))}


class HandPadding(NamedTuple):
    """What people write by hand around torch.compile: the next power of two."""

    pad: Callable[[dict[str, Any]], dict[str, Any]]
    cut: Callable[[Any, dict[str, Any]], Any]


def keywords(model: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The inputs of a call by name."""
    return kwargs if kwargs else {"image": args[0]}


def cannot_run(model: str) -> dict[str, str]:
    """Arms that this model cannot have, and why."""
    return {} if by_hand(model) is not None else {"powers": "this model cannot be padded by hand"}


def by_hand(model: str) -> HandPadding | None:
    """None: padding would change the answers (convolutions see their neighbours)."""
    if model == "conv":
        return None
    return HandPadding(_padded, _cut)


def _padded(call: dict[str, Any]) -> dict[str, Any]:
    rows, length = call["input_ids"].shape
    more = _power(rows) - rows, _power(length) - length
    wide = {name: torch.nn.functional.pad(tensor, (0, more[1])) for name, tensor in call.items()}
    return {name: torch.cat([t, t[-1:].expand(more[0], -1)]) if more[0] else t for name, t in wide.items()}


def _cut(answer: Any, call: dict[str, Any]) -> Any:
    rows, length = call["input_ids"].shape
    return answer.last_hidden_state[:rows, :length]


def _power(size: int) -> int:
    return 1 << max(0, size - 1).bit_length()
