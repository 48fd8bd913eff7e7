"""A recurrent layer: torch.compile gives up the function that calls it."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 8)

    def forward(self, x):
        y, _ = self.lstm(x)  # expect: graph-break unsupported-operator
        return y.cos()


# advice: set torch._dynamo.config.allow_rnn = True
def broken():
    return Net().eval(), (torch.randn(4, 2, 8),)


def fixed():
    torch._dynamo.config.allow_rnn = True
    return Net().eval(), (torch.randn(4, 2, 8),)
