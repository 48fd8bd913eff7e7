"""Which calls each program of a choice takes."""

from __future__ import annotations

import pytest
from shape_fakes import counts, program

from compilot.errors import InputError
from compilot.records import DimRange, Guard, ShapeChoice, ShapeCosts, ShapePolicy, TensorGuard
from compilot.verdict.policies import ShapeRules, choose
from compilot.verdict.shape_entries import ShapeEntry, SizePlaces, shape_entries

LENGTH = DimRange(min=1, max=512)
LINE = {1: 1e-3, 512: 512e-3}
HALF = {1: 0.5e-3, 512: 256e-3}
NEARLY = {1: 0.7e-3, 512: 358e-3}


def tensor(path: str, *shape: int | DimRange) -> TensorGuard:
    return TensorGuard(path=path, dtype="torch.int64", device="cpu", shape=shape, stride=None)


GUARD = Guard(positional=2, keywords=(), tensors=(tensor("args[0]", 2, LENGTH), tensor("args[1]", 2, LENGTH)))
BOTH = (SizePlaces((("args[0]", 1), ("args[1]", 1))),)


def chosen(seen: dict[int, int], *, dynamic: bool, may_pad: bool = True, entries: int = 3) -> ShapeChoice:
    costs = ShapeCosts(
        eager=program(LINE),
        static=program(HALF),
        dynamic=program(NEARLY) if dynamic else None,
        may_pad=may_pad,
    )
    return choose(counts({**seen}), costs, ShapeRules(max_entries=entries, largest=(512,)))


def ranges(entries: tuple[ShapeEntry, ...]) -> dict[str, list[object]]:
    return {one.name: [each.shape[1] for each in one.guard.tensors] for one in entries}


def served_by(entries: tuple[ShapeEntry, ...], size: int) -> str:
    """The first entry that takes a call of this size."""
    for one in entries:
        taken = [each.shape[1] for each in one.guard.tensors]
        if all(t.min <= size <= t.max if isinstance(t, DimRange) else t == size for t in taken):
            return one.name
    return "eager"


def test_buckets_serve_every_declared_size_the_smallest_one_first() -> None:
    choice = chosen({10: 500, 60: 500}, dynamic=False)
    assert choice.chosen.policy is ShapePolicy.BUCKETS
    entries = shape_entries(choice, GUARD, BOTH, may_pad=True)
    assert [one.name for one in entries] == ["10", "60", "512"]
    assert ranges(entries)["60"] == [DimRange(min=1, max=60)] * 2
    assert all(one.pads for one in entries)
    assert [served_by(entries, size) for size in (1, 10, 11, 60, 61, 512)] == ["10", "10", "60", "60", "512", "512"]


def test_the_dynamic_program_is_behind_the_static_ones() -> None:
    choice = chosen({10: 500, 60: 500, 300: 1}, dynamic=True)
    assert choice.chosen.policy is ShapePolicy.MIXED
    entries = shape_entries(choice, GUARD, BOTH, may_pad=True)
    assert [one.name for one in entries] == ["10", "60", "dynamic"]
    assert entries[-1].guard == GUARD
    assert [served_by(entries, size) for size in (10, 60, 300, 512, 7)] == ["10", "60", "dynamic", "dynamic", "dynamic"]


def test_without_padding_each_static_program_takes_its_own_size() -> None:
    choice = chosen({10: 500, 60: 500, 61: 5}, dynamic=True, may_pad=False)
    entries = shape_entries(choice, GUARD, BOTH, may_pad=False)
    assert ranges(entries)["60"] == [60, 60]
    assert not any(one.pads for one in entries)
    assert [served_by(entries, size) for size in (10, 11, 60, 61)] == ["10", "dynamic", "60", "dynamic"]


def test_eager_has_no_entries() -> None:
    slow = ShapeCosts(eager=program(LINE), static=program({1: 1.0, 512: 2.0}), may_pad=True)
    assert shape_entries(choose(counts({10: 5}), slow), GUARD, BOTH, may_pad=True) == ()


def test_batch_and_length() -> None:
    line = {(b, t): 1e-3 * b * t for b in (1, 8) for t in (1, 512)}
    costs = ShapeCosts(eager=program(line), static=program({p: s / 2 for p, s in line.items()}), may_pad=True)
    seen = counts({(1, 512): 50, (8, 16): 500})
    choice = choose(seen, costs, ShapeRules(largest=(8, 512), max_entries=3))
    guard = Guard(positional=1, keywords=(), tensors=(tensor("args[0]", DimRange(min=1, max=8), LENGTH),))
    dims = (SizePlaces((("args[0]", 0),)), SizePlaces((("args[0]", 1),)))
    entries = shape_entries(choice, guard, dims, may_pad=True)
    assert [one.name for one in entries] == ["8x16", "1x512", "8x512"]
    assert entries[0].guard.tensors[0].shape == (DimRange(min=1, max=8), DimRange(min=1, max=16))
    assert entries[1].guard.tensors[0].shape == (1, LENGTH)


@pytest.mark.parametrize(
    ("dims", "why"),
    [
        ((), "places of each"),
        ((SizePlaces((("args[0]", 0),)),), "no declared range"),
        ((SizePlaces((("args[7]", 1),)),), "no declared range"),
    ],
)
def test_places_that_the_guard_does_not_have_are_refused(dims: tuple[SizePlaces, ...], why: str) -> None:
    with pytest.raises(InputError, match=why):
        shape_entries(chosen({10: 5}, dynamic=False), GUARD, dims, may_pad=True)
