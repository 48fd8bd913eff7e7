"""bench/gate.py on checks that were never made: it goes on where it stopped, and counts as its goals say."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import torch

import gate
from gate import CASES, CheckLine, Latency, Options, table
from stepping import MORE

OPTIONS = Options(None, None, "eager,compile")


def line(case: str, number: int, *verdicts: str, red: tuple[str, ...] = (), exit_code: int = 0) -> CheckLine:
    latencies = tuple(
        Latency(arm="eager", verdict=v, change=0.1, low=0.0, high=0.2, mde=0.1, races=1) for v in verdicts
    )
    return CheckLine(
        case=case,
        number=number,
        verdict="pass",
        exit_code=exit_code,
        because="",
        latencies=latencies,
        red=red,
        wall_s=1.0,
    )


def test_it_goes_on_after_the_last_finished_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def check(case: gate.Case, number: int, options: Options) -> CheckLine:
        made.append((case.name, number))
        return line(gate.label(case, options), number, "pass")

    monkeypatch.setattr(gate, "check", check)
    words = ["--out", str(tmp_path), "--only", "aa,hog", "--runs", "2"]
    assert gate.main([*words, "--steps", "3"]) == MORE
    assert gate.main(words) == 1  # two are not twenty: the goal is not reached
    assert sorted(made) == [("aa", 0), ("aa", 1), ("hog", 0), ("hog", 1)]
    assert gate.main(words) == 1
    assert len(made) == 4


def test_lines_of_another_version_of_the_code_count_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = []

    def check(case: gate.Case, number: int, options: Options) -> CheckLine:
        made.append(number)
        return line(gate.label(case, options), number, "pass")

    monkeypatch.setattr(gate, "check", check)
    words = ["--out", str(tmp_path), "--only", "hog", "--runs", "2"]
    for code in ("before", "after"):
        monkeypatch.setattr("stepping.code_of", lambda code=code: code)
        gate.main(words)
        assert "| hog | 2 | 0 |" in capsys.readouterr().out
    assert made == [0, 1, 0, 1]


def test_goals_are_counted_by_time() -> None:
    slow, equal = CASES[2], CASES[0]
    nine = [line("slow20", n, "pass", "slower") for n in range(9)]
    assert table([slow], [*nine, line("slow20", 9, "inconclusive")], OPTIONS)[1]
    assert not table([slow], [*nine, line("slow20", 9, "pass")], OPTIONS)[1]  # a slow-down must not pass
    assert not table([slow], nine, OPTIONS)[1]
    calm = [line("aa", n, "pass") for n in range(19)]
    assert table([equal], [*calm, line("aa", 19, "inconclusive")], OPTIONS)[1]
    assert not table([equal], [*calm, line("aa", 19, "slower", red=("latency (eager)",), exit_code=1)], OPTIONS)[1]
    for red in (line("aa", 19, "pass", red=("memory (eager)",)), line("aa", 19, "pass", exit_code=1)):
        assert not table([equal], [*calm, red], OPTIONS)[1]  # by whatever: equal code has nothing worse
    for unseen in (line("aa", 19, exit_code=2), line("aa", 19), line("aa", 19, "not-measured")):
        text, reached = table([equal], [*calm, unseen], OPTIONS)
        assert not reached  # what measured nothing is no pass
        assert "| aa | 20 | 0 | 19 | 0 | 1 |" in text
    assert table([equal], calm, Options(2, "10s", "eager"))[0].count("| 0 |") >= 1  # tried lines are another case


def test_the_slow_down_is_extra_work_with_the_same_answers(tmp_path: Path) -> None:
    answers = []
    for extra in (0, 3):
        names: dict[str, object] = {}
        exec(gate.MODEL.format(extra=extra), names)
        torch.manual_seed(0)
        model, args = names["net"]()  # type: ignore[operator]
        with torch.no_grad():
            answers.append(model(*args))
    assert torch.allclose(*answers, rtol=1e-4, atol=1e-5)
    gate.project(tmp_path, 2)
    committed = subprocess.run(
        ["git", "-C", str(tmp_path), "show", "main:model.py"], capture_output=True, text=True, check=True
    ).stdout
    assert re.search(r"^EXTRA = 0 ", committed, re.MULTILINE)
    assert re.search(r"^EXTRA = 2 ", (tmp_path / "model.py").read_text(), re.MULTILINE)
