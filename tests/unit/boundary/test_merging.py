"""One guard for calls at several sizes: what is fixed, what has a range, and what cannot be told."""

from __future__ import annotations

import pytest

from compilot.boundary.merging import Differs, Seen, Unknown, alike, at_any_size, merged
from compilot.records import ANY_SIZE, DimRange, Guard, TensorGuard, ValueGuard


def guard(*shapes: tuple[int, ...], stride: tuple[int, ...] | None = None, value: int = 1, **modes: bool) -> Guard:
    tensors = [
        TensorGuard(
            path=f"args[{i}]",
            dtype="torch.float32",
            device="cpu",
            shape=shape,
            stride=stride or (shape[1] if len(shape) > 1 else 1, 1)[-len(shape) :],
        )
        for i, shape in enumerate(shapes)
    ]
    values = (ValueGuard(path="kwargs['n']", type="int", value=str(value)),)
    return Guard(positional=len(shapes), keywords=("n",), tensors=tuple(tensors), values=values, **modes)


def follows(*rows: tuple[tuple[int, ...], int]) -> int | DimRange:
    """What becomes of a size that is so at the declared sizes."""
    made = merged([Seen(sizes, guard((value, 4))) for sizes, value in rows])
    return made.tensors[0].shape[0]


def test_a_size_that_is_always_the_same_is_fixed_and_keeps_its_strides() -> None:
    made = merged([Seen((5,), guard((3, 4))), Seen((9,), guard((3, 4)))])
    assert made == guard((3, 4))


def test_a_declared_size_and_what_follows_from_it_have_ranges() -> None:
    assert follows(((5,), 5), ((1,), 1), ((9,), 9)) == DimRange(min=1, max=9)
    assert follows(((5,), 11), ((1,), 3), ((9,), 19)) == DimRange(min=3, max=19)  # twice as much and one
    assert follows(((5,), 3), ((1,), 1), ((9,), 5)) == DimRange(min=1, max=5)  # half of it
    assert follows(((5,), 5), ((1,), 9), ((9,), 1)) == DimRange(min=1, max=9)  # what is left of ten


def test_of_several_declared_sizes_each_may_be_the_one_that_counts() -> None:
    """The example has a small batch and a long text: neither is smaller than the other."""
    rows = [((2, 7), 7), ((1, 3), 3), ((8, 9), 9), ((5, 5), 5)]
    assert follows(*rows) == DimRange(min=3, max=9)
    product = [((2, 7), 14), ((1, 3), 3), ((8, 9), 72), ((5, 5), 25)]
    assert follows(*product) == DimRange(min=3, max=72)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([((5,), 5), ((1,), 8), ((9,), 7)], r"dimension 0 of args\[0\] goes up and down"),
        ([((16,), 16), ((1,), 8), ((43,), 48), ((64,), 64)], r"goes in steps of 8 \(16, 8, 48, 64\)"),
    ],
)
def test_sizes_that_cannot_be_told_are_said(rows: list[tuple[tuple[int, ...], int]], words: str) -> None:
    with pytest.raises(Unknown, match=words):
        follows(*rows)


def test_a_layout_that_is_the_same_at_all_sizes_is_kept() -> None:
    seen = [Seen((n,), guard((n, 4), stride=(1, n))) for n in (5, 1, 9)]
    tensor = merged(seen).tensors[0]
    assert (tensor.shape, tensor.stride, tensor.order) == ((DimRange(min=1, max=9), 4), None, (1, 0))
    expanded = [Seen((n,), guard((n, 4), stride=(0, 1))) for n in (5, 9)]
    assert merged(expanded).tensors[0].order == (1,)


def test_a_layout_that_is_another_at_other_sizes_or_a_part_of_a_tensor_is_not_known() -> None:
    with pytest.raises(Unknown, match="layout of"):
        merged([Seen((5,), guard((5, 4))), Seen((9,), guard((9, 4), stride=(1, 9)))])
    with pytest.raises(Unknown, match="part of a larger tensor"):
        at_any_size([guard((5, 4), stride=(12, 1))])


def test_calls_that_differ_in_more_than_sizes_have_no_guard_together() -> None:
    for other in (guard((3, 4), value=2), guard((3, 4), training=True), guard((3, 4), (1,)), guard((3,))):
        with pytest.raises(Differs, match="in another way at other sizes"):
            merged([Seen((5,), guard((3, 4))), Seen((9,), other)])
    with pytest.raises(Differs, match=r"several ways within one call .*shape of args\[0\]: 5x4, plan has 3x4"):
        alike([guard((3, 4)), guard((5, 4))])
    with pytest.raises(Differs, match=r"strides of args\[0\]"):
        alike([guard((3, 4)), guard((3, 4), stride=(1, 3))])
    assert alike([guard((1, 4)), guard((1, 4), stride=(9, 1))]) == guard((1, 4))


def test_without_declared_sizes_every_size_is_open() -> None:
    made = at_any_size([guard((3, 4)), guard((5, 4))])
    assert made.tensors[0].shape == (ANY_SIZE, ANY_SIZE)
