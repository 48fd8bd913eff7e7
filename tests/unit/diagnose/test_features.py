"""The features of a model: shares by the kind of operator, sizes; and nothing at all where they cannot be taken."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from compilot import Workload
from compilot._torch.opwatch import Class, Dispatch, Op
from compilot.diagnose.model import features as module
from compilot.diagnose.model.features import Looked, features, shares_of
from compilot.diagnose.model.inspection import inspect
from compilot.records import Reference

NO_COST = Dispatch(watched_s=0.0, between_s=0.0, plain_s=0.0)


def op(name: str, wall_s: float = 0.0) -> Op:
    return Op(f"aten.{name}", 0.0, wall_s, 0.0, (), 0)


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (Class.CONVOLUTION, "convolution conv2d mkldnn_convolution conv_transpose2d _slow_conv2d_forward"),
        (Class.PRODUCT, "addmm mm bmm baddbmm mv addmv matmul linear _int_mm mkldnn_rnn_layer _thnn_fused_lstm_cell"),
        (Class.PRODUCT, "_scaled_dot_product_flash_attention_for_cpu _transformer_encoder_layer_fwd"),
        (Class.OTHER, "relu add native_batch_norm upsample_bilinear2d _softmax mul_ _to_copy clamp sum embedding"),
    ],
)
def test_operators_are_told_apart_by_name(kind: Class, names: str) -> None:
    assert {op(name).kind for name in names.split()} == {kind}


def test_shares_add_up_and_what_is_left_is_overhead() -> None:
    ops = [op("convolution", 4.0), op("relu", 1.0), op("addmm", 2.0)]
    found = shares_of(Looked(ops, 10.0, 1), NO_COST)
    assert found == {"conv_share": 0.4, "matmul_share": 0.2, "memory_share": 0.1, "overhead_share": 0.3}
    watched = shares_of(Looked(ops, 10.0, 1), Dispatch(watched_s=1.0, between_s=0.0, plain_s=0.0))
    assert watched == {"conv_share": 0.3, "matmul_share": 0.1, "memory_share": 0.0, "overhead_share": 0.6}


def test_operators_that_took_longer_than_the_call_leave_no_overhead() -> None:
    found = shares_of(Looked([op("mm", 3.0), op("relu", 1.0)], 2.0, 1), NO_COST)
    assert (found["matmul_share"], found["overhead_share"]) == (0.75, 0.0)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.conv(x).relu()


def test_a_model_has_its_sizes_and_is_as_it_was() -> None:
    model = Net().eval()
    found = features(Workload(model, (torch.randn(4, 3, 16, 16),)))
    assert found is not None
    total = found.conv_share + found.matmul_share + found.memory_share + found.overhead_share
    assert total == pytest.approx(1.0)
    assert found.conv_share > 0.0
    assert found.matmul_share == 0.0
    assert (found.batch, found.input_bytes) == (4, 4 * 3 * 16 * 16 * 4)
    assert found.parameter_bytes == sum(p.numel() * 4 for p in model.parameters())
    assert found.operators >= 3
    assert found.call_s > 0.0
    assert model.calls == 0


def test_two_examples_are_two_calls() -> None:
    one = Workload(nn.Linear(8, 8), (torch.randn(2, 8),))
    two = Workload(nn.Linear(8, 8), examples=[(torch.randn(2, 8),), (torch.randn(2, 8),)])
    assert (features(one) or pytest.fail("none")).operators == (features(two) or pytest.fail("none")).operators


class Shy(nn.Linear):
    """Raises as soon as somebody watches its operators."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch.utils._python_dispatch import _get_current_dispatch_mode

        if _get_current_dispatch_mode() is not None:
            raise RuntimeError("not while I am watched")
        return super().forward(x)


def test_a_model_that_cannot_be_watched_has_none_and_the_run_goes_on() -> None:
    load = Workload(Shy(4, 4).eval(), (torch.randn(2, 4),))
    assert features(load) is None
    diagnosis = inspect(load, Reference(kind="float64", cases=()))
    assert diagnosis.features is None
    assert diagnosis.parameter_bytes == 80


def test_the_one_look_at_eager_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    load = Workload(nn.Linear(4, 4).eval(), (torch.randn(2, 4),))
    found = inspect(load, Reference(kind="float64", cases=())).features
    assert found is not None
    assert found.matmul_share > 0.0


def test_a_slow_model_is_watched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    class Counting(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            calls.append(x)
            return super().forward(x)

    load = Workload(Counting(4, 4).eval(), (torch.randn(2, 4),))
    assert features(load) is not None
    assert len(calls) == 2 * module.REPEATS
    calls.clear()
    monkeypatch.setattr(module, "LONG_ENOUGH_S", 0.0)
    assert features(load) is not None
    assert len(calls) == 2  # one watched, one plain


def test_eagers_worker_does_without_the_compiler() -> None:
    code = (
        "import sys, torch; from torch import nn; from compilot import Workload;"
        "from compilot.diagnose.model.features import features;"
        "assert features(Workload(nn.Linear(4, 4), (torch.randn(2, 4),))) is not None;"
        "print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr
