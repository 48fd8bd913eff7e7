"""One model over time: its figures where they belong, and what else changed between two runs."""

from __future__ import annotations

import re
from typing import Any

from compilot.ledger.entries import RunEntry, RunState
from compilot.pages.trend import MOST, trend_of


def run(number: int, **more: Any) -> RunEntry:
    usual = {
        "model": "Net",
        "created": f"2026-01-{number + 1:02}T00:00:00+00:00",
        "torch": "2.13.0",
        "cpu": "CPU",
        "machine": "m1",
        "commit": "a" * 40,
        "eager_call_s": 0.02,
        "chosen_call_s": 0.02 / (number + 1),
        "speedup": float(number + 1),
        "speedup_low": number + 0.9,
        "speedup_high": number + 1.2,
        "chosen": "openvino",
    }
    usual |= {"run_dir": f"/r/{number}", "id": f"{number:012}", "state": RunState.DECIDED}
    return RunEntry(**{**usual, **more})


def test_marks_stand_where_the_figures_are() -> None:
    found = trend_of([run(2), run(0), run(1), run(5, model="Other")], "Net")
    assert [one.id[-1] for one in found.runs] == ["0", "1", "2"]
    assert found.calls is not None
    assert found.speed_ups is not None
    for drawn in found.calls:
        chosen = [float(up) for up in re.findall(r'<circle class="dot c0"[^>]*cy="([\d.]+)"', drawn)]
        assert len(chosen) == 3
        assert chosen == sorted(chosen)  # quicker is lower, and pixels count downwards
        assert "openvino 6.67 ms" in drawn
    for drawn in found.speed_ups:
        ratios = [float(up) for up in re.findall(r'<circle class="dot c0"[^>]*cy="([\d.]+)"', drawn)]
        assert ratios == sorted(ratios, reverse=True)
        assert "3.00x (2.90-3.20) openvino" in drawn


def test_what_changed_between_two_runs_is_named_and_drawn() -> None:
    runs = [run(0), run(1, commit="b" * 40), run(2, commit="b" * 40, torch="2.14.0", cpu="Other"), run(3, commit=None)]
    found = trend_of(runs, "Net")
    assert [step.words for step in found.steps] == [
        "commit aaaaaaaa -> bbbbbbbb",
        "torch 2.13.0 -> 2.14.0, machine CPU -> Other",
        "torch 2.14.0 -> 2.13.0, machine Other -> CPU, commit bbbbbbbb -> not known",
    ]
    assert found.calls is not None
    assert found.calls.wide.count('class="step"') == 3
    assert trend_of([run(0), run(1)], "Net").steps == ()
    assert trend_of([run(0), run(1, machine="m2")], "Net").steps[0].words == "other versions or threads"


def test_runs_without_figures_have_no_picture_and_many_show_the_newest() -> None:
    kept = {"speedup": None, "speedup_low": None, "speedup_high": None, "chosen_call_s": None, "chosen": "eager"}
    found = trend_of([run(0, **kept)], "Net")
    assert found.speed_ups is None
    assert found.calls is not None
    assert trend_of([run(0, **kept, eager_call_s=None)], "Net").calls is None
    assert trend_of([run(0, id="")], "Net").runs == ()
    many = trend_of([run(number % 27, id=f"{number:012}") for number in range(MOST + 7)], "Net")
    assert (len(many.runs), many.left_out) == (MOST + 7, 7)
