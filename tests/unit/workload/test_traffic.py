"""What the sizes of a trace mean for a model: which of them move together, and how often each comes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from compilot.errors import InputError
from compilot.records import CallSizes, DimRange, Guard, SizeCount, Traffic
from compilot.workload.replay import declared_by
from compilot.workload.traffic import traffic_of
from compilot.workload.workload import Workload

GUARD = Guard(positional=2, keywords=(), tensors=())


class Masked(nn.Module):
    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return ids * mask


def text(**dynamic: object) -> Workload:
    ids = torch.ones(2, 7, dtype=torch.long)
    return Workload(Masked().eval(), (ids, ids), dynamic=dynamic or None)  # type: ignore[arg-type]


def read(workload: Workload, *calls: tuple[dict[str, int], int]) -> Traffic:
    counts = [SizeCount(sizes=sizes, calls=number, line=line) for line, (sizes, number) in enumerate(calls, 1)]
    return traffic_of(workload, counts, GUARD)


def test_dimensions_that_move_together_are_one_size() -> None:
    found = read(text(batch=(1, 8), seq=(1, 64)), ({"ids:1": 9}, 3), ({"ids:1": 30, "mask:1": 30}, 2))
    assert [(dim.name, dim.min, dim.max) for dim in found.dims] == [("ids:0", 1, 8), ("ids:1", 1, 64)]
    assert [len(dim.places) for dim in found.dims] == [2, 2]
    assert [(one.sizes, one.count) for one in found.demand] == [((2, 9), 3), ((2, 30), 2)]  # the example's batch


class Image(nn.Module):
    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return image


def pictures(height: tuple[int, int] = (8, 64), width: tuple[int, int] = (8, 64)) -> Workload:
    return Workload(Image().eval(), (torch.ones(1, 3, 16, 32),), dynamic={"image": {2: height, 3: width}})


def pixels(height: int, width: int) -> dict[str, int]:
    return {"image:2": height, "image:3": width}


def test_sizes_that_are_equal_in_every_call_are_one() -> None:
    found = read(pictures(), (pixels(8, 8), 3), (pixels(64, 64), 2))
    [dim] = found.dims
    assert dim.label == "image:2 = image:3"
    assert [(place.path, place.dim) for place in dim.places] == [("args[0]", 2), ("args[0]", 3)]
    assert [(one.sizes, one.count) for one in found.demand] == [((8,), 3), ((64,), 2)]
    assert found.named((24,)) == pixels(24, 24)


@pytest.mark.parametrize(
    ("load", "calls"),
    [
        (pictures(), [pixels(8, 8), pixels(64, 64), pixels(8, 64)]),  # they differ in one call
        (pictures(width=(8, 128)), [pixels(8, 8), pixels(64, 64)]),  # one of them may be larger
        (pictures(), [pixels(8, 8)]),  # equal by chance, as far as one size says
    ],
)
def test_sizes_that_may_differ_are_two(load: Workload, calls: list[dict[str, int]]) -> None:
    found = read(load, *((sizes, 1) for sizes in calls))
    assert [dim.label for dim in found.dims] == ["image:2", "image:3"]
    assert found.named((8, 64)) == pixels(8, 64)


def test_replayed_calls_count_as_well() -> None:
    """A trace of very many sizes is kept in part; its calls are whole."""
    counts = [SizeCount(sizes=pixels(size, size), calls=1, line=size) for size in (8, 64)]
    calls = [CallSizes(line=1, sizes=pixels(8, 9))]
    assert len(traffic_of(pictures(), counts, GUARD, requests=calls).dims) == 2


def test_equal_sizes_are_added_up() -> None:
    found = read(text(seq=(1, 64)), ({"ids:1": 9}, 3), ({"mask:1": 9}, 4))
    assert [(one.sizes, one.count) for one in found.demand] == [((9,), 7)]


def test_of_many_declared_sizes_those_that_vary_count() -> None:
    class Three(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    load = Workload(Three(), (torch.ones(2, 3, 4),), dynamic={"x": {0: (1, 4), 1: (1, 5), 2: (1, 6)}})
    found = read(load, ({"x:1": 2}, 1), ({"x:1": 5}, 1))
    assert [dim.name for dim in found.dims] == ["x:1"]


def test_the_trace_itself_may_declare_them() -> None:
    calls = [CallSizes(line=1, sizes={"ids:1": 3, "mask:1": 3}), CallSizes(line=2, sizes={"ids:1": 40, "mask:1": 40})]
    load = declared_by(text(), calls, {"ids:1": DimRange(min=3, max=40), "mask:1": DimRange(min=3, max=40)})
    [dim] = read(load, ({"ids:1": 3, "mask:1": 3}, 1)).dims
    assert (dim.min, dim.max) == (3, 40)


def test_nothing_that_varies_is_no_traffic() -> None:
    assert read(text(), ({"ids:1": 7}, 5)).dims == ()


@pytest.mark.parametrize(
    ("sizes", "said"),
    [({"idz:1": 5}, "no dimension 'idz:1' is declared"), ({"ids:1": 500}, "outside its declared range 1..64")],
)
def test_what_is_wrong_names_its_line(sizes: dict[str, int], said: str) -> None:
    with pytest.raises(InputError, match=f"line 2 of the shape trace: .*{said}"):
        read(text(seq=(1, 64)), ({"ids:1": 9}, 1), (sizes, 1))


def test_empty_calls_are_counted_and_left_out() -> None:
    made = [CallSizes(line=1, sizes={"ids:1": 0}), CallSizes(line=2, sizes={"ids:1": 9})]
    counts = [SizeCount(sizes={"ids:1": size}, calls=size + 2, line=1) for size in (0, 9)]
    found = traffic_of(text(seq=(1, 64)), counts, GUARD, requests=made)
    assert [(one.sizes, one.count) for one in found.demand] == [((9,), 11)]
    assert (found.requests, found.empty_calls) == (((9,),), 2)
    declared = traffic_of(text(seq=(0, 64)), counts, GUARD, requests=made)
    assert (len(declared.demand), len(declared.requests), declared.empty_calls) == (2, 2, 0)
    with pytest.raises(InputError, match="every call of the trace has an empty input"):
        traffic_of(text(seq=(1, 64)), counts[:1], GUARD)


def test_the_sizes_of_the_requests_are_in_their_order() -> None:
    made = [CallSizes(line=1, sizes={"mask:1": 30}), CallSizes(line=2, sizes={"ids:1": 9, "ids:0": 5})]
    counts = [SizeCount(sizes={"ids:1": 9}, calls=3, line=1)]
    found = traffic_of(text(batch=(1, 8), seq=(1, 64)), counts, GUARD, requests=made)
    assert found.requests == ((2, 30), (5, 9))
