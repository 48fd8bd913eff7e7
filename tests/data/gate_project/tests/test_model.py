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


def test_the_model_is_compiled_once(compilot):
    model, (x,) = net()
    compilot.no_recompiles(model, [x, x + 1])


def test_a_recompile_is_found(compilot):
    class Counts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x * self.calls

    compilot.no_recompiles(Counts(), [torch.randn(3), torch.randn(3)])


def test_a_plan_is_raced(compilot):
    compilot.faster_than("run", "compile", at_least=0.02)  # whatever the machine is: this is no speed test


def test_the_answers_are_those_of_a_script(compilot):
    model, args = net()
    compilot.same_numbers(model, lambda x: model.head(model.blocks(x)), *args)


def test_other_answers_are_found(compilot):
    model, args = net()
    compilot.same_numbers(model, lambda x: model(x) * 1.01, *args)
