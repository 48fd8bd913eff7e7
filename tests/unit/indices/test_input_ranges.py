"""Which values of an input keep every index in range: found from one eager call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from index_models import Indexing, Routed
from torch import nn

from compilot import indices
from compilot.records import IndexColumns, IndexFacts, IndexRange, SizeOf
from compilot.workload import Workload

IDS = torch.tensor([[1, 2, 3], [0, 2, 2]])
X = torch.randn(3, 5)
ROWS = torch.tensor([[1], [2], [0]])
LABELS = torch.tensor([0, -100, 2])
Range = tuple[int, int]


def found(run: Callable[..., Any], *args: torch.Tensor, **how: Any) -> IndexFacts:
    return indices.find(Workload(Indexing(run), args, **how))


def only_range(run: Callable[..., Any], *args: torch.Tensor) -> Any:
    """(path, low, high) of the one input that has a range; None: none has."""
    facts = found(run, *args)
    assert not facts.unproven
    rows = [(path, one.low, one.high) for path, one in facts.ranges.items()]
    assert len(rows) < 2
    return rows[0] if rows else None


LOOKUPS = {
    "embedding": (lambda m, i: m.table(i), (IDS,), (0, 9)),
    "embedding with max_norm": (lambda m, i: F.embedding(i, m.table.weight.clone(), max_norm=1.0), (IDS,), (0, 9)),
    "embedding_bag": (lambda m, i: F.embedding_bag(i, m.table.weight), (IDS,), (0, 9)),
    "index_select": (lambda m, x, i: x.index_select(1, i), (X, IDS[0]), (0, 4)),
    "gather": (lambda m, x, i: x.gather(1, i), (X, ROWS), (0, 4)),
    "gather backwards": (lambda m, x, i: x.gather(-2, i), (X, ROWS), (0, 2)),
    "take": (lambda m, x, i: x.take(i), (X, IDS), (-15, 14)),
    "put": (lambda m, x, i: x.put(i, torch.ones(3, 1)), (X, ROWS), (-15, 14)),
    "advanced indexing": (lambda m, i: m.table.weight[i], (IDS,), (-10, 9)),
    "advanced indexing after a mask": (lambda m, x, i: x[:, None][X[:, :1] > -9, i], (X, ROWS[:, 0]), (-5, 4)),
    "advanced indexing in a later dimension": (lambda m, x, i: x[:, i], (X, IDS[0]), (-5, 4)),
    "index_put": (lambda m, x, i: x.index_put((i,), torch.ones(1)), (X, ROWS[:, 0]), (-3, 2)),
    "assignment": (lambda m, x, i: x.clone().__setitem__((slice(None), i), 1.0), (X, ROWS[:, 0]), (-5, 4)),
    "scatter": (lambda m, x, i: x.scatter(1, i, 1.0), (X, ROWS), (0, 4)),
    "scatter in place": (lambda m, x, i: x.clone().scatter_(1, i, X), (X, ROWS), (0, 4)),
    "scatter_add": (lambda m, x, i: x.scatter_add(1, i, X), (X, ROWS), (0, 4)),
    "scatter_reduce": (lambda m, x, i: x.scatter_reduce(1, i, X, "amax"), (X, ROWS), (0, 4)),
    "index_add": (lambda m, x, i: x.index_add(0, i, X), (X, ROWS[:, 0]), (0, 2)),
    "index_copy": (lambda m, x, i: x.index_copy(0, i, X), (X, ROWS[:, 0]), (0, 2)),
    "index_fill": (lambda m, x, i: x.index_fill(0, i, 1.0), (X, ROWS[:, 0]), (-3, 2)),
    "one_hot": (lambda m, i: F.one_hot(i, 7), (IDS,), (0, 6)),
    "one_hot of as many classes as there are": (lambda m, i: F.one_hot(i), (IDS,), (0, 3)),
    "cross_entropy of pictures": (
        lambda m, x, t: F.cross_entropy(x.reshape(1, 5, 3), t, ignore_index=2),
        (X, ROWS.reshape(1, 3)),
        (0, 4),
    ),
    "nll_loss of one row": (lambda m, x, t: F.nll_loss(x[0], t), (X, torch.tensor(2)), (0, 4)),
    "multi_margin_loss": (lambda m, x, t: F.multi_margin_loss(x, t), (X, ROWS[:, 0]), (0, 4)),
    "max_unpool2d": (lambda m, i: F.max_unpool2d(torch.ones(1, 1, 1, 1), i, 2), (torch.full((1, 1, 1, 1), 3),), (0, 3)),
    "repeat_interleave": (lambda m, i: torch.repeat_interleave(i), (IDS[0],), (0, 2**63 - 1)),
    "bincount": (lambda m, i: torch.bincount(i), (IDS[0],), (0, 2**63 - 1)),
}


@pytest.mark.parametrize("name", LOOKUPS)
def test_every_kind_of_look_up_gives_its_input_the_range_that_eager_has(name: str) -> None:
    run, args, limits = LOOKUPS[name]
    assert only_range(run, *args) == (f"args[{len(args) - 1}]", *limits)


@pytest.mark.parametrize("name", LOOKUPS)
def test_eager_takes_both_ends_of_the_range_and_nothing_beyond(name: str) -> None:
    run, (*others, ids), (low, high) = LOOKUPS[name]
    model = Indexing(run)
    for value in (low, *((high,) if high < 2**62 else ())):
        model(*others, torch.full_like(ids, value))
    if name == "one_hot of as many classes as there are":
        return  # it makes room for any class: only what was compiled has no more
    for value in (low - 1, *((high + 1,) if high < 2**62 else ())):
        with pytest.raises((IndexError, RuntimeError)):
            model(*others, torch.full_like(ids, value))


DERIVED: dict[str, tuple[Callable[..., Any], Range | None]] = {
    "an offset": (lambda m, i: m.table(i + 2), (-2, 7)),
    "a multiple of an offset": (lambda m, i: m.table(torch.add(i, torch.tensor(2), alpha=3)), (-6, 3)),
    "subtracted": (lambda m, i: m.table(9 - i), (0, 9)),
    "negative": (lambda m, i: m.table(torch.neg(torch.neg(i))), (0, 9)),
    "halved": (lambda m, i: m.table(i // 2), (0, 19)),
    "halved towards zero": (lambda m, i: m.table(torch.div(i, 2, rounding_mode="trunc")), (-1, 19)),
    "doubled": (lambda m, i: m.table(i * 2), (0, 4)),
    "absolute": (lambda m, i: m.table(i.abs()), (-9, 9)),
    "clamped": (lambda m, i: m.table(i.clamp(0, 9)), None),
    "clamped from below": (lambda m, i: m.table(i.clamp(min=0)), (-(2**63), 9)),
    "clamped by a tensor": (lambda m, i: m.table(i.clamp(torch.tensor(1), torch.tensor(8))), None),
    "modulo": (lambda m, i: m.table(i % 10), None),
    "modulo too much": (lambda m, i: m.table(i % 11), (0, 9)),
    "and": (lambda m, i: m.table(i & 7), None),
    "the larger one": (lambda m, i: m.table(torch.maximum(i, m.places[:1])), (-(2**63), 9)),
    "another dtype": (lambda m, i: m.table(i.int()), (0, 9)),
    "a view": (lambda m, i: m.table(i.view(-1)[1:].reshape(1, -1).t()), (0, 9)),
    "joined": (lambda m, i: m.table(torch.cat([i, m.places.expand(2, 2)], 1)), (0, 9)),
    "padded": (lambda m, i: m.table(F.pad(i, (1, 0), value=3)), (0, 9)),
    "in place": (lambda m, i: m.table(i.clone().add_(1).mul_(2)), (-1, 3)),
    "a mask": (lambda m, i: m.table((i != 0).long()), None),
    "a running sum of a mask": (lambda m, i: m.table(i.ne(1).cumsum(1) * i.ne(1) + 1), None),
    "a running sum": (lambda m, i: m.table(i.cumsum(1)), (0, 3)),
    "a sum": (lambda m, i: m.table(i.sum(1)), (0, 3)),
    "the largest": (lambda m, i: m.table(i.amax(1)), (0, 9)),
    "where the largest stands": (lambda m, i: m.table(i.argmax(1)), None),
    "sorted": (lambda m, i: (m.table(i.sort(1).values), i.sort(1).indices), (0, 9)),
    "a table of places": (lambda m, i: m.table(m.places[i.clamp(0, 1)]), None),
    "chosen by a comparison": (lambda m, i: m.table(torch.where(i < 0, i + 10, i)), (-10, 9)),
    "chosen by its opposite": (lambda m, i: m.table(torch.where(~(i < 0), i, torch.zeros_like(i))), (-(2**63), 9)),
    "written over": (lambda m, i: m.table(shifted(i)), (0, 9)),
    "sent by a one_hot": (lambda m, i: m.table(F.one_hot(i.clamp(0, 2), 3).argmax(-1)), None),
    "in inference mode": (torch.inference_mode()(lambda m, i: m.table(i + 1)), (-1, 8)),
    "wrapped around": (lambda m, i: m.table((i.to(torch.int8) + 100).long().clamp(0, 9)), None),
}


def shifted(ids: torch.Tensor) -> torch.Tensor:
    moved = torch.zeros_like(ids)
    moved[:, 1:] = ids[:, :-1].clone()
    return moved


@pytest.mark.parametrize("name", DERIVED)
def test_ranges_follow_what_is_computed_from_an_input(name: str) -> None:
    run, limits = DERIVED[name]
    assert only_range(run, IDS) == (None if limits is None else ("args[0]", *limits))


@pytest.mark.parametrize(
    ("run", "args"),
    [
        (lambda m, x: m.table(x.argmax(-1)), (X,)),
        (lambda m, x: x.gather(1, x.topk(2).indices), (X,)),
        (lambda m, x: x[torch.where(x > 0)], (X,)),
        (lambda m, x: x[x > 0], (X,)),
        (lambda m, x: x[x.sort(0).indices[:, 0]], (X,)),
        (lambda m, x: m.table(torch.bucketize(x, torch.arange(9.0))), (X,)),
        (lambda m, x: m.table(x.long().clamp(0, 9)), (X,)),
        (lambda m, x: m.table(x.long() % 10), (X,)),
        (lambda m, x: m.table(torch.arange(x.shape[0])), (X,)),
        (lambda m, x: m.table(m.places), (X,)),
        (lambda m, x: m.table(torch.multinomial(x.softmax(1), 2)), (X,)),
        (lambda m, x: m.table(torch.randint(0, 10, (3,))), (X,)),
    ],
)
def test_indices_that_cannot_be_out_of_range_need_nothing_of_the_inputs(run: Callable[..., Any], args: Any) -> None:
    facts = found(run, *args)
    assert (facts.ranges, facts.unproven) == ({}, "")


def test_routed_experts_are_proven() -> None:
    facts = indices.find(Workload(Routed(), (torch.randn(6, 4),)))
    assert (facts.ranges, facts.unproven) == ({}, "")


def test_labels_that_a_loss_ignores_are_exempt() -> None:
    facts = found(lambda m, x, t: F.cross_entropy(x, t), X, LABELS)
    assert facts.ranges == {"args[1]": IndexRange(low=0, high=4, exempt=(-100,))}
    assert found(lambda m, x, t: F.cross_entropy(x, t), X, LABELS.clamp(min=0)).ranges == facts.ranges


def test_an_example_of_ignored_labels_alone_takes_others_too() -> None:
    facts = found(lambda m, x, t: F.cross_entropy(x, t), X, torch.full((3,), -100))
    assert facts.ranges == {"args[1]": IndexRange(low=0, high=4, exempt=(-100,))}


def test_shifted_labels_may_still_be_ignored() -> None:
    def loss(m: nn.Module, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x, F.pad(labels, (0, 1), value=-100)[1:])

    first = IndexColumns(first=0, last=0, low=-(2**63), high=2**63 - 1)  # no loss looks at it
    labels = IndexRange(low=0, high=4, exempt=(-100,), dim=0, columns=(first,))
    assert found(loss, X, LABELS).ranges == {"args[1]": labels}


@pytest.mark.parametrize(
    "replace",
    [
        lambda ids: ids.masked_fill(ids == -100, 0),
        lambda ids: ids.clone().masked_fill_(ids == -100, 0),
        lambda ids: torch.where(ids != -100, ids, 0),
        lambda ids: ids.index_put((ids == -100,), torch.tensor(0)),
    ],
)
def test_values_that_are_replaced_before_the_look_up_are_exempt(replace: Callable[[Any], Any]) -> None:
    facts = found(lambda m, i: m.table(replace(i)), LABELS)
    assert facts.ranges == {"args[0]": IndexRange(low=0, high=9, exempt=(-100,))}


@pytest.mark.parametrize(
    "run",
    [
        lambda m, i: m.table(torch.where(i < 0, (i + 10).t(), i)),
        lambda m, i: m.table(torch.where((i < 0).t(), i + 10, i)),
        lambda m, i: m.table(torch.where(i < 0, i.t() + 10, i)),
        lambda m, i: m.table(torch.where(i.flip(0) < 0, i + 10, i)),
    ],
)
def test_a_comparison_says_nothing_of_other_places(run: Callable[..., Any]) -> None:
    assert "whose range is not known" in found(run, torch.tensor([[1, 2], [3, 4]])).unproven


def test_two_inputs_share_the_room_that_there_is() -> None:
    facts = found(lambda m, a, b: m.table(a + b), torch.tensor([1, 2]), torch.tensor([0, 3]))
    (first, second) = facts.ranges["args[0]"], facts.ranges["args[1]"]
    assert isinstance(first.high, int)
    assert isinstance(second.high, int)
    assert first.high + second.high == 9


def test_one_tensor_given_twice_is_two_inputs() -> None:
    ids = torch.tensor([1, 2])
    assert set(found(lambda m, a, b: m.table(a + b), ids, ids).ranges) == {"args[0]", "args[1]"}


@pytest.mark.parametrize(
    "run",
    [
        lambda m, x: m.table(x.abs().clamp(0, 9).long()),  # NaN becomes the smallest whole number
        lambda m, x: m.table(torch.ones(5, dtype=torch.int64).scatter_add(0, x.argmax(1), x.argmin(1))),
        lambda m, x: x[x > -99][x.argmax(1)],
    ],
)
def test_an_index_whose_range_is_not_known_is_named_with_its_line(run: Callable[..., Any]) -> None:
    told = found(run, X).unproven
    assert "comes from numbers whose range is not known" in told
    assert f"{__file__}:{run.__code__.co_firstlineno}" in told


def test_what_eager_itself_refuses_is_said() -> None:
    assert "index out of range" in found(lambda m, i: m.table(i + 10), IDS).unproven


def test_a_limit_that_is_a_size_follows_that_size() -> None:
    ids, x = torch.zeros(4, 1, dtype=torch.int64), torch.randn(4, 6)
    how = {"dynamic": {"args.0": {1: (1, 40)}}}
    facts = found(lambda m, x, i: x.gather(1, i), x, ids, **how)
    size = SizeOf(path="args[0]", dim=1, times=1, plus=-1)
    assert facts.ranges == {"args[1]": IndexRange(low=0, high=5)}
    assert facts.at_all_sizes == {"args[1]": IndexRange(low=0, high=size)}


def test_negative_numbers_follow_a_size_too() -> None:
    x, ids = torch.randn(6, 4), torch.tensor([0, 1])
    facts = found(lambda m, x, i: x[i], x, ids, dynamic={"args.0": {0: (2, 40)}})
    low = SizeOf(path="args[0]", dim=0, times=-1, plus=0)
    high = SizeOf(path="args[0]", dim=0, times=1, plus=-1)
    assert facts.at_all_sizes == {"args[1]": IndexRange(low=low, high=high)}


def test_the_narrowest_limit_counts_where_it_follows_no_size() -> None:
    ids = torch.ones(2, 2, dtype=torch.int64)
    facts = found(lambda m, i: m.table(i.sum(1)), ids, dynamic={"args.0": {1: (1, 4)}})
    assert facts.at_all_sizes == {"args[0]": IndexRange(low=0, high=2)}
    assert facts.sized


def test_ranges_that_come_from_the_models_own_tables_hold_at_any_size() -> None:
    assert not found(lambda m, i: m.table(i + 1), IDS).sized
    assert found(lambda m, x, i: x.gather(1, i), X, ROWS).sized


class Breaks(nn.Module):
    """Stops every export: it prints what it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 4)

    def forward(self, ids: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        assert int(ids.max()) >= 0
        return self.table(ids) * scale


def test_models_that_cannot_be_exported_are_looked_at_too() -> None:
    facts = indices.find(Workload(Breaks().eval(), (), {"ids": IDS}))
    assert facts.ranges == {"kwargs['ids']": IndexRange(low=0, high=9)}
