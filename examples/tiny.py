"""A tiny model, quick to tune: `compilot tune examples/tiny.py:mlp --budget 30s`."""

import torch
from torch import nn


def mlp():
    """A factory returns the model and the arguments of one call."""
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 64), nn.Softmax(dim=-1))
    return model.eval(), (torch.randn(64, 64),)
