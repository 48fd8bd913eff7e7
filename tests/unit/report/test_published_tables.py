"""The tables that README shows can be computed again: each speed-up from the two times beside it, in its own text and
in its picture, and the sentence below says what the table says."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from pages import README, ROOT, blocks_of
from printed import HEADS, figures, svg_text
from stories import told

from compilot.artifacts.planfile import save_plan
from compilot.testing.runner import Fate

PICTURE = ROOT / "docs" / "demo.svg"
SENTENCE = re.compile(r"^([^:\n]+): ([\d.]+)x faster than eager \(95 % ([\d.]+)-([\d.]+);", re.MULTILINE)
TABLE = """  candidate        state cold s warm s p50 ms eager          speed-up RSS MiB note
  eager            ok     0.006  0.002   0.42  0.42          baseline 243/240
► onnxruntime      ok      5.66  0.056   0.12  0.42 3.53x [3.40-3.67] 266/266
  openvino latency ok      1.26      -   0.21  0.79            ~3.70x 400/401

onnxruntime: 3.53x faster than eager (95 % 3.40-3.67; 3 processes x 40 pairs, 1 thread)
"""


def quickstart() -> str:
    """What README says that `compilot tune` printed."""
    [text] = [block.text for block in blocks_of(README.read_text()) if "tuning Scorer, budget" in block.text]
    return text


def problems(text: str) -> list[str]:
    """What does not agree in a printed result."""
    found = figures(text)
    wrong = [] if HEADS.search(text) else ["no columns 'warm s' and 'eager'"]
    wrong += [] if found else ["no speed-up"]
    wrong += [f"{label}: {line}" for label, line in found.items() if not line.follows()]
    chosen = {
        label: line
        for label, line in found.items()
        if re.search(rf"^► {re.escape(label)} +(?:ok +)?[\d.]", text, re.MULTILINE)
    }
    said = {label: tuple(map(float, numbers)) for label, *numbers in SENTENCE.findall(text)}
    if said != {label: (line.ratio, line.low, line.high) for label, line in chosen.items()}:
        wrong.append(f"sentence {said}, table {chosen}")
    return wrong


def test_the_table_in_the_readme_agrees_with_itself() -> None:
    assert problems(quickstart()) == []


def test_the_table_in_the_readmes_picture_agrees_with_itself() -> None:
    assert problems(svg_text(PICTURE.read_text())) == []


def test_a_picture_that_is_drawn_now_has_no_problem(tmp_path: Path) -> None:
    fates = {"inductor": Fate(speed=1.6), "openvino": Fate(speed=2.3), "onnxruntime": Fate(speed=0.7)}
    story = told(tmp_path, fates, noise=0.02)
    save_plan(story.plan, story.run_dir.path / "plan.json")
    runpy.run_path(str(ROOT / "bench" / "picture.py"))["main"](str(story.run_dir.path), str(tmp_path / "demo.svg"))
    text = svg_text((tmp_path / "demo.svg").read_text())
    assert set(figures(text)) == set(fates)
    assert SENTENCE.search(text)
    assert problems(text) == []


def test_a_table_that_agrees_has_no_problem() -> None:
    assert problems(TABLE) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("0.12  0.42", "0.14  0.42"),  # own time
        ("0.21  0.79", "0.21  0.42"),  # eager at another moment
        ("~3.70x", "~3.20x"),
        ("3.53x faster", "3.35x faster"),
        ("(95 % 3.40-3.67", "(95 % 3.40-3.60"),
        ("warm s", "      "),
        (" eager          speed-up", "                speed-up"),
        ("►", " "),
    ],
)
def test_a_table_that_does_not_is_found(old: str, new: str) -> None:
    assert old in TABLE
    assert problems(TABLE.replace(old, new)) != []


def test_the_command_above_the_readmes_output_is_the_one_that_its_output_is_of() -> None:
    text = README.read_text()
    [command] = re.findall(r"^compilot tune mymodel\.py:factory --budget (\d)m --out (\w+)$", text, re.MULTILINE)
    assert f"budget {command[0]}:00, writing to {command[1]}\n" in quickstart()
    assert f'"{command[1]}/plan.json"' in quickstart()
