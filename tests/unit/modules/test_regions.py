"""Selectors: which submodules they name, and what they refuse."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from compilot.diagnose.model.repeated_blocks import repeated_blocks
from compilot.errors import InputError
from compilot.modules.likeness import differing_integers, likeness, structure_digest
from compilot.modules.regions import placed, selected
from compilot.modules.selectors import blamed, cause, culprit, of_block
from compilot.records import Region, Settings

SOME = Settings(engine="inductor")


class Block(nn.Module):
    def __init__(self, width: int, layer_idx: int) -> None:
        super().__init__()
        self.layer_idx = layer_idx
        self.attn = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attn(x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.h = nn.ModuleList(Block(4, i) for i in range(12))
        self.wide = nn.ModuleList(Block(8, i) for i in range(2))
        self.head = nn.Linear(4, 4)
        self.tied = self.h[1]


def net() -> Net:
    return Net()


@pytest.mark.parametrize(
    ("selector", "paths"),
    [
        ("head", ["head"]),
        ("h.3", ["h.3"]),
        ("h.1?", ["h.10", "h.11"]),
        ("h.[0-2]", ["h.0", "h.1", "h.2"]),
        ("h.[0-2].attn", ["h.0.attn", "h.1.attn", "h.2.attn"]),
        ("wide.*", ["wide.0", "wide.1"]),
        ("h.11, h.2,head", ["h.2", "h.11", "head"]),  # in the model's order
        ("h.2,h.2", ["h.2"]),
        ("tied", ["h.1"]),  # by its first name
    ],
)
def test_a_selector_names_submodules(selector: str, paths: list[str]) -> None:
    assert [*selected(net(), selector)] == paths


def test_a_star_never_crosses_a_dot() -> None:
    assert [*selected(net(), "h.*")] == [f"h.{i}" for i in range(12)]
    assert [*selected(net(), "*.*.attn")] == [
        f"{name}.{i}.attn" for name, n in (("h", 12), ("wide", 2)) for i in range(n)
    ]


def test_a_block_is_found_by_its_structure_alone() -> None:
    found = {block.paths: of_block(block.structure_sha256) for block in repeated_blocks(net())}
    narrow, wide = (found[tuple(f"{name}.{i}" for i in range(n))] for name, n in (("h", 12), ("wide", 2)))
    assert [*selected(net(), narrow)] == [f"h.{i}" for i in range(12)]
    assert [*selected(net(), wide)] == ["wide.0", "wide.1"]


@pytest.mark.parametrize(
    ("selector", "words"),
    [
        ("", "'' is no region"),
        ("h.0,", "'' is no region"),
        ("a b", "'a b' is no region; give a path such as"),
        ("gone", "no submodule of Net fits the region 'gone'"),
        ("h.*.mlp", "no submodule of Net fits"),
        ("h", "h is a ModuleList, which is never called itself; name what is in it: 'h.*'"),
        ("block:12", "at least 8 hexadecimal digits"),
        ("block:0123456789abcdef", "no submodule of Net fits"),
        ("block:xyzxyzxyz", "at least 8 hexadecimal digits"),
    ],
)
def test_what_names_nothing_is_refused_in_a_sentence(selector: str, words: str) -> None:
    with pytest.raises(InputError) as refused:
        selected(net(), selector)
    assert words in str(refused.value)


@pytest.mark.parametrize("selectors", [("h.*", "h.3"), ("h.3", "h.3.attn"), ("tied", "h.1"), ("h.[0-4].attn", "h.4")])
def test_regions_never_overlap_or_nest(selectors: tuple[str, str]) -> None:
    with pytest.raises(InputError, match=r"regions must not overlap: '.*' and '.*' both take h"):
        placed(net(), [Region(selector=one, settings=SOME) for one in selectors])


def test_regions_side_by_side_are_placed_with_their_numbers() -> None:
    model = net()
    regions = [Region(selector=one, settings=SOME) for one in ("wide.*", "h.1", "h.10.attn", "head")]
    found = placed(model, regions)
    assert [(place.region, place.path) for place in found] == [
        (0, "wide.0"),
        (0, "wide.1"),
        (1, "h.1"),
        (2, "h.10.attn"),
        (3, "head"),
    ]
    assert found[2].module is model.h[1]


@pytest.mark.filterwarnings("default::DeprecationWarning")
def test_scripted_submodules_are_no_regions() -> None:
    model = net()
    model.head = torch.jit.script(nn.Linear(4, 4))
    with pytest.raises(InputError, match="TorchScript"):
        selected(model, "head")


def test_a_failure_names_its_submodule_and_is_read_again() -> None:
    told = blamed("h.7", "no ONNX form: x: y")
    assert (culprit(told), cause(told)) == ("h.7", "no ONNX form: x: y")
    assert culprit(f"the example call does not take the fast path: {told}; in h.8: more") == "h.7"
    assert (culprit("max abs error in the mean: 3"), cause("as it is: 3")) == (None, "as it is: 3")


def test_modules_are_alike_by_structure_and_class_and_the_integers_that_differ_are_known() -> None:
    model = net()
    assert likeness(model.h[0]) == likeness(model.h[5]) != likeness(model.wide[0])
    assert structure_digest(model.h[0]) == structure_digest(model.h[5])
    assert differing_integers([*model.h]) == ("layer_idx",)
    assert differing_integers([model.h[0], net().h[0]]) == ()
    model.h[2].attn.groups = 2
    model.h[3].flag = True  # no integer
    assert differing_integers([*model.h]) == ("layer_idx", "groups")
