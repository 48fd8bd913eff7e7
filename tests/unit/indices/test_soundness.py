"""What the guard takes, eager takes: models drawn at random, called with ids in and out of range."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from index_models import Indexing

from compilot import indices
from compilot._tree import Call
from compilot.records import Shapes
from compilot.runtime import columns
from compilot.runtime.guards import make_guard
from compilot.runtime.matching import Matcher
from compilot.workload import Workload

Change = Callable[[Any, torch.Tensor, int], torch.Tensor]

CHANGES: dict[str, Change] = {
    "add": lambda m, i, n: i + n,
    "subtract": lambda m, i, n: n - i,
    "multiply": lambda m, i, n: i * n,
    "floor": lambda m, i, n: i // (n or 1),
    "cut": lambda m, i, n: torch.div(i, n if n not in (0, -1) else 2, rounding_mode="trunc"),  # -(2**63) / -1 is SIGFPE
    "modulo": lambda m, i, n: i % (n or 7),
    "fmod": lambda m, i, n: torch.fmod(i, n or 7),
    "clamp": lambda m, i, n: i.clamp(min(n, 3), 12),
    "at most": lambda m, i, n: i.clamp(max=n),
    "absolute": lambda m, i, n: i.abs(),
    "and": lambda m, i, n: i & abs(n),
    "xor": lambda m, i, n: i ^ n,
    "narrow": lambda m, i, n: (i * 30).to(torch.int8).long(),
    "sum": lambda m, i, n: i.sum(-1, keepdim=True).expand_as(i),
    "running sum": lambda m, i, n: i.cumsum(-1),
    "largest": lambda m, i, n: i.amax(-1, keepdim=True).expand_as(i),
    "place": lambda m, i, n: i.argsort(-1),
    "turned": lambda m, i, n: i.flip(-1),
    "padded": lambda m, i, n: F.pad(i[..., 1:], (1, 0), value=n),
    "in place": lambda m, i, n: i.clone().add_(n),
    "half in place": lambda m, i, n: _partly(i, n),
    "below": lambda m, i, n: torch.where(i < n, i + 10, i),
    "above": lambda m, i, n: torch.where(i > n, torch.zeros_like(i), i),
    "crosswise": lambda m, i, n: torch.where(i.flip(-1) < n, i, i + 1),
    "replaced": lambda m, i, n: i.masked_fill(i == n, 1),
    "overwritten": lambda m, i, n: _overwritten(i, n),
    "a mask": lambda m, i, n: (i >= n).long(),
    "joined": lambda m, i, n: torch.cat([i[..., :1], m.places.expand(*i.shape[:-1], 2)], -1),
    "looked up": lambda m, i, n: m.places[i.clamp(0, 1)],
    "sorted": lambda m, i, n: i.sort(-1).values,
}
LOOKUPS: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "embedding": lambda m, i: m.table(i),
    "advanced": lambda m, i: m.table.weight[i],
    "select": lambda m, i: m.table.weight.index_select(0, i.flatten()),
    "gather": lambda m, i: m.table.weight.t()[: i.shape[0]].gather(1, i),
    "take": lambda m, i: m.table.weight.take(i),
    "scatter": lambda m, i: torch.zeros(2, 10).scatter(1, i, 1.0),
    "one_hot": lambda m, i: F.one_hot(i, 10),
    "put": lambda m, i: torch.zeros(10).index_put((i,), torch.ones(())),
    "loss": lambda m, i: F.cross_entropy(torch.zeros(i.numel(), 10), i.flatten()),
}


def _partly(ids: torch.Tensor, n: int) -> torch.Tensor:
    ids = ids.clone()
    ids[..., :1] += n
    return ids


def _overwritten(ids: torch.Tensor, n: int) -> torch.Tensor:
    ids = ids.clone()
    ids[ids == n] = 2
    return ids


numbers = st.integers(-12, 12)
steps = st.lists(st.tuples(st.sampled_from(sorted(CHANGES)), numbers), min_size=1, max_size=3)
ids_of = st.lists(st.integers(-15, 25) | st.sampled_from([-100, 2**40, -(2**63), 2**63 - 1]), min_size=6, max_size=6)
places = st.lists(st.sampled_from([0, 0, 1, 2, 2]), min_size=6, max_size=6)  # halves of the range that was found


def raises(model: Indexing, ids: torch.Tensor) -> bool:
    try:
        model(ids)
    except (IndexError, RuntimeError):
        return True
    return False


def guarded(model: Indexing, ids: torch.Tensor) -> Matcher | None:
    """The guard's look at calls; None: an index of this model cannot be proven."""
    facts = indices.find(Workload(model, (ids,)))
    if facts.unproven:
        return None
    how: dict[str, Any] = {"dynamic": (), "shapes": Shapes.STATIC, "grad": False}
    return Matcher(make_guard(model, Call((ids,), {}), **how, indices=facts.ranges))


@settings(max_examples=250)
@given(
    st.sampled_from(sorted(LOOKUPS)),
    steps,
    st.lists(st.integers(0, 6), min_size=6, max_size=6),
    st.lists(places),
    ids_of,
)
def test_eager_raises_for_no_call_that_the_guard_takes(
    look_up: str, changes: list[tuple[str, int]], example: list[int], inside: list[list[int]], anything: list[int]
) -> None:
    def run(model: Any, ids: torch.Tensor) -> Any:
        for name, number in changes:
            ids = CHANGES[name](model, ids, number)
        return LOOKUPS[look_up](model, ids)

    model = Indexing(run)
    first = torch.tensor(example).reshape(2, 3)
    assume(not raises(model, first))
    matcher = guarded(model, first)
    assume(matcher is not None)
    assert matcher is not None
    assert matcher.call_mismatch(Call((first,), {})) is None
    ranges = limits(matcher)
    ends = [[0] * 6, [2] * 6, [0, 2, 0] * 2, [2, 0, 2, 0, 0, 2]]
    drawn = [
        [low + (high - low) * place // 2 for place, (low, high) in zip(row, ranges, strict=True)]
        for row in (*ends, *inside)
    ]
    for values in (*drawn, anything):
        ids = torch.tensor(values).reshape(2, 3)
        taken = matcher.call_mismatch(Call((ids,), {})) is None
        assert taken or values is anything
        assert not (taken and raises(model, ids)), values


def limits(matcher: Matcher) -> list[tuple[Any, Any]]:
    """The ends of the range of each of the six places."""
    index = matcher.guard.tensors[0].index
    if index is None:
        return [(-(2**63), 2**63 - 1)] * 6
    shape = (2, 3)
    rows = [run for run in columns.runs(index, shape[index.dim]) for _ in range(run.first, run.last + 1)]
    return [
        (rows[place[index.dim]].low, rows[place[index.dim]].high) for place in itertools.product(*map(range, shape))
    ]


@settings(max_examples=100)
@given(st.sampled_from(sorted(set(LOOKUPS) - {"loss"})), numbers, ids_of)
def test_the_guard_turns_down_only_what_eager_raises_for(look_up: str, offset: int, values: list[int]) -> None:
    model = Indexing(lambda m, ids: LOOKUPS[look_up](m, ids + offset))
    matcher = guarded(model, torch.full((2, 3), 4 - offset))
    assert matcher is not None
    ids = torch.tensor(values).reshape(2, 3)
    assert (matcher.call_mismatch(Call((ids,), {})) is not None) == raises(model, ids)


@settings(max_examples=50)
@given(st.lists(st.sampled_from([-100, -1, 0, 3, 9, 10, 2**62]), min_size=3, max_size=3))
def test_a_losses_guard_turns_down_only_what_eager_raises_for(values: list[int]) -> None:
    model = Indexing(lambda m, t: F.cross_entropy(torch.zeros(3, 10), t))
    matcher = guarded(model, torch.tensor([1, 2, 3]))
    assert matcher is not None
    labels = torch.tensor(values)
    assert (matcher.call_mismatch(Call((labels,), {})) is not None) == raises(model, labels)


PARTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "columns": lambda i: [i[:, k] for k in range(3)],
    "unbound": lambda i: i.unbind(1),
    "rows": lambda i: [i[0], i[1], i[1]],
    "parts": lambda i: [i[:, :2], i[:, 1:], i[:, 2:]],
    "moved": lambda i: torch.cat([i.flip(1), i[:, :1]], 1).split([1, 1, 2], 1),
    "every other": lambda i: [i[:, ::2], i.flatten()[1::2], i.t()[1]],
    "by a list": lambda i: [i[:, [0, 2]], i[:, [1]], i[[1]]],
    "all": lambda i: [i, i.t(), i.flatten()],
}
BY_COLUMN: dict[str, Change] = {
    "offsets": lambda m, i, n: i + torch.tensor([0, n, 2 * n]),
    "offsets of rows": lambda m, i, n: i - torch.tensor([[n], [0]]),
    "factors": lambda m, i, n: i * torch.tensor([1, n, -1]),
    "divisors": lambda m, i, n: i // torch.tensor([1, 2, n or 3]),
    "modulo each": lambda m, i, n: i % torch.tensor([4, abs(n) + 1, 30]),
    "limits": lambda m, i, n: torch.minimum(i, torch.tensor([3, abs(n), 9])),
    "choice by column": lambda m, i, n: torch.where(i < torch.tensor([0, n, 3]), i + 9, i),
    "one column": lambda m, i, n: _partly(i, n),
    "one column from another": lambda m, i, n: _copied(i, n),
    "swapped": lambda m, i, n: i.flip(-1) + n,
    "with itself": lambda m, i, n: i + i.roll(1, -1),
    "side by side": lambda m, i, n: torch.cat([i[:, :1] + n, i[:, 1:]], 1),
    "padded": lambda m, i, n: F.pad(i, (1, -1), value=n),
    "narrow part": lambda m, i, n: torch.where(i > n, 0, i.clone()[:, :1]),
    "by one column": lambda m, i, n: torch.where(i[:, :1] > n, 0, i),
    "other bytes": lambda m, i, n: i.clone().view(torch.int32).flatten()[:6:2].expand(2, 3).long(),
}


def _copied(ids: torch.Tensor, n: int) -> torch.Tensor:
    ids = ids.clone()
    ids[:, 1] = ids[:, 0] + n
    return ids


class Several(Indexing):
    """Three tables of different sizes; each looks up a part of the input."""

    def __init__(self, take: Callable[[torch.Tensor], Any], changes: list[tuple[Change, int]]) -> None:
        super().__init__(self._look_up)
        self.tables = [torch.zeros(size, 1) for size in (5, 40, 9)]
        self.take, self.changes = take, changes

    def _look_up(self, model: Any, ids: torch.Tensor) -> Any:
        for change, number in self.changes:
            ids = change(self, ids, number)
        return [F.embedding(part, table) for part, table in zip(self.take(ids), self.tables, strict=True)]


@settings(max_examples=300)
@given(
    st.sampled_from(sorted(PARTS)),
    st.lists(st.tuples(st.sampled_from(sorted(BY_COLUMN)), numbers), max_size=2),
    st.lists(st.integers(0, 4), min_size=6, max_size=6),
    st.lists(places, max_size=4),
    ids_of,
)
def test_eager_raises_for_no_call_that_the_guard_of_columns_takes(
    take: str, changes: list[tuple[str, int]], example: list[int], inside: list[list[int]], anything: list[int]
) -> None:
    model = Several(PARTS[take], [(BY_COLUMN[name], number) for name, number in changes])
    first = torch.tensor(example).reshape(2, 3)
    assume(not raises(model, first))
    matcher = guarded(model, first)
    assume(matcher is not None)
    assert matcher is not None
    assert matcher.call_mismatch(Call((first,), {})) is None
    ranges = limits(matcher)
    rows = [[0] * 6, [2] * 6, [0, 2, 0] * 2, [2, 0, 2, 0, 0, 2], *inside]
    for row in rows:
        values = [low + (high - low) * place // 2 for place, (low, high) in zip(row, ranges, strict=True)]
        ids = torch.tensor(values).reshape(2, 3)
        assert matcher.call_mismatch(Call((ids,), {})) is None
        assert not raises(model, ids), values
    ids = torch.tensor(anything).reshape(2, 3)
    assert not (matcher.call_mismatch(Call((ids,), {})) is None and raises(model, ids))


@settings(max_examples=150)
@given(
    st.sampled_from(["columns", "unbound", "parts", "moved", "by a list"]),
    st.lists(numbers, min_size=3, max_size=3),
    st.lists(st.integers(-25, 45), min_size=6, max_size=6),
)
def test_a_guard_of_columns_turns_down_only_what_eager_raises_for(
    take: str, offsets: list[int], values: list[int]
) -> None:
    moved = torch.tensor(offsets)
    model = Several(PARTS[take] if take != "by a list" else lambda i: i[:, [[0], [2], [1]]].unbind(1), [])
    model.changes = [(lambda m, i, n: i + moved, 0)]
    matcher = guarded(model, 2 - moved.expand(2, 3))
    assert matcher is not None
    ids = torch.tensor(values).reshape(2, 3)
    assert (matcher.call_mismatch(Call((ids,), {})) is not None) == raises(model, ids)
