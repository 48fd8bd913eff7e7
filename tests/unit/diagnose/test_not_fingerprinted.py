"""What no plan can recognise again is told at tuning."""

from __future__ import annotations

import itertools

import torch
from torch import nn

from compilot.diagnose.model.inspection import inspect, not_fingerprinted
from compilot.records import Reference
from compilot.workload import Workload


def test_what_cannot_be_read_is_one_finding_with_advice() -> None:
    model = nn.Sequential(nn.Linear(2, 2)).eval()
    for name in ("a", "b", "c", "d"):
        setattr(model[0], name, itertools.count())
    [found] = not_fingerprinted(model)
    assert (found.kind, found.where, found.count) == ("not-fingerprinted", "0.a", 4)
    assert "0.a (it is an iterator" in found.explanation
    assert "and 1 more" in found.explanation
    assert "tune again" in found.advice
    assert found in inspect(Workload(model, torch.ones(1, 2)), Reference(kind="eager", cases=())).findings


def test_an_ordinary_model_has_no_such_finding() -> None:
    assert [*not_fingerprinted(nn.Linear(2, 2).eval())] == []
