"""A product with a sparse tensor."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def forward(self, x, y):
        return torch.sparse.mm(x.to_sparse(), y)  # expect: graph-break unsupported-operator


class Fixed(nn.Module):
    def forward(self, x, y):
        return x @ y


@torch.library.custom_op("compilot_tests::sparse_product", mutates_args=())
def sparse_product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.sparse.mm(x.to_sparse(), y)


@sparse_product.register_fake
def _(x, y):
    return x.new_empty(x.shape[0], y.shape[1])


class FixedWithOperator(nn.Module):
    def forward(self, x, y):
        return sparse_product(x, y)


# advice: use operators that can be traced
def broken():
    return Net(), (torch.randn(4, 8), torch.randn(8, 2))


def fixed():
    return Fixed(), (torch.randn(4, 8), torch.randn(8, 2))


def fixed_with_operator():
    return FixedWithOperator(), (torch.randn(4, 8), torch.randn(8, 2))
