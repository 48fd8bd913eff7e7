"""Four models that sleep, for a fleet: each of its own class and size. Weights come from a file where there is one."""

from __future__ import annotations

from pathlib import Path

import torch
from sleepy_model import Sleepy
from torch import nn

Opened = tuple[nn.Module, tuple[torch.Tensor, ...]]


class Tree(Sleepy):
    pause_s = 0.05  # so long that a busy machine cannot hide the lead of a trace


class Ash(Tree):
    width = 8


class Birch(Tree):
    width = 12


class Cedar(Tree):
    width = 16


class Dogwood(Tree):
    width = 20


def opened(kind: type[Tree]) -> Opened:
    torch.manual_seed(0)
    model = kind().eval()
    weights = Path(__file__).parent / f"{kind.__name__.lower()}.pt"
    if weights.is_file():
        model.load_state_dict(torch.load(weights))
    return model, (torch.randn(4, kind.width),)


def ash() -> Opened:
    return opened(Ash)


def birch() -> Opened:
    return opened(Birch)


def cedar() -> Opened:
    return opened(Cedar)


def dogwood() -> Opened:
    return opened(Dogwood)
