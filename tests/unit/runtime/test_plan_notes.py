"""What a plan says of its answers is in stats(), from every entry, beside the counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import torch
from file_engine import FileEngine, plan_for
from torch import nn

import compilot
from compilot.engines import registry
from compilot.records import Plan

X = torch.randn(2, 3)
NOTE = "checks inside the model are not part of its compiled form: net.py:12"


@pytest.fixture(autouse=True)
def engine() -> Iterator[None]:
    registry.register("files", None, FileEngine())
    yield
    registry.unregister("files")


def with_notes(plan: Plan, *notes: str) -> Plan:
    return msgspec.structs.replace(plan, entries=(msgspec.structs.replace(plan.entries[0], caveats=notes),))


@torch.no_grad()
def test_stats_have_the_plans_caveats_from_the_start_on():
    model = nn.Linear(3, 3).eval()
    fast: Any = compilot.compile(model, with_notes(plan_for(model, "files", X), NOTE))
    assert fast.stats().notes == (NOTE,)
    fast(X)
    assert (fast.stats().fast, fast.stats().notes) == (1, (NOTE,))


@torch.no_grad()
def test_a_chain_of_entries_says_each_once():
    model = nn.Linear(3, 3).eval()
    first, second = (with_notes(plan_for(model, "files", torch.randn(n, 3)), NOTE, f"only {n}") for n in (2, 4))
    both = msgspec.structs.replace(first, entries=(*first.entries, *second.entries))
    fast: Any = compilot.compile(model, both)
    assert fast.stats().notes == (NOTE, "only 2", "only 4")


def test_without_caveats_there_are_no_notes():
    model = nn.Linear(3, 3).eval()
    fast: Any = compilot.compile(model, plan_for(model, "files", X))
    assert fast.stats().notes == ()
    eager: Any = compilot.compile(model, msgspec.structs.replace(plan_for(model, "files", X), entries=()))
    assert eager.stats().notes == ()
