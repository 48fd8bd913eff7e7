"""One tensor of ids for several tables: each column of it has a range of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from compilot import indices
from compilot.indices import places
from compilot.records import IndexColumns, IndexFacts, IndexRange, SizeOf
from compilot.runtime import columns
from compilot.workload import Workload

SIZES = (10, 200, 3, 50)
OFFSETS = (0, 10, 210, 213)  # of the four tables in one that holds them all
TOTAL = 263
ANY = (-(2**63), 2**63 - 1)
EACH = [(0, size - 1) for size in SIZES]
SHIFTED = [(-offset, TOTAL - 1 - offset) for offset in OFFSETS]
Columns = Callable[[torch.Tensor], Sequence[torch.Tensor]]


def example(rows: int = 6) -> torch.Tensor:
    """The last row of each table is in it."""
    ids = torch.stack([torch.arange(rows) % size for size in SIZES], 1)
    ids[-1] = torch.tensor(SIZES) - 1
    return ids


class Tables(nn.Module):
    """One table for each column; take: how the columns are taken from the input."""

    def __init__(self, take: Columns, sizes: Sequence[int] = SIZES) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, 4) for size in sizes)
        self.take = take
        self.eval()

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        parts = [table(part).flatten() for table, part in zip(self.tables, self.take(ids), strict=True)]
        return torch.cat(parts)


class OneTable(nn.Module):
    """All tables as one; shift: how ids become rows of it."""

    offsets: torch.Tensor

    def __init__(self, shift: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.table = nn.Embedding(TOTAL, 4)
        self.register_buffer("offsets", torch.tensor(OFFSETS))
        self.shift = shift
        self.eval()

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.table(self.shift(ids, self.offsets))


def limits(index: IndexRange, size: int) -> list[Any]:
    """(low, high) of each position, exempt values behind them."""
    return [
        (run.low, run.high, *run.exempt) for run in columns.runs(index, size) for _ in range(run.first, run.last + 1)
    ]


def found(model: nn.Module, *args: torch.Tensor, **how: Any) -> IndexFacts:
    return indices.find(Workload(model, args, **how))


def columns_of(model: nn.Module, ids: torch.Tensor, dim: int) -> list[Any]:
    facts = found(model, ids)
    assert facts.unproven == ""
    index = facts.ranges["args[0]"]
    assert index.dim == dim
    return limits(index, ids.shape[dim])


TAKEN: dict[str, tuple[Columns, int, Callable[[torch.Tensor], torch.Tensor]]] = {
    "select": (lambda x: [x[:, k] for k in range(4)], 1, lambda x: x),
    "ellipsis": (lambda x: [x[..., k] for k in range(4)], 1, lambda x: x),
    "from the end": (lambda x: [x[:, k - 4] for k in range(4)], 1, lambda x: x),
    "unbind": (lambda x: x.unbind(1), 1, lambda x: x),
    "split": (lambda x: x.split(1, 1), 1, lambda x: x),
    "split with sizes": (
        lambda x: [*x.split([1, 2, 1], 1)[0::2], *x[:, 1:3].unbind(1)],
        1,
        lambda x: x[:, [0, 2, 3, 1]],
    ),
    "chunk": (lambda x: x.chunk(4, -1), 1, lambda x: x),
    "narrow": (lambda x: [x.narrow(1, k, 1) for k in range(4)], 1, lambda x: x),
    "turned": (lambda x: x.t(), 1, lambda x: x),
    "turned and copied": (lambda x: x.t().contiguous().unbind(0), 1, lambda x: x),
    "by a list": (lambda x: [x[:, [k]] for k in range(4)], 1, lambda x: x),
    "index_select": (lambda x: [x.index_select(1, torch.tensor([k])) for k in range(4)], 1, lambda x: x),
    "flipped": (lambda x: x.flip(1).unbind(1), 1, lambda x: x.flip(1)),
    "rolled": (lambda x: x.roll(1, 1).unbind(1), 1, lambda x: x.roll(-1, 1)),
    "another dtype first": (lambda x: x.int().unbind(1), 1, lambda x: x),
    "one row per table": (lambda x: x, 0, lambda x: x.t().contiguous()),
    "in the middle of three": (lambda x: x.unbind(1), 1, lambda x: x[:, :, None].expand(-1, -1, 2).contiguous()),
    "last of three": (lambda x: x.unbind(-1), 2, lambda x: x[:, None].expand(-1, 5, -1).contiguous()),
    "flat": (lambda x: x.view(-1, 4).unbind(1), 2, lambda x: x[:, None].expand(-1, 5, -1).contiguous()),
    "joined and taken apart": (lambda x: torch.cat([x, torch.zeros_like(x)], 1).unbind(1)[:4], 1, lambda x: x),
    "stacked": (lambda x: torch.stack([x[:, k] for k in range(4)]).unbind(0), 1, lambda x: x),
    "padded": (lambda x: F.pad(x, (1, 0), value=7).unbind(1)[1:], 1, lambda x: x),
    "copied part by part": (lambda x: copied(x).unbind(1), 1, lambda x: x),
    "not contiguous": (lambda x: x.unbind(1), 1, lambda x: x.t().contiguous().t()),
    "a part of a larger one": (lambda x: x.unbind(1), 1, lambda x: torch.cat([x, x], 1)[:, :4]),
}


def copied(ids: torch.Tensor) -> torch.Tensor:
    made = torch.empty_like(ids)
    for column in range(ids.shape[1]):
        made[:, column] = ids[:, column]
    return made


@pytest.mark.parametrize("name", TAKEN)
def test_each_table_limits_its_own_column(name: str) -> None:
    take, dim, made = TAKEN[name]
    ids = made(example())
    order = EACH
    if name == "split with sizes":
        order = [EACH[k] for k in (0, 2, 3, 1)]
    if name == "flipped":
        order = EACH[::-1]
    if name == "rolled":
        order = EACH[1:] + EACH[:1]
    assert columns_of(Tables(take), ids, dim) == order


SHIFTS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "added": lambda x, o: x + o,
    "added as a row": lambda x, o: x + o.unsqueeze(0),
    "added to another dtype": lambda x, o: x.int() + o.int(),
    "added as often as there are rows": lambda x, o: x + o.repeat(x.shape[0], 1),
    "added as an expanded row": lambda x, o: x + o.expand_as(x),
    "subtracted": lambda x, o: x - (-o),
    "from the other side": lambda x, o: o + x,
    "twice": lambda x, o: torch.add(x, o // 2, alpha=2) + o % 2,
    "in place": lambda x, o: x.clone().add_(o),
    "column by column": lambda x, o: torch.stack([x[:, k] + o[k] for k in range(4)], 1),
    "column by column in place": lambda x, o: shifted_in_place(x, o),
    "made in the call": lambda x, o: x + torch.cumsum(torch.tensor([0, 10, 200, 3]), 0),
    "then flat": lambda x, o: (x + o).flatten(),
    "turned": lambda x, o: x.t() + o[:, None],
    "doubled back": lambda x, o: (x * 2 + o * 2) // 2,
}


def shifted_in_place(ids: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    ids = ids.clone()
    for column in range(1, 4):
        ids[:, column] += offsets[column]
    return ids


@pytest.mark.parametrize("name", SHIFTS)
def test_offsets_move_the_range_of_each_column(name: str) -> None:
    assert columns_of(OneTable(SHIFTS[name]), example(), 1) == SHIFTED


@pytest.mark.parametrize(
    ("shift", "expected"),
    [
        (lambda x, o: x.remainder(torch.tensor(SIZES)) + o, None),
        (lambda x, o: torch.minimum(x, torch.tensor(SIZES) - 1) + o, [(-offset, ANY[1]) for offset in OFFSETS]),
        (lambda x, o: x.clamp(torch.zeros(4).long(), torch.tensor(SIZES) - 1) + o, None),
        (lambda x, o: torch.where(x < 0, 0, x) + o, [(ANY[0], TOTAL - 1 - offset) for offset in OFFSETS]),
        (lambda x, o: x.masked_fill(x == -7, 0) + o, [(0, 262, -7), *SHIFTED[1:]]),
        (lambda x, o: masked(x) + o, [(0, 262, -7), *SHIFTED[1:]]),
        (lambda x, o: torch.where(x < 0, x + torch.tensor([100, 0, 0, 0]), x) + o, [(-100, 262), *SHIFTED[1:]]),
    ],
)
def test_choices_and_limits_by_column(shift: Any, expected: list[Any] | None) -> None:
    if expected is None:
        assert found(OneTable(shift), example()).ranges == {}
    else:
        assert columns_of(OneTable(shift), example(), 1) == expected


def masked(ids: torch.Tensor) -> torch.Tensor:
    ids = ids.clone()
    ids[ids == -7] = 0
    return ids


class Packed(nn.Module):
    """Ids, types and positions of tokens in one tensor, as some servers send them."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.words, self.types, self.positions = nn.Embedding(100, 4), nn.Embedding(2, 4), nn.Embedding(32, 4)
        self.dim = dim
        self.eval()

    def forward(self, packed: torch.Tensor) -> torch.Tensor:
        words, types, positions = packed.unbind(self.dim)
        return self.words(words) + self.types(types) + self.positions(positions)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_a_packed_tensor_of_ids_types_and_positions(dim: int) -> None:
    parts = torch.tensor([[90, 5, 7], [30, 2, 9]]), torch.tensor([[0, 0, 1]] * 2), torch.arange(3).expand(2, 3)
    packed = torch.stack(parts, dim)
    assert columns_of(Packed(dim), packed, dim) == [(0, 99), (0, 1), (0, 31)]


def test_a_column_that_is_no_index_may_hold_anything() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(10, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.table(x[:, 0]) * x[:, 1:].sum(1, keepdim=True).float().log1p()

    assert columns_of(Mixed().eval(), torch.tensor([[1, 5, 3], [2, 7, 4]]), 1) == [(0, 9), ANY, ANY]


def test_tables_of_one_size_need_no_columns() -> None:
    facts = found(Tables(lambda x: x.unbind(1), (10, 10, 10)), torch.ones(4, 3, dtype=torch.int64))
    assert facts.ranges == facts.at_all_sizes == {"args[0]": IndexRange(low=0, high=9)}


def test_neighbours_that_share_a_range_are_one_run() -> None:
    facts = found(Tables(lambda x: x.unbind(1), (10, 10, 7, 7, 10)), torch.ones(4, 5, dtype=torch.int64))
    own = (IndexColumns(first=2, last=3, low=0, high=6),)
    assert facts.ranges == {"args[0]": IndexRange(low=0, high=9, dim=1, columns=own)}


def test_two_columns_of_one_index_share_its_room() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.other = nn.Embedding(10, 4), nn.Embedding(100, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.table(x[:, 0] + x[:, 1].clamp(0, 3)) + self.other(x[:, 2])

    assert columns_of(Pair().eval(), torch.tensor([[1, 2, 99], [3, 1, 4]]), 1) == [(0, 6), ANY, (0, 99)]


def test_two_inputs_with_columns_each() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.user, self.item = Tables(lambda x: x.unbind(1)), Tables(lambda x: x.unbind(0), SIZES[::-1])

        def forward(self, user: torch.Tensor, item: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.user(user), self.item(item)

    ranges = found(Two().eval(), example(), example().flip(1).t().contiguous()).ranges
    assert limits(ranges["args[0]"], 4) == EACH
    assert (ranges["args[1]"].dim, limits(ranges["args[1]"], 4)) == (0, EACH[::-1])


def test_each_column_of_labels_has_its_own_that_are_ignored() -> None:
    class Losses(nn.Module):
        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            first = F.cross_entropy(x, labels[:, 0])
            return first + F.cross_entropy(x[:, :3], labels[:, 1], ignore_index=-7)

    facts = found(Losses(), torch.randn(3, 5), torch.tensor([[4, 2], [-100, -7], [0, 0]]))
    assert limits(facts.ranges["args[1]"], 2) == [(0, 4, -100), (0, 2, -7)]


def test_a_column_of_ignored_labels_alone_takes_labels_too() -> None:
    class Losses(nn.Module):
        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            return F.cross_entropy(x, labels[:, 0]) + F.cross_entropy(x[:, :3], labels[:, 1])

    facts = found(Losses(), torch.randn(2, 5), torch.tensor([[4, -100], [3, -100]]))
    assert limits(facts.ranges["args[1]"], 2) == [(0, 4, -100), (0, 2, -100)]


def test_rows_may_vary_where_columns_do_not() -> None:
    facts = found(Tables(lambda x: x.unbind(1)), example(), dynamic={"ids": {0: (1, 64)}})
    assert facts.unproven_sizes == ""
    assert limits(facts.at_all_sizes["args[0]"], 4) == EACH
    assert facts.at_all_sizes == facts.ranges


def test_a_columns_limit_may_follow_a_size() -> None:
    class Gathered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(10, 4)

        def forward(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
            return self.table(ids[:, 0]).sum() + x[ids[:, 1]]

    ids = torch.tensor([[9, 0], [3, 1]])
    facts = found(Gathered().eval(), torch.randn(6), ids, dynamic={"x": {0: (2, 40)}})
    low, high = (SizeOf(path="args[0]", dim=0, times=times, plus=plus) for times, plus in ((-1, 0), (1, -1)))
    assert limits(facts.at_all_sizes["args[1]"], 2) == [(0, 9), (low, high)]


def test_columns_that_vary_in_number_cannot_have_ranges_each() -> None:
    class Any(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables = nn.ModuleList(nn.Embedding(size, 4) for size in SIZES)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return torch.stack([t(c) for t, c in zip(self.tables, ids.unbind(1), strict=False)]).sum(0)

    facts = found(Any().eval(), example(), dynamic={"ids": {1: (1, 4)}})
    assert "comes from numbers whose range is not known" in facts.unproven
    small = example().clamp(max=2)
    assert found(Any().eval(), small, dynamic={"ids": {1: (1, 4)}}).at_all_sizes == {
        "args[0]": IndexRange(low=0, high=2)
    }


@pytest.mark.parametrize("fits_all", [True, False])
def test_undeclared_sizes_have_no_columns(fits_all: bool) -> None:
    facts = found(Tables(lambda x: x.unbind(1)), example().clamp(max=2) if fits_all else example())
    assert limits(facts.ranges["args[0]"], 4) == EACH
    if fits_all:
        assert facts.at_all_sizes == {"args[0]": IndexRange(low=0, high=2)}
    assert facts.sized is not fits_all


def test_too_many_columns_are_not_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compilot.indices.columns.MOST", 3)
    assert "comes from numbers whose range is not known" in found(Tables(lambda x: x.unbind(1)), example()).unproven


def test_too_many_classes_are_one_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "MOST", 3)
    assert "comes from numbers whose range is not known" in found(OneTable(lambda x, o: x + o), example()).unproven


def test_columns_that_nothing_tells_apart_are_solved_as_one() -> None:
    asked = []
    model = Tables(lambda x: [x[:, :100].flatten(), x[:, 100:].flatten()], (10, 20))
    ids = torch.ones(2, 200, dtype=torch.int64)
    own = indices.columns.solve
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indices.columns, "solve", lambda p, seen: asked.append(len(seen["args[0]"])) or own(p, seen))
        assert columns_of(model, ids, 1) == [(0, 9)] * 100 + [(0, 19)] * 100
    assert max(asked) == 2


def test_what_is_left_of_places_that_depend_on_values_is_one_class() -> None:
    class Kept(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.small, self.large = nn.Embedding(5, 4), nn.Embedding(100, 4)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            kept = torch.cat([ids[0][ids[0] > 0], ids[1]])
            return self.large(kept) + self.small(kept[-1])

    facts = found(Kept().eval(), torch.tensor([[1, 2], [3, 4]]))
    assert limits(facts.ranges["args[0]"], 2) == [(0, 4)] * 2


@pytest.mark.parametrize(
    "taken",
    [
        lambda x: x[:, : int(x[:, 0].max())],
        lambda x: x[:, : x[0, 0].item()],
        lambda x: x[:, : x[0, 0]],
        lambda x: x[:, : x[0].tolist()[0]],
        lambda x: x[:, : x.numpy()[0, 0]],
        lambda x: x[:, : int(np.asarray(x)[0, 0])],
        lambda x: x[:, : int(x[0, 0].float().numpy())],
        lambda x: x[:, : x[0, : x[0, 0]].nonzero().shape[0]],
        lambda x: x.split([x[0, 0].item(), 4 - x[0, 0].item()], 1)[0],
    ],
)
def test_parts_that_depend_on_values_are_not_told_apart(taken: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """A call with a larger number looks up columns that this one left alone."""
    ids = torch.tensor([[2, 1, 50, 50], [2, 1, 50, 50]])
    model = Tables(lambda x: [taken(x)], (99,))
    assert found(model, ids).ranges == {"args[0]": IndexRange(low=0, high=98)}
    with pytest.raises(IndexError):
        model(torch.tensor([[4, 1, 50, 99]] * 2))


def test_flags_and_known_numbers_may_be_read() -> None:
    def take(ids: torch.Tensor) -> list[torch.Tensor]:
        assert (ids >= 0).all()
        order = torch.tensor([0, 1, 2, 3])
        return [ids[:, k] for k in order.tolist()[: order.numpy()[3]]] + [ids[:, int(order[3])]]

    assert columns_of(Tables(take), example(), 1) == EACH


def test_methods_that_were_watched_are_as_before() -> None:
    names = ("tolist", "numpy", "__array__", "__dlpack__")
    before = [getattr(torch.Tensor, name) for name in names]
    found(Tables(lambda x: [x[:, k - 9] for k in range(4)]), example())
    assert [getattr(torch.Tensor, name) for name in names] == before
    assert "tolist" not in torch.Tensor.__dict__


@pytest.mark.parametrize("bad", [[[100, 0, 0]], [[0, 100, 0]]])
def test_a_comparison_says_nothing_of_a_narrower_part(bad: list[list[int]]) -> None:
    """The first column stands for all: what is known of the others does not hold for it."""

    class Spread(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(10, 4)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.table(torch.where(ids > 5, 0, ids.clone()[:, :1]))

    model = Spread().eval()
    index = found(model, torch.tensor([[1, 2, 3]])).ranges["args[0]"]
    ends = limits(index, 3)
    taken = all(low <= value <= high for (low, high, *_), value in zip(ends, bad[0], strict=True))
    if taken:
        model(torch.tensor(bad))
    assert taken == (bad == [[0, 100, 0]])
