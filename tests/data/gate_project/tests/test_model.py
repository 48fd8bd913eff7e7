"""How a project tests its model with the fixture `compilot`."""

from __future__ import annotations

import torch
from model import net


def test_the_model_compiles_in_one_graph(compilot):
    model, args = net()
    compilot.no_graph_breaks(model, *args)


def test_a_break_is_found(compilot):
    class Breaks(torch.nn.Module):
        def forward(self, x):
            return x + 1 if x.sum().item() > 0 else x - 1

    compilot.no_graph_breaks(Breaks(), torch.randn(3))


def test_the_answers_are_those_of_a_script(compilot):
    model, args = net()
    compilot.same_numbers(model, lambda x: model.head(model.blocks(x)), *args)


def test_other_answers_are_found(compilot):
    model, args = net()
    compilot.same_numbers(model, lambda x: model(x) * 1.01, *args)
