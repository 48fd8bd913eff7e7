"""Models that every engine is tried with; importable on their own, for fresh processes."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Pair = namedtuple("Pair", ["left", "right"])  # the plain kind, as users write it


@dataclass
class Scores:
    values: torch.Tensor
    best: torch.Tensor
    note: str = "none"


class Sink(nn.Module):
    """Everything at once: nested inputs of every dtype, keywords, plain values, and all of it in the output."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("table", torch.arange(12.0).reshape(3, 4))

    def forward(self, batch: dict[str, Any], scale: float, *, mask: torch.Tensor, shout: bool = False) -> Any:
        half, brain = batch["more"]
        y = self.linear(batch["x"]) * scale + half.float() - brain.float()
        y = torch.where(mask, y, -y)
        return {
            "y": y,
            "pair": (y.sum(1), None, [y * 2, batch["ids"] + 1]),
            "keep": mask.logical_not(),
            "half": half * 2,
            "table": self.table,
            "same": batch["ids"],
            "again": y,
            "count": 7,
            "label": "loud" if shout else "sink",
            "ratio": float("nan"),
            3: torch.float32,
        }


def sink_call(seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A call of Sink."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(4, 3, generator=random).t()  # not contiguous
    more = [torch.randn(3, 4, generator=random).to(kind) for kind in (torch.float16, torch.bfloat16)]
    ids = torch.randint(0, 100, (3,), generator=random)
    mask = torch.rand(3, 4, generator=random) > 0.5
    return ({"x": x, "more": more, "ids": ids}, 1.5), {"mask": mask, "shout": True}


def tiny_bert() -> Any:
    """A Hugging Face model of two small layers."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=99)
    return BertModel(config).eval()  # type: ignore[no-untyped-call]


def bert_call(batch: int, length: int, seed: int = 0) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A call of it; the second half of each row is masked."""
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 99, (batch, length), generator=random)
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[:, length // 2 + 1 :] = 0
    return (ids,), {"attention_mask": mask}


def integers(*shape: int) -> torch.Tensor:
    """Small whole numbers as floats."""
    return torch.randint(-4, 5, shape).float()


def large() -> torch.Tensor:
    """Whole numbers, more of them than a small copy, not contiguous."""
    return integers(4, 20_000).t()


class Returns(nn.Module):
    """A small computation, returned in one of many ways; "every": in all of them at once, by name."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> Any:
        y = self.linear(x)
        ways: dict[str, Callable[[], Any]] = {
            "tensor": lambda: y,
            "tuple": lambda: (y, None, y.sum()),
            "list": lambda: [y],
            "namedtuple": lambda: Pair(y, y.argmax(-1)),
            "dataclass": lambda: Scores(y, y.argmax(-1), "deep"),
            "ordered": lambda: OrderedDict(b=y, a=y.relu()),
            "size": lambda: (y, x.shape, ()),
            "view of the input": lambda: (y, x.t()),
            "a weight": lambda: (y, self.linear.weight),
            "empty": lambda: (y, y[:0]),
        }
        return ways[self.how]() if self.how in ways else {how: way() for how, way in ways.items()}


RETURNS = (
    "tensor",
    "tuple",
    "list",
    "namedtuple",
    "dataclass",
    "ordered",
    "size",
    "view of the input",
    "a weight",
    "empty",
)


class Values(nn.Module):
    """Operators with an answer for infinities, NaN and denormal numbers, each returned on its own."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {
            "twice": x * 2,
            "half": x / 2,
            "linear": self.linear(x),
            "sum": x.sum(-1),
            "mean": x.mean(-1),
            "most": x.amax(-1),
            "relu": x.relu(),
            "clamped": x.clamp(-1, 1),
            "exp": x.exp(),
            "root": x.sqrt(),
            "inverse": 1 / x,
            "tanh": x.tanh(),
            "softmax": x.softmax(-1),
            "nothing": x - x,
            "below": x < 1,
            "where": torch.where(x == x, x, 5.0),
            "nan": x.isnan(),
            "infinite": x.isinf(),
        }


class Nonzero(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return x.nonzero(), x * 2


class Decides(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:  # DECIDES
            return x * 2
        return x


class Counts(nn.Module):
    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x + self.calls


class Overwrites(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2) + 1


class Apart(nn.Module):
    """Two sequences of one batch; only the mask is as long as the first of them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, other: torch.Tensor, mask: torch.Tensor) -> Any:
        return self.linear((x * mask[..., None]).sum(1)) + other.mean(1)


def apart_call(batch: int, length: int, other: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A call of Apart."""
    return torch.randn(batch, length, 4), torch.randn(batch, other, 4), torch.rand(batch, length)


class FixedBatch(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(3, 4) * 2


@torch.library.custom_op("compilot_tests::mystery", mutates_args=())
def mystery(x: torch.Tensor) -> torch.Tensor:
    """An operator that no exporter knows."""
    return x * 2


@mystery.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Mystery(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return mystery(x) + 1  # MYSTERY


def line_of(mark: str) -> str:
    """file:line of the line that ends in a comment."""
    with open(__file__) as file:
        number = next(i for i, line in enumerate(file, 1) if line.rstrip().endswith(f"# {mark}"))
    return f"contract_models.py:{number}"
