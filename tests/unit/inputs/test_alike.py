"""Sizes that look alike: every way to part them, and no more calls than they are worth."""

from __future__ import annotations

from compilot.inputs.alike import MOST_ALIKE, Group, grouped, partings
from compilot.records import DimRange


def test_places_are_parted_in_every_way_and_the_first_one_stays():
    assert list(partings("abc")) == [("b",), ("c",), ("b", "c")]
    assert len(list(partings(range(MOST_ALIKE)))) == 2 ** (MOST_ALIKE - 1) - 1


def test_a_lone_place_and_too_many_of_them_are_not_parted():
    assert not list(partings("a"))
    assert not list(partings(range(MOST_ALIKE + 1)))


def test_height_and_width_of_one_image_are_groups_of_their_own():
    side = DimRange(min=8, max=64)
    groups = grouped({2: side, 3: side, 0: DimRange(min=1, max=8)}, (1, 3, 32, 32))
    assert groups == {2: Group(8, 64, 32, 0), 3: Group(8, 64, 32, 1), 0: Group(1, 8, 1, 0)}
