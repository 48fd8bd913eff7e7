"""Checks that vanish in compiled forms are found in the model's byte code, and others are not."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.compiler import is_compiling

from compilot.diagnose.model.vanishing_checks import caveats, findings, vanishing_checks


def checked(x):
    if not torch.compiler.is_exporting() and x.min() < 0:
        raise ValueError("negative")
    return x


class AndRaise(nn.Module):
    def forward(self, x):
        if not torch.compiler.is_compiling() and (x < 0).any():
            raise ValueError("negative")
        return x


class Nested(nn.Module):
    def forward(self, x):
        if not is_compiling():
            for row in x:
                if row.min() < 0:
                    raise ValueError("negative")
        return x * 2


class EarlyReturn(nn.Module):
    def forward(self, x):
        if torch.jit.is_tracing():
            return x * 2
        assert x.min() >= 0, "negative"
        return x * 2


class Else(nn.Module):
    def forward(self, x):
        if torch.compiler.is_dynamo_compiling():
            x = x * 2
        elif x.min() < 0:
            raise ValueError("negative")
        return x


class InMethod(nn.Module):
    def forward(self, x):
        return self.look(x) * 2

    def look(self, x):
        if torch.onnx.is_in_onnx_export() or x.min() >= 0:
            return x
        raise ValueError("negative")


class InHelper(nn.Module):
    def forward(self, x):
        return checked(x) * 2


class AssertAsync(nn.Module):
    def forward(self, x):
        torch._assert_async((x >= 0).all(), "negative")
        return x * 2


class CheckedItem(nn.Module):
    def forward(self, x):
        n = x.sum().long().item()
        torch._check(n >= 0)
        return x * n


GUARDED = [AndRaise, Nested, EarlyReturn, Else, InMethod, InHelper]
OPERATORS = [AssertAsync, CheckedItem]


class RaisesBefore(nn.Module):
    def forward(self, x):
        if x.dim() != 2:
            raise ValueError("two dimensions")
        return x * 2 if is_compiling() else x + x


class RaisesAfter(nn.Module):
    """The question decides about something else."""

    def forward(self, x):
        if is_compiling():
            x = x + 0
        if x.dim() != 2:
            raise ValueError("two dimensions")
        return x


class SizeHint(nn.Module):
    def forward(self, x):
        torch._check(x.size(0) > 1)
        return x


@pytest.mark.parametrize("kind", [*GUARDED, *OPERATORS])
def test_a_check_that_vanishes_is_found_where_it_is(kind):
    model = nn.Sequential(nn.Linear(2, 2), kind(), kind())
    [finding] = findings(model)
    assert finding.kind == "checks-vanish"
    assert finding.where.startswith("test_vanishing.py:")
    [place] = vanishing_checks(model)  # once, however many modules have it
    assert place.where in finding.explanation


@pytest.mark.parametrize("kind", [RaisesBefore, RaisesAfter, SizeHint, nn.MultiheadAttention])
def test_checks_that_have_nothing_to_do_with_compiling_are_left_alone(kind):
    model = kind(4, 2) if kind is nn.MultiheadAttention else kind()
    assert findings(model) == ()
    assert caveats(model, "openvino") == ()


@pytest.mark.parametrize("engine", ["inductor", "aoti", "onnxruntime", "openvino", "dynamo:other"])
def test_what_is_asked_only_while_nothing_compiles_is_in_no_compiled_form(engine):
    [caveat] = caveats(AndRaise(), engine)
    assert caveat.startswith("checks inside the model are not part of its compiled form: test_vanishing.py:")


def test_operators_that_check_are_kept_by_torchs_own_compilers():
    assert caveats(AssertAsync(), "inductor") == caveats(AssertAsync(), "aoti") == ()
    assert caveats(AssertAsync(), "onnxruntime") != ()


def test_eager_leaves_nothing_out():
    assert caveats(AndRaise(), "eager") == ()
