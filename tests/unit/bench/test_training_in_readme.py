"""README's table of training steps is that of bench/results/training: each figure, and both means."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

import training_table
from training_journal import Journal

ROOT = Path(__file__).parents[3]
NAMES = {
    "GPT-2, 4 layers": "gpt2",
    "BERT, 4 layers, fine-tuning": "bert",
    "ResNet-18": "resnet18",
    "ViT, 6 layers": "vit",
    "LSTM classifier": "lstm",
    "MLP, 6 layers": "mlp",
}
HANDS = {
    "eager": "eager",
    "eager_fused": "eager, fused",
    "compile": "compiled",
    "compile_fused": "compiled, fused",
}


class Row(NamedTuple):
    """Of a model."""

    eager: str
    hand: str


def shown(ratio: training_table.Ratio) -> str:
    return f"{ratio.estimate:.2f}x ({ratio.low:.2f}-{ratio.high:.2f})"


def measured() -> tuple[dict[str, Row], list[str]]:
    """From the journal: rows, and the lines with the means."""
    journal = Journal(ROOT / "bench" / "results" / "training" / "training.jsonl")
    rows = {}
    for name, model in NAMES.items():
        sets = journal.raced(model)
        hand = training_table.best_by_hand(sets)
        told = f"{shown(training_table.over(sets, hand))}, {HANDS[hand]}"
        rows[name] = Row(shown(training_table.over(sets, "eager")), told)
    return rows, [line for line in training_table.table(journal, list(NAMES.values())) if line.startswith("geometric")]


def test_every_row_and_both_means() -> None:
    text = (ROOT / "README.md").read_text().replace("**", "")
    rows, means = measured()
    lines = {line.split(" | ")[0].removeprefix("| "): line for line in text.splitlines() if line.startswith("| ")}
    for name, row in rows.items():
        assert row.eager in lines[name]
        assert row.hand in lines[name]
    told = " ".join(text.split())
    for line in means:
        [found] = re.findall(r"([\d.]+) \(([\d.]+)-([\d.]+)\)", line)
        mean, low, high = map(float, found)
        assert f"{mean:.2f}x ({low:.2f}-{high:.2f})" in told


@pytest.mark.parametrize("name", NAMES)
def test_every_model_has_three_sets(name: str) -> None:
    journal = Journal(ROOT / "bench" / "results" / "training" / "training.jsonl")
    assert len(journal.raced(NAMES[name])) == 3
