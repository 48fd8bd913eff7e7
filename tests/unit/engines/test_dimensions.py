"""Which sizes are one: what the model says, not what they look like."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from compilot.engines.dimensions import guesses
from compilot.records import DimRange, TensorGuard

RANGE = DimRange(min=1, max=128)


def sequences(*sizes: int) -> tuple[list[TensorGuard], list[torch.Tensor]]:
    """Inputs of shape (2, size) whose second dimension is declared."""
    guards = [
        TensorGuard(path=f"args[{i}]", dtype="torch.int64", device="cpu", shape=(2, RANGE), stride=None)
        for i in range(len(sizes))
    ]
    return guards, [torch.zeros(2, size, dtype=torch.int64) for size in sizes]


class Model:
    """Answers when these inputs are as long as each other; a mask may be too long where `cuts` is set."""

    def __init__(self, *tied: tuple[int, int], cuts: bool = False) -> None:
        self.tied, self.cuts, self.calls = tied, cuts, 0

    def __call__(self, tensors: Sequence[torch.Tensor]) -> bool:
        self.calls += 1
        sizes = [tensor.shape[1] for tensor in tensors]
        return all(sizes[a] <= sizes[b] if self.cuts else sizes[a] == sizes[b] for a, b in self.tied)


def first_guess(model: Model, *sizes: int) -> list[str]:
    """The name of each input's size."""
    (shapes,) = next(iter(guesses(*sequences(*sizes), model)))
    return [one[1].__name__ for one in shapes]


def test_lengths_that_the_model_lets_differ_are_independent():
    assert first_guess(Model(), 32, 32) == ["args_0__dim_1", "args_1__dim_1"]


def test_lengths_that_it_does_not_let_differ_are_one():
    assert first_guess(Model((0, 1)), 32, 32) == ["args_0__dim_1"] * 2


def test_a_mask_that_may_be_too_long_but_not_too_short_is_as_long_as_its_input():
    assert first_guess(Model((0, 1), cuts=True), 32, 32) == ["args_0__dim_1"] * 2


def test_encoder_and_decoder_each_with_its_mask_are_two_lengths():
    names = first_guess(Model((0, 2), (1, 3)), 32, 32, 32, 32)
    assert names == ["args_0__dim_1", "args_1__dim_1", "args_0__dim_1", "args_1__dim_1"]


def test_nothing_is_asked_where_nothing_looks_alike():
    model = Model((0, 1))
    assert first_guess(model, 32, 16) == ["args_0__dim_1", "args_1__dim_1"]
    assert model.calls == 0


def test_other_guesses_follow_and_none_comes_twice():
    model = Model((0, 2), (1, 3))
    found = [[one[1].__name__ for one in shapes] for (shapes,) in guesses(*sequences(8, 8, 8, 8), model)]
    assert found[1:] == [["args_0__dim_1"] * 4, [f"args_{i}__dim_1" for i in range(4)]]
    assert len(list(guesses(*sequences(8), model))) == 1


def square(tensors: Sequence[torch.Tensor]) -> bool:
    """A text, and a mask with as many rows and columns."""
    text, mask = tensors
    return mask.shape[0] == mask.shape[1] == text.shape[1]


def images(tensors: Sequence[torch.Tensor]) -> bool:
    return True


def test_both_sides_of_a_square_mask_are_one_size_where_the_model_says_so():
    text, mask = (
        TensorGuard(path=f"args[{i}]", dtype="torch.float32", device="cpu", shape=shape, stride=None)
        for i, shape in enumerate([(2, RANGE), (RANGE, RANGE)])
    )
    examples = [torch.zeros(2, 8), torch.zeros(8, 8)]
    ((first, second),) = next(iter(guesses([text, mask], examples, square)))
    assert {first[1].__name__, second[0].__name__, second[1].__name__} == {"args_0__dim_1"}
    ((_, apart),) = next(iter(guesses([text, mask], examples, images)))
    assert (apart[0].__name__, apart[1].__name__) == ("args_1__dim_0", "args_1__dim_1")
