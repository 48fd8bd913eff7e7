"""What a workload says of padding: the declaration, the sizes that move together, the masks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from compilot.errors import InputError
from compilot.workload.pad_spelling import parse_pad
from compilot.workload.shipping import ship, unship
from compilot.workload.workload import Workload

X = torch.randn(3, 4)


@pytest.mark.parametrize(
    ("padding", "reason"),
    [
        ({"ids": 0}, "padding of unknown input 'ids'; the tensor inputs of the example are: input."),
        ({"input": "0"}, "give the number to put there"),
        ({"input": float("nan")}, "give the number to put there"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_the_users_mistake(padding, reason):
    with pytest.raises(InputError, match=reason):
        Workload(nn.Linear(4, 4), (X,), padding=padding)


def test_integers_are_padded_with_integers():
    table = nn.Embedding(5, 2)
    ids = torch.tensor([[1, 2]])
    assert Workload(table, (ids,), padding={"input": 3}).padding == {"input": 3}
    with pytest.raises(InputError, match="holds integers; give an integer"):
        Workload(table, (ids,), padding={"input": 0.5})


def test_how_padding_is_spelled_on_the_command_line():
    assert parse_pad("input_ids=0") == ("input_ids", 0)
    assert parse_pad("x = -1.5") == ("x", -1.5)
    for wrong in ("input_ids", "=0", "x=zero"):
        with pytest.raises(InputError, match="write NAME=VALUE"):
            parse_pad(wrong)


def test_the_declaration_reaches_a_child(tmp_path: Path):
    workload = Workload(nn.Linear(4, 4), (X,), padding={"input": -1.5})
    assert workload.ref.padding == {"input": -1.5}
    assert unship(ship(workload, tmp_path)).padding == {"input": -1.5}
    assert workload.replaced(padding={}).padding == {}


class Text(nn.Module):
    def forward(self, ids, attention_mask, kinds):
        return ids * attention_mask + kinds


def text() -> Workload:
    ids = torch.tensor([[5, 7, 9], [5, 5, 7]])
    given = {"ids": ids, "attention_mask": torch.ones_like(ids), "kinds": torch.zeros_like(ids)}
    return Workload(Text(), (), given, dynamic={"batch": (0, 4), "seq": (2, 9)})


def test_sizes_that_move_together_are_one_and_the_batch_comes_first():
    batch, length = text().sized.groups
    assert [str(place) for place in batch.places] == [
        "attention_mask dimension 0",
        "ids dimension 0",
        "kinds dimension 0",
    ]
    assert (batch.is_rows, batch.min, batch.max) == (True, 1, 4)  # an empty batch is never padded
    assert (length.is_rows, length.min, length.max) == (False, 2, 9)


def test_masks_are_told_by_their_name_and_every_input_has_a_value():
    sized = text().sized
    assert sized.masks == {"kwargs['attention_mask']"}
    assert sized.values == {"kwargs['ids']": 5, "kwargs['attention_mask']": 0, "kwargs['kinds']": 0}


def test_the_example_at_other_sizes():
    sized = text().sized
    batch, length = sized.groups
    call = sized.at({batch: 4, length: 6}, seed=1)
    assert {tuple(tensor.shape) for tensor in call.kwargs.values()} == {(4, 6)}
    assert call.kwargs["attention_mask"].eq(1).all()
    assert set(call.kwargs["ids"].unique().tolist()) <= {5, 6, 7, 8, 9}


def test_a_size_that_cannot_vary_is_no_group():
    assert Workload(nn.Linear(4, 4), (X[:1],), dynamic={"input": {0: (0, 1)}}).sized.groups == ()
