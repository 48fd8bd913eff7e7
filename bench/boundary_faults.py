"""Twelve blocks of which one is the trouble, as targets: `boundary_faults.py:backend_3` has it in the block of seed 3.

Factories: `backend_N` (a registered torch.compile backend that is wrong where somebody calls relu; it needs no C++
compiler and saves what every block computes twice, less than half of a call), `cheap_N` (the same with more to save),
`miscompile_N` (torch's own seeded miscompile of relu, with as much to save as the first), `branch_N` (a branch on
values, which stops every export), `healthy_N`. All blocks have the same class and the same weights by shape and compute
the same: eleven cut off negative values with clamp, the one of the seed with relu. So the culprit costs as much as the
others do. Not covered: who tunes them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

BLOCKS = 12
SEEDS = 5
WIDTH = int(os.environ.get("BOUNDARY_WIDTH", "192"))
ROWS = int(os.environ.get("BOUNDARY_ROWS", "512"))  # many and narrow: more of a call is what a compiler fuses
CHEAP = "wrong_relu_without_compiler"
Made = tuple[nn.Module, tuple[torch.Tensor, ...]]


def culprit_of(seed: int) -> str:
    """The path of the block that is the trouble."""
    return f"layers.{(5 * seed + 3) % BLOCKS}"


class Block(nn.Module):
    """Half of a transformer's block; the way it is told to do things is an attribute, as in most configurations."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cut_off = "clamp"
        self.careful = False
        self.times = 1  # that the same is computed: what a compiler may save
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        if self.careful and hidden.abs().sum() < 0:  # depends on values: no export takes it; never true
            hidden = -hidden
        normed = self.norm(hidden)
        wide = self.up(normed)
        for _ in range(self.times - 1):
            wide = wide + self.up(normed)
        wide = functional.gelu(wide) * torch.sigmoid(wide)
        if self.cut_off != "none":
            wide = torch.relu(wide) if self.cut_off == "relu" else wide.clamp(min=0)
        return hidden + self.down(wide)


class Twelve(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(width) for _ in range(BLOCKS))
        self.last = nn.Linear(width, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.last(x)


def healthy(seed: int) -> Made:
    """Nothing is the trouble."""
    torch.manual_seed(seed)
    return Twelve(WIDTH).eval(), (torch.randn(ROWS, WIDTH),)


def with_relu(seed: int) -> Made:
    """One block has relu."""
    model, inputs = healthy(seed)
    model.get_submodule(culprit_of(seed)).cut_off = "relu"  # type: ignore[assignment]
    return model, inputs


def wasteful(seed: int, times: int = 4) -> Made:
    """The same for the cheap backend, with something in every block that it can save."""
    model, inputs = with_relu(seed)
    for block in model.layers:  # type: ignore[union-attr]
        block.times = times  # type: ignore[union-attr,assignment]
    return model, inputs


def a_little_wasteful(seed: int) -> Made:
    """So little that the compile gain stays below 2x: there the price of a repair is held to a limit."""
    return wasteful(seed, 2)


def miscompile(seed: int) -> Made:
    """Inductor itself gets relu wrong, in this process and for good."""
    if "torch._inductor" in sys.modules or "torch._dynamo" in sys.modules:  # eager's worker does without
        import torch._inductor.config as settings

        settings.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"
    return a_little_wasteful(seed)  # without anything to save compiling brings too little here to ask for its price


def branch(seed: int) -> Made:
    """One block asks for a value before it goes on; nothing is cut off, which engines of files do to NaN, too."""
    model, inputs = healthy(seed)
    for block in model.layers:  # type: ignore[union-attr]
        block.cut_off = "none"  # type: ignore[union-attr,assignment]
    model.get_submodule(culprit_of(seed)).careful = True  # type: ignore[assignment]
    return model, inputs


FAULTS: dict[str, Callable[[int], Made]] = {
    "healthy": healthy,
    "backend": a_little_wasteful,
    "cheap": wasteful,
    "miscompile": miscompile,
    "branch": branch,
}
globals().update({f"{name}_{seed}": partial(make, seed) for name, make in FAULTS.items() for seed in range(SEEDS)})


# ------------------------------------------------------------------------------------------------------------- backend


def without_twins(graph: torch.fx.Graph) -> None:
    """Compute once what is written twice: the one thing that the cheap backend does for speed."""
    seen: dict[object, torch.fx.Node] = {}
    for node in list(graph.nodes):
        if node.op == "call_function" and not node.kwargs:
            first = seen.setdefault((node.target, node.args), node)
            if first is not node:
                node.replace_all_uses_with(first)
                graph.erase_node(node)


def wrong_at_relu(graph: torch.fx.Graph) -> None:
    """The fault: a little too much, wherever relu is called."""
    for node in [node for node in graph.nodes if node.target is torch.relu]:
        with graph.inserting_after(node):
            off = graph.call_function(torch.add, (node, 0.05))
        node.replace_all_uses_with(off, delete_user_cb=lambda user, off=off: user is not off)


def cheap_backend(module: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Callable[..., Any]:
    """Needs no compiler, gains a little, is wrong at relu."""
    without_twins(module.graph)
    wrong_at_relu(module.graph)
    module.recompile()
    return module.forward


def register() -> None:
    """Make the backend known, where this process has dynamo at all."""
    if "torch._dynamo" in sys.modules and CHEAP not in torch._dynamo.list_backends(exclude_tags=None):
        torch._dynamo.register_backend(cheap_backend, name=CHEAP)


register()
