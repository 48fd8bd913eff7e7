"""Every target in examples/ loads and answers; the ones that need transformers only where it is installed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from compilot.workload import load_target

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize("target", ["tiny.py:mlp", "resnet.py:resnet18", "bert.py:bert"])
def test_targets_load_and_answer(target: str) -> None:
    if not target.startswith("tiny"):
        pytest.importorskip("transformers")
    workload = load_target(str(EXAMPLES / target))
    with torch.no_grad():
        workload.model(*workload.call.args, **workload.call.kwargs)
    assert not workload.model.training


def test_bert_declares_its_sequence_length() -> None:
    pytest.importorskip("transformers")
    dims = load_target(str(EXAMPLES / "bert.py:bert")).dynamic
    assert {(dim.input, dim.dim, dim.min, dim.max) for dim in dims} == {
        ("attention_mask", 1, 8, 128),
        ("input_ids", 1, 8, 128),
    }
