"""Every target in examples/ loads and answers; the ones that need transformers only where it is installed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from compilot.workload import load_target

EXAMPLES = Path(__file__).parents[3] / "examples"


TARGETS = ["tiny.py:mlp", "resnet.py:resnet18", "bert.py:bert", "huggingface.py:classifier"]
DOCTORED = ("bert", "gpt2_with_cache", "t5_step", "t5_generate", "whisper", "packed_lstm")


@pytest.mark.slow
@pytest.mark.parametrize("target", [*TARGETS, *(f"doctor_models.py:{name}" for name in DOCTORED)])
def test_targets_load_and_answer(target: str) -> None:
    if not target.startswith("tiny"):
        pytest.importorskip("transformers")
    workload = load_target(str(EXAMPLES / target))
    with torch.no_grad():
        workload.model(*workload.call.args, **workload.call.kwargs)
    assert not workload.model.training


def test_the_documentation_names_the_command_for_every_model_it_reports_on() -> None:
    text = (EXAMPLES.parent / "docs" / "doctor.md").read_text()
    rows = [line for line in text.splitlines() if "`examples/doctor_models.py:" in line]
    assert [row.partition("doctor_models.py:")[2].partition("`")[0] for row in rows] == list(DOCTORED)


def test_the_list_of_examples_has_every_file() -> None:
    listed = re.findall(r"\]\(\.\./examples/(\S+)\)", (EXAMPLES.parent / "docs" / "examples.md").read_text())
    assert sorted(listed) == sorted(path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".ipynb"))


def test_bert_declares_its_sequence_length() -> None:
    pytest.importorskip("transformers")
    dims = load_target(str(EXAMPLES / "bert.py:bert")).dynamic
    assert {(dim.input, dim.dim, dim.min, dim.max) for dim in dims} == {
        ("attention_mask", 1, 8, 128),
        ("input_ids", 1, 8, 128),
    }
