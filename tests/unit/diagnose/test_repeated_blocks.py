"""Repeated blocks are found by structure: class, parameters and buffers, submodules; never by names of classes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch
from torch import nn

from compilot import diagnose
from compilot.diagnose.model.repeated_blocks import repeated_blocks
from compilot.records import Diagnosis, Reference, encode
from compilot.workload import Workload


class Attention(nn.Module):
    def __init__(self, size: int, layer_idx: int = 0) -> None:
        super().__init__()
        self.mix, self.layer_idx = nn.Linear(size, size), layer_idx

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.mix(x)


class Block(nn.Module):
    def __init__(self, size: int = 4, layer_idx: int = 0, act: Any = torch.relu, mask: int = 3) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(size), Attention(size, layer_idx)
        self.act = act
        self.register_buffer("mask", torch.ones(mask))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.act(self.attention(self.norm(x)))


class OtherBlock(Block):
    """The same parts, another class."""


class Stack(nn.Module):
    """Calls its parts one after the other, whatever they are called."""

    def __init__(self, **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.children():
            for layer in part if isinstance(part, nn.ModuleList) else [part]:
                x = layer(x)
        return x


def layers(*blocks: nn.Module) -> Stack:
    return Stack(embed=nn.Linear(4, 4), h=nn.ModuleList(blocks), head=nn.Linear(4, 4))


def seen(model: nn.Module) -> list[tuple[int, str, tuple[str, ...]]]:
    return [(one.level, one.class_name, one.paths) for one in repeated_blocks(model)]


def test_a_stack_of_layers_is_found_with_what_is_repeated_in_it() -> None:
    first, inner = repeated_blocks(layers(*(Block(layer_idx=index) for index in range(3))))
    assert (first.level, first.class_name, first.paths) == (0, "Block", ("h.0", "h.1", "h.2"))
    assert (first.count, first.parameters) == (3, 8 + 20)
    assert (inner.level, inner.class_name, inner.count) == (1, "Attention", 3)
    assert (first.differs, inner.differs) == (("attention.layer_idx",), ("layer_idx",))
    assert len(first.structure_sha256) == 64
    assert first.structure_sha256 != inner.structure_sha256


def test_two_branches_of_like_layers_are_one_group_and_their_lists_none() -> None:
    left, right = (nn.ModuleList([Block(), Block()]) for _ in range(2))
    (group, _) = repeated_blocks(Stack(left=left, right=right))
    assert (group.class_name, group.paths) == ("Block", ("left.0", "left.1", "right.0", "right.1"))
    assert group.differs == ()


def test_nested_repeats_stand_outermost_first() -> None:
    stages = nn.ModuleList(nn.Sequential(Block(), Block()) for _ in range(3))
    assert [(level, name, len(paths)) for level, name, paths in seen(Stack(stages=stages))] == [
        (0, "Sequential", 3),
        (1, "Block", 6),
        (2, "Attention", 6),
    ]


def test_a_block_that_is_also_outside_comes_after_the_one_around_it() -> None:
    """However many parameters all of them have together."""
    model = layers(Block(), Block(), *(Attention(4) for _ in range(9)))
    assert [(level, name, len(paths)) for level, name, paths in seen(model)] == [(0, "Block", 2), (1, "Attention", 11)]


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(OtherBlock(), id="another class"),
        pytest.param(Block(size=8), id="other shapes"),
        pytest.param(Block(mask=5), id="another shape of a buffer"),
        pytest.param(Block().double(), id="another dtype"),
        pytest.param(Stack(norm=nn.LayerNorm(4)), id="another structure"),
    ],
)
def test_what_is_built_otherwise_is_another_block(odd: nn.Module) -> None:
    assert (0, "Block", ("h.0", "h.2")) in seen(layers(Block(), odd, Block()))


def test_the_class_of_a_submodule_counts_even_under_the_same_name() -> None:
    class Namesake(nn.Module):
        forward = Attention.forward

        def __init__(self) -> None:
            super().__init__()
            self.mix, self.layer_idx = nn.Linear(4, 4), 0

    Namesake.__name__, Namesake.__qualname__ = "Attention", Attention.__qualname__
    odd = Block()
    odd.attention = Namesake()  # type: ignore[assignment]
    assert (0, "Block", ("h.0", "h.2")) in seen(layers(Block(), odd, Block()))


def test_no_repeats_no_records() -> None:
    assert seen(Stack(embed=nn.Linear(4, 4), one=Block(), head=nn.Linear(4, 4))) == []
    assert seen(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))) == []  # a single layer is no block


def test_one_block_under_two_names_is_one_block() -> None:
    shared = Block()
    assert seen(Stack(first=shared, again=shared)) == []


def test_attributes_of_any_kind_are_told_when_they_differ() -> None:
    odd = Block(act=torch.sigmoid)
    odd.extra = {"scale": 2}  # type: ignore[assignment]
    group = repeated_blocks(layers(Block(), odd))[0]
    assert group.count == 2
    assert group.differs == ("act", "extra")
    assert repeated_blocks(layers(Block(), Block()))[0].differs == ()


def test_the_digest_is_of_the_structure_alone() -> None:
    one, other = (repeated_blocks(layers(Block(layer_idx=n), Block()))[0] for n in (1, 7))
    wider = repeated_blocks(layers(Block(size=8), Block(size=8)))[0]
    assert one.structure_sha256 == other.structure_sha256 != wider.structure_sha256


def test_scripted_parts_are_passed_over() -> None:
    scripted = [torch.jit.script(nn.Sequential(nn.Linear(4, 4), act)) for act in (nn.ReLU(), nn.Tanh())]
    assert seen(Stack(parts=nn.ModuleList(scripted))) == []


def test_the_look_at_eager_says_what_is_repeated() -> None:
    model = layers(Block(layer_idx=0), Block(layer_idx=1)).eval()
    diagnosis = diagnose.inspect(Workload(model, (torch.ones(2, 4),)), Reference(kind="float64", cases=()))
    untimed = tuple(msgspec.structs.replace(block, shares=()) for block in diagnosis.repeated)
    assert untimed == repeated_blocks(model)
    assert all(len(block.shares) == block.count for block in diagnosis.repeated)
    assert diagnosis.repeated[0].paths == ("h.0", "h.1")
    assert msgspec.json.decode(encode(diagnosis), type=Diagnosis) == diagnosis
