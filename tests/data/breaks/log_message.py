"""A logger called in forward."""

from __future__ import annotations

import logging

import torch
from torch import nn

logger = logging.getLogger(__name__)


class Net(nn.Module):
    def forward(self, x):
        y = x.sin()
        logger.info("shape %s", y.shape)  # expect: graph-break logging
        return y.cos()


class Fixed(nn.Module):
    def forward(self, x):
        y = x.sin()
        if not torch.compiler.is_compiling():
            logger.info("shape %s", y.shape)
        return y.cos()


# advice: `if not torch.compiler.is_compiling(): logger.info("shape %s", y.shape)`
def broken():
    return Net(), (torch.randn(4, 8),)


def fixed():
    return Fixed(), (torch.randn(4, 8),)
